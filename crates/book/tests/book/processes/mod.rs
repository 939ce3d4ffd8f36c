//! Many processes on one store, killed in the middle of what they do.

mod ledger;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use book::load::{Progress, facts};
use book::{Book, Looks};
use ipam::ReleaseRule;
use ipam::check::{Evidence, Problem, analyse};
use model::{Key, KeyRange, is_detached};
use serde_json::json;
use store::Store;
use tempfile::TempDir;
use testkit::Dice;
use testkit::process::Process;

use crate::common::{holders, one_by_one, put_pools};
use crate::kubernetes::Pod;
use crate::places::Place;
use ledger::{Event, Standing, judge};
use worker::{Orders, settings, work};

/// Generous: only something that hangs takes longer.
const DEADLINE: Duration = Duration::from_secs(3600);

/// How often the ledger is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A crowd of processes, and how it is treated.
struct Crowd {
    test: &'static str,
    is_stepwise: bool,
    processes: usize,
    nodes: usize,
    assignments: usize,
    held_max: usize,
    has_ipv6: bool,
    kills: usize,
}

impl Crowd {
    fn node(&self, number: usize) -> String {
        format!("node-{}", number % self.nodes)
    }

    /// Where the owner of a handle is: `net.NUMBER.LIFE-…`.
    fn node_of(&self, handle: &str) -> String {
        let number = handle.split('.').nth(1).and_then(|number| number.parse().ok());
        self.node(number.expect("the number of a process"))
    }

    /// What the issue asks for.
    fn sixteen(test: &'static str, assignments: usize) -> Crowd {
        Crowd {
            test,
            is_stepwise: false,
            processes: 16,
            // Four processes of one node: the calls of a runtime that has no agent to ask.
            nodes: 4,
            assignments,
            held_max: 6,
            has_ipv6: true,
            kills: assignments.div_ceil(3).max(12),
        }
    }
}

/// What is known at the end.
struct Aftermath {
    events: Vec<(String, Event)>,
    standings: BTreeMap<String, Standing>,
    kills: usize,
}

/// One member of the crowd, in its present life.
struct Member {
    process: Process,
    life: usize,
}

struct Run<'a> {
    crowd: &'a Crowd,
    store: String,
    folder: TempDir,
    members: BTreeMap<usize, Member>,
    dice: Dice,
    kills: usize,
}

impl Run<'_> {
    fn ledger(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    fn start(&mut self, number: usize, life: usize) {
        let events = ledger::read(&self.ledger());
        let orders = Orders {
            store: self.store.clone(),
            is_stepwise: self.crowd.is_stepwise,
            ledger: self.ledger(),
            name: format!("{number}.{life}"),
            node: self.crowd.node(number),
            seed: testkit::seed(),
            assignments: self.crowd.assignments.saturating_sub(assignments_of(&events, number)),
            held_max: self.crowd.held_max,
            has_ipv6: self.crowd.has_ipv6,
            left_over: self.left_over(&events, number),
        };
        let mut command = testkit::again(self.crowd.test, "worker", &serde_json::to_string(&orders).unwrap());
        command.stdout(Stdio::null());
        self.members.insert(number, Member { process: Process::spawn(command).unwrap(), life });
    }

    /// What a process has not released; most of it, for a runtime forgets some as well.
    fn left_over(&mut self, events: &[(String, Event)], number: usize) -> Vec<String> {
        let is_left =
            |(handle, standing): &(String, Standing)| is_of(handle, number) && *standing != Standing::Gone;
        let left: Vec<String> = judge(events).into_iter().filter(is_left).map(|(handle, _)| handle).collect();
        left.into_iter().filter(|_| self.dice.roll(4) > 0).collect()
    }

    /// Kills someone, and lets a successor go on.
    fn kill_one(&mut self) {
        let numbers: Vec<usize> = self.members.keys().copied().collect();
        let number = numbers[self.dice.roll(numbers.len() as u64) as usize];
        let mut member = self.members.remove(&number).unwrap();
        member.process.kill();
        self.kills += 1;
        self.start(number, member.life + 1);
    }

    /// Those who are done leave. Nobody may end in any other way.
    fn dismiss(&mut self) {
        let ended = |(number, member): (&usize, &mut Member)| Some((*number, member.process.exit_status()?));
        let ended: Vec<_> = self.members.iter_mut().filter_map(ended).collect();
        for (number, status) in ended {
            assert!(status.success(), "process {number} ended with {status}");
            self.members.remove(&number);
        }
    }
}

