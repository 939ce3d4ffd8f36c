//! Three members, one of which is killed and started again all the time, under load.
//!
//! Writers change records and remember what they were told; watchers remember what they saw. In the end both are
//! held against the history that etcd itself shows when it is read revision by revision.

mod truth;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use model::{Key, KeyRange};
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Event, Revision, Store, StoreError};
use testkit::Dice;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use self::truth::{Seen, Truth};
use self::writer::{Attempt, Writer};
use crate::gateway::Gateway;
use crate::next;

const WRITERS: usize = 4;
const WATCHERS: usize = 3;
/// How many commits must get through before the next blow, and again before the member comes back.
const COMMITS_BETWEEN: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_nothing_invented_while_members_die() {
    let test = "nothing_is_lost_and_nothing_invented_while_members_die";
    let Some(mut cluster) = start_or_skip(test, Setup::members(3)) else { return };
    let seed = testkit::seed();
    eprintln!("seed {seed}");
    let start = connect_at(&cluster, 0).await.list_all(KeyRange::Handles).await.unwrap().1;
    let watchers: Vec<JoinHandle<Vec<Seen>>> = {
        let mut watchers = Vec::new();
        for index in 0..WATCHERS {
            let store = connect_at(&cluster, index).await;
            watchers.push(tokio::spawn(watch(store, start.clone())));
        }
        watchers
    };
    let load = Load::start(&cluster, seed).await;

    let mut dice = Dice::for_purpose(seed, "victims");
    for round in 0..testkit::count(6, 40) {
        load.wait_for_commits(COMMITS_BETWEEN).await;
        let victim = match round % 2 {
            0 => cluster.leader().unwrap(),
            _ => dice.roll(3) as usize,
        };
        cluster.kill(victim);
        load.wait_for_commits(COMMITS_BETWEEN).await;
        cluster.restart(victim).unwrap();
        cluster.wait_healthy().unwrap();
    }
    let attempts = load.stop().await;

    let last = connect_at(&cluster, 1).await.create(end_marker(), b"{}".to_vec()).await.unwrap();
    let truth = Truth::read(&cluster, &start, &last);
    truth.check_that_no_update_was_lost();
    truth.check_attempts(&attempts);
    for watcher in watchers {
        let seen = timeout(testkit::PATIENCE, watcher).await.expect("the watcher sees the end").unwrap();
        truth.check_seen(seen);
    }
    summarise(&attempts);
}

/// Reads and watches go on by themselves when the only member comes back.
#[tokio::test]
async fn a_lone_member_may_restart() {
    let Some(mut cluster) = start_or_skip("a_lone_member_may_restart", Setup::members(1)) else { return };
    let store = connect_at(&cluster, 0).await;
    let mut revision = store.create(end_marker(), b"0".to_vec()).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, revision.clone()).await.unwrap();
    for round in 1..=testkit::count(3, 20) {
        cluster.kill(0);
        cluster.restart(0).unwrap();
        assert_eq!(store.get(&end_marker()).await.unwrap().unwrap().revision, revision);
        let value = round.to_string().into_bytes();
        revision = store.update(end_marker(), value.clone(), revision).await.unwrap();
        let event = next(&mut watch).await.unwrap();
        assert!(matches!(event, Event::Put(record) if record.value == value && record.revision == revision));
    }
}

/// A member cut off from the others could show old news for ever. It must be left as soon as it knows no leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_leader_is_not_believed() {
    let test = "a_member_without_a_leader_is_not_believed";
    let Some(mut cluster) = start_or_skip(test, Setup::members(3)) else { return };
    let config =
        EtcdConfig { request_timeout: Duration::from_secs(3), ..EtcdConfig::new([cluster.endpoint(0)]) };
    let store: Arc<dyn Store> = Arc::new(EtcdStore::connect(config).await.unwrap());
    let revision = store.create(end_marker(), b"0".to_vec()).await.unwrap();
    let mut watch = store.watch(KeyRange::Handles, revision.clone()).await.unwrap();
    let mut member = Gateway::connect(cluster.client_port(0));
    let mut wait_for_streams = |count: &str| {
        let metric = "etcd_debugging_mvcc_watch_stream_total";
        testkit::process::wait_until("the watch", || member.metric(metric) == count).unwrap();
    };
    wait_for_streams("1");

    cluster.kill(1);
    cluster.kill(2);
    wait_for_streams("0");
    for error in [
        store.get(&end_marker()).await.unwrap_err(),
        store.update(end_marker(), b"1".to_vec(), revision.clone()).await.unwrap_err(),
    ] {
        let StoreError::Unreachable { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.to_string(), "it knows no leader");
    }

    cluster.restart(1).unwrap();
    cluster.restart(2).unwrap();
    cluster.wait_healthy().unwrap();
    let revision = store.update(end_marker(), b"2".to_vec(), revision).await.unwrap();
    let event = next(&mut watch).await.unwrap();
    assert_eq!(event.revision(), Some(&revision));
}

async fn connect_at(cluster: &EtcdCluster, first: usize) -> Arc<dyn Store> {
    let mut endpoints = cluster.endpoints();
    endpoints.rotate_left(first % cluster.len());
    Arc::new(EtcdStore::connect(EtcdConfig::new(endpoints)).await.expect("etcd is there"))
}

/// The last thing written: whoever has seen it has seen everything.
fn end_marker() -> Key {
    Key::Handle("~end".into())
}

async fn watch(store: Arc<dyn Store>, after: Revision) -> Vec<Seen> {
    let mut watch = store.watch(KeyRange::Handles, after).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let event = watch.next().await.expect("a watch goes on").expect("a watch does not fail");
        let is_end = matches!(&event, Event::Put(record) if record.key == end_marker());
        seen.push(Seen::from(event));
        if is_end {
            return seen;
        }
    }
}

/// The writers at work.
struct Load {
    writers: Vec<JoinHandle<Vec<Attempt>>>,
    commits: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Load {
    async fn start(cluster: &EtcdCluster, seed: u64) -> Load {
        let (commits, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let mut writers = Vec::new();
        for index in 0..WRITERS {
            let writer = Writer::new(connect_at(cluster, index).await, index, seed);
            writers.push(tokio::spawn(writer.run(Arc::clone(&commits), Arc::clone(&stop))));
        }
        Load { writers, commits, stop }
    }

    async fn wait_for_commits(&self, more: usize) {
        let goal = self.commits.load(Ordering::Relaxed) + more;
        let waiting = async {
            while self.commits.load(Ordering::Relaxed) < goal {
                assert!(!self.writers.iter().any(JoinHandle::is_finished), "a writer ended early");
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(testkit::PATIENCE, waiting).await.expect("commits get through with two of three members");
    }

    async fn stop(self) -> Vec<Attempt> {
        self.stop.store(true, Ordering::Relaxed);
        let mut attempts = Vec::new();
        for writer in self.writers {
            attempts.extend(
                timeout(testkit::PATIENCE, writer).await.expect("writers end").expect("writers are well"),
            );
        }
        attempts
    }
}

fn summarise(attempts: &[Attempt]) {
    let count = |wanted: fn(&writer::Outcome) -> bool| {
        attempts.iter().filter(|attempt| wanted(&attempt.outcome)).count()
    };
    let committed = count(|outcome| matches!(outcome, writer::Outcome::Committed(_)));
    let uncertain = count(|outcome| matches!(outcome, writer::Outcome::Uncertain));
    let not_done = count(|outcome| matches!(outcome, writer::Outcome::NotDone));
    eprintln!("{committed} commits, {not_done} refused or not sent, {uncertain} uncertain");
}
