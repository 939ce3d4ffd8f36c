//! An agent that has seen much needs no more than one that has seen little: memory, descriptors and threads after thousands of
//! calls, strangers' changes and store outages.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::thread;

use lab::Pod;
use testkit::effort::{resident_bytes, thread_count};

use crate::common::{Bench, DelOutcome as _};
use crate::running::{Agent, wait_until};

/// Callers at once.
const CALLERS: usize = 8;

/// What is the same after each round, up to this: what was warm in one round may have cooled down in another.
const MIB_MORE: f64 = 4.0;
const MIB_RATIO: f64 = 1.05;
/// Once the agent has nothing to do: then connections are closed, and blocking threads end after some seconds.
const DESCRIPTORS_MORE: usize = 1;
const THREADS_MORE: usize = 2;
/// The store keeps connections to its file open, each with two descriptors, up to four for reading.
const STORE_DESCRIPTORS_MORE: usize = 8;

/// What one round does.
struct Load {
    rounds: usize,
    adds_and_dels: usize,
    strangers_changes: usize,
    outages: usize,
}

#[derive(Clone, Copy, Debug)]
struct Need {
    mib: f64,
    /// Without those of the store.
    descriptors: usize,
    store_descriptors: usize,
    threads: usize,
}

impl Need {
    fn of(bench: &Bench, agent: &Agent) -> Need {
        let links = fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap().flatten();
        let files: Vec<PathBuf> = links.filter_map(|link| fs::read_link(link.path()).ok()).collect();
        // With the files beside it: `….db-wal`.
        let store = bench.lab.store_path().display().to_string();
        let is_stores = |file: &&PathBuf| file.display().to_string().starts_with(&store);
        let store_descriptors = files.iter().filter(is_stores).count();
        Need {
            mib: resident_bytes(agent.id()).unwrap() as f64 / 1024.0 / 1024.0,
            descriptors: files.len() - store_descriptors,
            store_descriptors,
            threads: thread_count(agent.id()).unwrap(),
        }
    }

    fn has_no_more_than(&self, first: &Need) -> bool {
        self.descriptors <= first.descriptors + DESCRIPTORS_MORE
            && self.store_descriptors <= first.store_descriptors + STORE_DESCRIPTORS_MORE
            && self.threads <= first.threads + THREADS_MORE
    }

    /// Of each the middle one.
    fn median(needs: &[Need]) -> Need {
        fn middle<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
            values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            values[values.len() / 2]
        }
        Need {
            mib: middle(needs.iter().map(|need| need.mib).collect()),
            descriptors: middle(needs.iter().map(|need| need.descriptors).collect()),
            store_descriptors: middle(needs.iter().map(|need| need.store_descriptors).collect()),
            threads: middle(needs.iter().map(|need| need.threads).collect()),
        }
    }
}

#[test]
fn an_agent_that_has_seen_much_needs_no_more() {
    let test = "an_agent_that_has_seen_much_needs_no_more";
    let Some(bench) = Bench::new(test) else { return };
    let agent = bench.agent(&[]);
    let load = Load {
        rounds: testkit::count(4, 50),
        adds_and_dels: testkit::count(40, 400),
        strangers_changes: testkit::count(1_000, 4_000),
        outages: 2,
    };
    let stays = bench.pod("churn", "stays");
    bench.agent_add(&stays).result().unwrap();
    let mut pods: Vec<Pod> =
        (0..CALLERS).map(|caller| bench.pod("churn", &format!("web-{caller}"))).collect();
    // The first round fills what is kept.
    load.round(&bench, &agent, &mut pods, 0);
    let needs: Vec<Need> = (1..=load.rounds)
        .map(|round| {
            load.round(&bench, &agent, &mut pods, round);
            Need::of(&bench, &agent)
        })
        .collect();
    assert!(stays.netns().can_ping(bench.node.address()).unwrap());
    let quarter = load.rounds.div_ceil(4);
    let (first, last) = (Need::median(&needs[..quarter]), Need::median(&needs[needs.len() - quarter..]));
    testkit::note(test, &load.words(first, last));
    let all = format!("{needs:#?}\n{}", agent.log());
    assert!(last.mib <= first.mib * MIB_RATIO + MIB_MORE, "memory: {first:?}, then {last:?} of {all}");
    wait_until(
        || Need::of(&bench, &agent).has_no_more_than(&first),
        || format!("{first:?}, and now {:?} of {all}", Need::of(&bench, &agent)),
    );
    bench.agent_del(&stays).result_of_del();
    agent.stop();
}