fn is_of(handle: &str, number: usize) -> bool {
    handle.strip_prefix("net.").is_some_and(|rest| rest.starts_with(&format!("{number}.")))
}

fn assignments_of(events: &[(String, Event)], number: usize) -> usize {
    events.iter().filter(|(handle, event)| *event == Event::Try && is_of(handle, number)).count()
}

/// Lets the crowd loose, and kills at random moments of its progress until everyone is done.
fn run(crowd: &Crowd, store: String) -> Aftermath {
    let folder = testkit::scratch("ledger").unwrap();
    let dice = Dice::for_purpose(testkit::seed(), crowd.test);
    let mut run = Run { crowd, store, folder, members: BTreeMap::new(), dice, kills: 0 };
    for number in 0..crowd.processes {
        run.start(number, 0);
    }
    // An assignment and its release are six lines.
    let expected = crowd.processes * crowd.assignments * 6;
    let mut moments: Vec<usize> = (0..crowd.kills).map(|_| run.dice.roll(expected as u64) as usize).collect();
    moments.sort_unstable_by(|one, other| other.cmp(one));
    let started = Instant::now();
    while !run.members.is_empty() {
        assert!(started.elapsed() < DEADLINE, "seed {}: the crowd does not come to its end", testkit::seed());
        std::thread::sleep(LOOK);
        run.dismiss();
        if moments.last().is_some_and(|moment| lines(&run.ledger()) >= *moment) && !run.members.is_empty() {
            moments.pop();
            run.kill_one();
        }
    }
    let events = ledger::read(&run.ledger());
    Aftermath { standings: judge(&events), events, kills: run.kills }
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

impl Aftermath {
    /// What it took, in one line.
    fn report(&self, crowd: &Crowd) {
        let count = |is: fn(&Event) -> bool| self.events.iter().filter(|(_, event)| is(event)).count();
        let got = count(|event| matches!(event, Event::Got(_)));
        let gone = count(|event| *event == Event::Gone);
        let open = self.standings.values().filter(|standing| **standing == Standing::Open).count();
        let mut commits: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, event) in &self.events {
            if let Event::Commits(count) = event {
                commits.insert(name, *count);
            }
        }
        let commits: u64 = commits.values().sum();
        let refused = count(|event| matches!(event, Event::Refused(_)));
        let writes = if crowd.is_stepwise {
            format!("{commits} writes one by one")
        } else {
            format!("{commits} commits, {} of them lost a race", commits.saturating_sub((got + gone) as u64))
        };
        eprintln!(
            "{}: {} processes, {} kills ({open} operations cut off), {got} assignments, {refused} refusals, {gone} \
             releases, {writes}; seed {}",
            crowd.test,
            crowd.processes,
            self.kills,
            testkit::seed(),
        );
    }

    /// The store says what the ledger says.
    async fn compare(&self, store: &Arc<dyn Store>) {
        let held = holders(store).await;
        for (handle, standing) in &self.standings {
            let mut found: Vec<_> =
                held.iter().filter(|(_, holder)| *holder == handle).map(|(address, _)| *address).collect();
            let has_endpoint = store.get(&worker::endpoint_key(handle)).await.unwrap().is_some();
            match standing {
                Standing::Gone => assert!(found.is_empty() && !has_endpoint, "{handle} is gone"),
                Standing::Open => assert_eq!(found.is_empty(), !has_endpoint, "{handle} is half there"),
                Standing::Holds(addresses) => {
                    let mut addresses = addresses.clone();
                    addresses.sort_unstable();
                    found.sort_unstable();
                    assert_eq!((found, has_endpoint), (addresses, true), "{handle}");
                }
            }
        }
    }

    /// What a runtime does for sandboxes that are gone.
    async fn release_rest(&self, book: &Book, place: &Place, crowd: &Crowd) {
        for (handle, standing) in &self.standings {
            let endpoint = match place {
                Place::Kubernetes { .. } => Pod::key(&crowd.node_of(handle), handle),
                _ => worker::endpoint_key(handle),
            };
            if *standing != Standing::Gone {
                worker::release(book, &endpoint, handle).await;
            }
        }
    }
}

