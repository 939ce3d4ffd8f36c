//! A full node whose pods come and go, many at once: no call fails, and in the end nothing is left.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lab::{CniCall, Lab, Pod};
use model::Kind;
use serde_json::json;
use testkit::Dice;

use crate::common::books::Books;
use crate::common::{Bench, DelOutcome as _};
use crate::on_etcd::on_etcd;
use crate::running::{Agent, wait_until};

/// Callers at once.
const CALLERS: usize = 16;

#[test]
fn a_full_node_of_ipv4_pods_churns_and_leaves_nothing() {
    let test = "a_full_node_of_ipv4_pods_churns_and_leaves_nothing";
    let Some(bench) = Bench::new(test) else { return };
    churn(test, &bench, &bench.books(), bench.agent(&[]), false);
}

#[test]
fn a_full_node_of_dual_stack_pods_churns_and_leaves_nothing() {
    let test = "a_full_node_of_dual_stack_pods_churns_and_leaves_nothing";
    let Some(bench) = Bench::new(test) else { return };
    churn(test, &bench, &bench.books(), bench.agent(&[]), true);
}

#[test]
fn a_full_node_of_ipv4_pods_churns_on_etcd() {
    let test = "a_full_node_of_ipv4_pods_churns_on_etcd";
    on_etcd(test, |place| churn(test, place.bench, &place.books, place.agent(), false));
}

#[test]
fn a_full_node_of_dual_stack_pods_churns_on_etcd() {
    let test = "a_full_node_of_dual_stack_pods_churns_on_etcd";
    on_etcd(test, |place| churn(test, place.bench, &place.books, place.agent(), true));
}

fn churn(test: &str, bench: &Bench, books: &Books, agent: Agent, dual_stack: bool) {
    books.put(Kind::IpPool, "pods6", json!({"cidr": "fd00:10:244::/112"}));
    let seed = testkit::seed();
    eprintln!("seed {seed}");
    let slots = (0..testkit::count(40, 110)).map(|_| Mutex::new(None)).collect();
    let node = Churn { bench, books, dual_stack, slots, containers: AtomicUsize::new(0) };
    node.all_at_once(|_, slot, place| *slot = Some(node.add(node.new_pod(place), true)));
    node.assert_matches();

    let calls = AtomicUsize::new(0);
    let wanted = testkit::count(200, 2_000);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let dice = Dice::for_purpose(seed, &format!("{test} {caller}"));
            let (node, calls) = (&node, &calls);
            scope.spawn(move || node.call_until(dice, calls, wanted));
        }
    });
    println!("{} calls, {CALLERS} at once, on {} pods", calls.load(Ordering::Relaxed), node.slots.len());
    node.assert_matches();
    node.all_at_once(|_, slot, _| {
        if let Some(live) = slot.take() {
            node.call("DEL", &live.pod).run(&node.bench.node).unwrap().result_of_del();
        }
    });
    node.assert_matches();
    agent.stop();
}

/// A pod with the addresses that its ADD answered.
struct Live {
    pod: Pod,
    addresses: BTreeSet<IpAddr>,
}

struct Churn<'a> {
    bench: &'a Bench,
    books: &'a Books,
    dual_stack: bool,
    /// One for each pod that the node has room for. All pods of a slot have the same name.
    slots: Vec<Mutex<Option<Live>>>,
    containers: AtomicUsize,
}