impl Load {
    fn round(&self, bench: &Bench, agent: &Agent, pods: &mut [Pod], round: usize) {
        self.call(bench, pods, round);
        self.disturb(bench, agent, round);
        for _ in 0..self.outages {
            outage(bench, agent);
        }
        wait_until(|| bench.metric("dels_waiting") == 0 && bench.metric("unmended") == 0, || agent.log());
    }

    /// Sandboxes come and go, each in the namespace of the one before it.
    fn call(&self, bench: &Bench, pods: &mut [Pod], round: usize) {
        let each = self.adds_and_dels / CALLERS;
        thread::scope(|scope| {
            for (caller, pod) in pods.iter_mut().enumerate() {
                scope.spawn(move || {
                    for number in 0..each {
                        // None that the lab gives itself.
                        pod.container_id = format!("c{caller:x}{round:06x}{number:056x}");
                        bench.agent_add(pod).result().unwrap();
                        bench.agent_del(pod).result_of_del();
                    }
                });
            }
        });
    }

    /// Somebody else's routes and addresses come and go, of which the kernel tells the agent; and one of its own goes.
    fn disturb(&self, bench: &Bench, agent: &Agent, round: usize) {
        let mut batch = String::new();
        for number in 0..self.strangers_changes / 2 {
            let address = format!("10.99.{}.{}", number / 200 % 250, number % 200 + 1);
            let what = if number % 10 == 0 { "address" } else { "route" };
            writeln!(batch, "{what} add {address}/32 dev lo\n{what} del {address}/32 dev lo").unwrap();
        }
        let file = bench.state_folder().join(format!("strangers-{round}"));
        fs::write(&file, batch).unwrap();
        let node = bench.node.namespace();
        node.ip(&["-batch", file.to_str().unwrap()]).unwrap();
        fs::remove_file(file).unwrap();
        node.ip(&["route", "flush", "proto", "112"]).unwrap();
        let has_routes = || !node.ip(&["route", "show", "proto", "112"]).unwrap().is_empty();
        wait_until(has_routes, || format!("round {round}: the route is not put back: {}", agent.log()));
    }

    fn words(&self, first: Need, last: Need) -> String {
        let rounds = self.rounds;
        format!(
            "{} ADDs and DELs, {} strangers' changes, {} store outages; first quarter, last quarter: memory {:.1} MiB, {:.1} MiB; \
             descriptors {}, {}; threads {}, {}",
            rounds * self.adds_and_dels,
            rounds * self.strangers_changes,
            rounds * self.outages,
            first.mib,
            last.mib,
            first.descriptors + first.store_descriptors,
            last.descriptors + last.store_descriptors,
            first.threads,
            last.threads,
        )
    }
}

/// The store's file goes, the agent notices, and it comes back.
fn outage(bench: &Bench, agent: &Agent) {
    let (path, aside) = (bench.lab.store_path(), bench.lab.store_path().with_extension("away"));
    fs::rename(&path, &aside).unwrap();
    wait_until(|| bench.metric("store_away") == 1, || agent.log());
    fs::rename(&aside, &path).unwrap();
    let is_ready = || bench.page("readiness").starts_with("HTTP/1.1 200");
    wait_until(|| bench.metric("store_away") == 0 && is_ready(), || agent.log());
}