/// Gives what there is before anyone has got an address.
async fn prepare(place: &Place, store: &Arc<dyn Store>, crowd: &Crowd, v4: &str) -> BTreeSet<Key> {
    let pools = [json!({"cidr": v4, "blockSize": 30}), json!({"cidr": "fd00::/116", "blockSize": 126})];
    put_pools(store, &pools).await;
    for number in 0..crowd.nodes {
        place.put_node(store, &crowd.node(number), &[]).await;
    }
    keys(store).await
}

/// Of all records, except for pods that are not attached.
async fn keys(store: &Arc<dyn Store>) -> BTreeSet<Key> {
    let all = store.list_all(KeyRange::Everything).await.unwrap().0.into_iter();
    all.filter(|record| !is_detached(&record.value)).map(|record| record.key).collect()
}

async fn problems(store: &Arc<dyn Store>) -> Vec<Problem> {
    let facts = facts(&**store, &Progress::default()).await.unwrap();
    let evidence = Evidence {
        books: &facts.books,
        pools: &facts.pools,
        nodes: &facts.nodes,
        endpoints: &facts.endpoints,
        services: &[],
        now: jiff::Timestamp::now(),
    };
    analyse(&evidence).problems
}

/// Nothing is left but what was there at the beginning.
async fn assert_empty_after_giving_up(book: &Book, crowd: &Crowd, before: &BTreeSet<Key>) {
    let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
    for number in 0..crowd.nodes {
        for given_up in book.release_host(&crowd.node(number), rule).await.unwrap() {
            assert_eq!(given_up.result, Ok(true), "{}", given_up.block);
        }
    }
    assert_eq!(keys(book.store()).await, *before);
}

async fn kill_and_judge(crowd: &Crowd, place: &Place) {
    let store = place.open().await;
    let before = prepare(place, &store, crowd, "10.0.0.0/20").await;
    let aftermath = tokio::task::block_in_place(|| run(crowd, place.address()));
    aftermath.report(crowd);
    // Those whose moment came when everyone was done already have not happened.
    assert!(aftermath.kills * 4 >= crowd.kills, "only {} kills", aftermath.kills);
    let is_refused = |event: &Event| matches!(event, Event::Refused(_));
    assert!(!aftermath.events.iter().any(|(_, event)| is_refused(event)), "there is enough for all");
    let book = if crowd.is_stepwise {
        Book::with_settings(one_by_one(store.clone()), settings())
    } else {
        // Together or not at all: there is nothing to repair, and nothing that nobody knows of.
        aftermath.compare(&store).await;
        assert_eq!(problems(&store).await, []);
        Book::with_settings(store.clone(), settings())
    };
    let recovery = book.recover(Looks::Once).await.unwrap();
    eprintln!("{}: {} faults put right: {:?}", crowd.test, recovery.repaired.len(), recovery.repaired);
    assert_eq!((&recovery.left, &recovery.unreadable), (&vec![], &vec![]));
    assert!(crowd.is_stepwise || recovery.repaired.is_empty(), "{recovery:?}");
    aftermath.release_rest(&book, place, crowd).await;
    assert_eq!(problems(&store).await, [], "seed {}", testkit::seed());
    assert_eq!(holders(&store).await.len(), 0);
    assert_empty_after_giving_up(&book, crowd, &before).await;
}

