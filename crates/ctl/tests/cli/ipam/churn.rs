//! Checks and releases while pods come and go, and while programs are killed.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use book::{Addition, Additions, AssignRequest, Book, HandleRequest};
use ipam::Granted;
use model::IpVersion;
use store::{Store, Write};
use testkit::etcd::EtcdCluster;

use super::town::{Town, endpoint, endpoint_key, handle_key, owner};
use crate::harness::{Desk, PLUMB, runtime};

/// How many pods live at once.
const LIVING: usize = 12;

/// Pods that come and go, as Plumbline's own plugin makes them: address and endpoint in one commit.
struct Churn {
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Churn {
    fn start(store: Arc<dyn Store>) -> Churn {
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&made));
        let task = runtime().spawn(async move {
            let (book, mut living) = (Book::new(store), VecDeque::new());
            while !stopped.load(Ordering::Relaxed) {
                let name = format!("pod-{}", count.fetch_add(1, Ordering::Relaxed));
                add(&book, &name).await;
                living.push_back(name);
                if living.len() > LIVING {
                    del(&book, &living.pop_front().unwrap()).await;
                }
            }
            for name in living {
                del(&book, &name).await;
            }
        });
        Churn { stop, made, task }
    }

    /// Ends it, with all its pods gone.
    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        runtime().block_on(self.task).unwrap();
    }
}

async fn add(book: &Book, name: &str) {
    let mut request = AssignRequest::new("node-a", owner("node-a", name), &[IpVersion::V4]);
    let name = name.to_owned();
    request.additions = Additions::new(1, move |granted: &[Granted]| {
        let change = endpoint("node-a", &name, granted[0].address);
        let Write::Put(value) = change.write else { unreachable!("an endpoint is written") };
        Ok(vec![Addition::create(change.key, value)])
    });
    book.assign(request).await.unwrap();
}

async fn del(book: &Book, name: &str) {
    let record = book.store().get(&endpoint_key("node-a", name)).await.unwrap().unwrap();
    let request = HandleRequest::all(format!("net.{name}")).with(vec![Addition::delete(&record)]);
    book.release_handle(request).await.unwrap();
}

fn churn_is_no_drift(town: &Town, checks: usize) {
    let churn = Churn::start(town.desk.open().unwrap());
    let mut done = 0;
    while done < checks || churn.made.load(Ordering::Relaxed) < 3 * LIVING {
        done += 1;
        let ran = town.desk.plumb(&["ipam", "check", "--show-problem-ips", "--settle=0"]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    }
    churn.stop();
    assert_eq!(town.desk.plumb(&["ipam", "check", "--settle=0"]).code, Some(0));
}

/// However the lists fall between the writes.
#[test]
fn pods_that_come_and_go_are_no_drift() {
    churn_is_no_drift(&Town::new(Desk::on_sqlite()), testkit::count(8, 200));
}

#[test]
fn pods_that_come_and_go_are_no_drift_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("pods_that_come_and_go_are_no_drift_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    churn_is_no_drift(&Town::new(Desk::on_etcd(&cluster)), testkit::count(8, 200));
}

/// A real leak among pods that come and go is found, and given back without harm to them.
#[test]
fn a_leak_is_found_and_given_back_while_pods_come_and_go() {
    let town = Town::new(Desk::on_sqlite());
    let churn = Churn::start(town.desk.open().unwrap());
    town.leak("node-a", "web-1");
    let ran = town.desk.plumb(&["ipam", "check", "--show-problem-ips", "--settle=0", "-o", "report.json"]);
    assert!(ran.stdout.ends_with("Check complete; found 1 problems.\n"), "{}", ran.stdout);
    let released = town.desk.plumb(&["ipam", "release", "--from-report=report.json", "--force"]);
    assert!(released.stdout.contains("Released 1 IPs successfully"), "{released:?}");
    churn.stop();
    assert_eq!(town.desk.plumb(&["ipam", "check", "--settle=0"]).code, Some(0));
}

/// A release by report that is killed at any moment is finished by the same command.
#[test]
fn a_killed_release_goes_on() {
    let town = Town::new(Desk::on_sqlite());
    let store = town.desk.open().unwrap();
    let leaks = 40;
    runtime().block_on(async {
        let book = Book::new(Arc::clone(&store));
        for number in 0..leaks {
            let request =
                AssignRequest::new("node-a", owner("node-a", &format!("leak-{number}")), &[IpVersion::V4]);
            book.assign(request).await.unwrap();
        }
    });
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    assert_eq!(town.desk.plumb(&["ipam", "check", "--settle=0", "-o", "report.json"]).code, Some(1));
    let mut releasing = town
        .desk
        .command(PLUMB)
        .args(["ipam", "release", "--from-report=report.json"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // As soon as the first is gone, or it has ended by itself.
    while town.has(&handle_key("net.leak-0")) && releasing.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = releasing.kill();
    releasing.wait().unwrap();
    let ran = town.desk.plumb(&["ipam", "release", "--from-report=report.json"]);
    assert!(ran.succeeded().starts_with("Releasing 40 old IPs...\n"), "{ran:?}");
    assert_eq!(town.desk.plumb(&["ipam", "check", "--settle=0"]).code, Some(0));
}