impl Churn<'_> {
    fn new_pod(&self, place: usize) -> Pod {
        self.bench.pod("churn", &format!("web-{place}"))
    }

    fn call(&self, verb: &str, pod: &Pod) -> CniCall {
        let families = json!({"assign_ipv4": "true", "assign_ipv6": self.dual_stack.to_string()});
        self.bench.agent_call(verb, pod).with_netconf("ipam", families)
    }

    fn add(&self, pod: Pod, ping: bool) -> Live {
        let outcome = self.call("ADD", &pod).run(&self.bench.node).unwrap();
        let result = outcome.result().unwrap();
        let address = |ip: &serde_json::Value| {
            let text = ip["address"].as_str().unwrap();
            text.split('/').next().unwrap().parse().unwrap()
        };
        let addresses: BTreeSet<IpAddr> = result["ips"].as_array().unwrap().iter().map(address).collect();
        assert_eq!(addresses.len(), if self.dual_stack { 2 } else { 1 }, "{result}");
        assert!(!ping || pod.netns().can_ping(self.bench.node.address()).unwrap(), "{result}");
        Live { pod, addresses }
    }

    /// Acts on every slot, with as many callers as there are.
    fn all_at_once(&self, act: impl Fn(&Self, &mut Option<Live>, usize) + Sync) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    while let Some((place, slot)) = self.take_next(&next) {
                        act(self, &mut slot.lock().unwrap(), place);
                    }
                });
            }
        });
    }

    fn take_next(&self, next: &AtomicUsize) -> Option<(usize, &Mutex<Option<Live>>)> {
        let place = next.fetch_add(1, Ordering::Relaxed);
        Some((place, self.slots.get(place)?))
    }

    /// Pods go and come by chance, until enough calls were made.
    fn call_until(&self, mut dice: Dice, calls: &AtomicUsize, wanted: usize) {
        while calls.load(Ordering::Relaxed) < wanted {
            let place = usize::try_from(dice.roll(self.slots.len() as u64)).unwrap();
            // One that someone else is at is left to them: runtimes never make two calls for one pod's sandbox.
            let Ok(mut slot) = self.slots[place].try_lock() else { continue };
            let made = match slot.take() {
                Some(live) => self.remove(live, &mut slot, &mut dice),
                None => {
                    *slot = Some(self.add(self.new_pod(place), dice.roll(8) == 0));
                    1
                }
            };
            calls.fetch_add(made, Ordering::Relaxed);
        }
    }

    /// In one of the ways in which runtimes do it. How many calls it took.
    fn remove(&self, live: Live, slot: &mut Option<Live>, dice: &mut Dice) -> usize {
        let del = self.call("DEL", &live.pod);
        let run = |call: &CniCall| call.run(&self.bench.node).unwrap().result_of_del();
        match dice.roll(4) {
            0 => run(&del.with("CNI_NETNS", "")),
            1 => {
                run(&del);
                run(&del.with("CNI_NETNS", ""));
                return 2;
            }
            2 => {
                // Another sandbox in the same namespace, under the same interface name, at once.
                run(&del);
                let mut pod = live.pod;
                pod.container_id = format!("c{:063x}", self.containers.fetch_add(1, Ordering::Relaxed));
                *slot = Some(self.add(pod, dice.roll(8) == 0));
                return 2;
            }
            _ => run(&del),
        }
        1
    }

    /// Records and kernel speak of exactly the pods that live.
    fn assert_matches(&self) {
        let slots: Vec<_> = self.slots.iter().map(|slot| slot.lock().unwrap()).collect();
        let files = |folder: &str| {
            let entries = std::fs::read_dir(self.bench.state_folder().join(folder)).into_iter().flatten();
            entries.count()
        };
        // A store that takes long does not keep a DEL waiting; it is finished soon after.
        wait_until(|| files("queue") == 0, || format!("{} DELs are queued", files("queue")));
        let live: Vec<&Live> = slots.iter().filter_map(|slot| slot.as_ref()).collect();
        let expected = live
            .iter()
            .map(|live| (format!("{}.{}", Lab::NETWORK, live.pod.container_id), live.addresses.clone()));
        assert_eq!(self.books.addresses(), expected.collect(), "allocations");
        assert_eq!(self.books.handles().len(), live.len(), "handles");
        assert_eq!(self.books.endpoints().len(), live.len(), "endpoints");
        let routes: BTreeSet<IpAddr> = live.iter().flat_map(|live| live.addresses.clone()).collect();
        assert_eq!(self.routes(), routes, "routes");
        assert_eq!((files("attachments"), files("queue")), (live.len(), 0), "journal and queue");
        // What is out of service is removed behind the calls.
        let links = || self.bench.node.namespace().ip(&["-br", "link"]).unwrap();
        wait_until(|| links().lines().count() == 1 + live.len(), links);
    }

    fn routes(&self) -> BTreeSet<IpAddr> {
        let show = |family: &str| {
            self.bench.node.namespace().ip(&[family, "route", "show", "proto", "112"]).unwrap()
        };
        let first_word = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
        [show("-4"), show("-6")].iter().flat_map(|text| text.lines().map(first_word)).collect()
    }
}