/// Plays its part if this is one of the crowd.
async fn is_worker() -> bool {
    let Some(role) = testkit::role() else { return false };
    work(serde_json::from_str(&role.argument).unwrap()).await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_on_etcd() {
    const TEST: &str = "processes::sixteen_processes_on_etcd";
    if is_worker().await {
        return;
    }
    let Some(place) = Place::etcd(TEST).await else { return };
    kill_and_judge(&Crowd::sixteen(TEST, testkit::count(30, 500)), &place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_on_sqlite() {
    const TEST: &str = "processes::sixteen_processes_on_sqlite";
    if is_worker().await {
        return;
    }
    kill_and_judge(&Crowd::sixteen(TEST, testkit::count(30, 500)), &Place::sqlite()).await;
}

/// Where records are written one by one, a kill leaves something half done, and one pass of recovery puts it right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_that_write_record_by_record() {
    const TEST: &str = "processes::sixteen_processes_that_write_record_by_record";
    if is_worker().await {
        return;
    }
    let assignments = testkit::count(12, 200);
    let crowd = Crowd { is_stepwise: true, kills: assignments * 3, ..Crowd::sixteen(TEST, assignments) };
    kill_and_judge(&crowd, &Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_on_kubernetes() {
    const TEST: &str = "processes::sixteen_processes_on_kubernetes";
    if is_worker().await {
        return;
    }
    let Some(place) = Place::kubernetes(TEST).await else { return };
    let crowd = Crowd { is_stepwise: true, ..Crowd::sixteen(TEST, testkit::count(10, 500)) };
    kill_and_judge(&crowd, &place).await;
}

/// A pool that is too small for those who want something of it.
async fn crowd_a_small_pool(test: &'static str, place: &Place) {
    let crowd = Crowd {
        processes: 8,
        nodes: 8,
        held_max: 4,
        has_ipv6: false,
        kills: 0,
        ..Crowd::sixteen(test, testkit::count(25, 250))
    };
    let store = place.open().await;
    prepare(place, &store, &crowd, "10.0.0.0/28").await;
    let aftermath = tokio::task::block_in_place(|| run(&crowd, place.address()));
    aftermath.report(&crowd);
    let refusals: Vec<&String> = aftermath
        .events
        .iter()
        .filter_map(|(_, event)| if let Event::Refused(reason) = event { Some(reason) } else { None })
        .collect();
    assert!(!refusals.is_empty(), "there was enough for all");
    for refusal in refusals {
        assert!(refusal.starts_with("no IPv4 address is free for node node-"), "{refusal}");
    }
    aftermath.compare(&store).await;
    assert_eq!(problems(&store).await, []);
    assert_eq!(holders(&store).await.len(), 0);
    // Everything can be had again, and not one more.
    let book = Book::with_settings(store.clone(), settings());
    for number in 0..16 {
        crate::common::assign(&book, &format!("node-{}", number % 8), &format!("last.{number}")).await;
    }
    assert!(book.assign(crate::common::one("node-0", "last.16")).await.is_err());
    assert_eq!(holders(&store).await.len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_processes_and_too_few_addresses_on_etcd() {
    const TEST: &str = "processes::eight_processes_and_too_few_addresses_on_etcd";
    if is_worker().await {
        return;
    }
    let Some(place) = Place::etcd(TEST).await else { return };
    crowd_a_small_pool(TEST, &place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_processes_and_too_few_addresses_on_sqlite() {
    const TEST: &str = "processes::eight_processes_and_too_few_addresses_on_sqlite";
    if is_worker().await {
        return;
    }
    crowd_a_small_pool(TEST, &Place::sqlite()).await;
}
