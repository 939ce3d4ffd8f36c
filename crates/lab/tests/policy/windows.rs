//! What policy denies stays denied whatever happens to agents, records and rules, and what it allows is not lost.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::Pinger;
use serde_json::json;
use testkit::process::wait_until;

use crate::calico::{manifest, on_sqlite};
use crate::town::Town;

const PORT: u16 = 4000;
/// Between two attempts.
const TURN: Duration = Duration::from_millis(3);

/// Tries again and again what is denied. Nothing answers, so no attempt makes a connection of which the next one would be a part.
struct Attempts {
    made: Arc<AtomicUsize>,
    arrived: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attempts {
    fn start(town: &Town, from: &str, to: &'static str) -> Attempts {
        let there = (town.addresses(to)[0], PORT);
        let client = town.inside(from, || UdpSocket::bind("0.0.0.0:0").unwrap());
        let server = town.inside(to, || UdpSocket::bind(("0.0.0.0", PORT)).unwrap());
        server.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (made, arrived) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let sending = {
            let (made, is_over) = (made.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = client.send_to(b"?", there);
                    made.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(TURN);
                }
            })
        };
        let hearing = {
            let (arrived, is_over) = (arrived.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if server.recv_from(&mut [0; 8]).is_ok() {
                        arrived.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        Attempts { made, arrived, is_over, threads: vec![sending, hearing] }
    }

    fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Relaxed)
    }

    fn wait_for_more(&self, count: usize) {
        let enough = self.made.load(Ordering::Relaxed) + count;
        wait_until("more attempts", || self.made.load(Ordering::Relaxed) >= enough).unwrap();
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn shut_town(test: &str) -> Option<(Town, Vec<Attempts>)> {
    let town = Town::new(test, on_sqlite)?;
    let spec = json!({"selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"]});
    town.scene.apply(&manifest("GlobalNetworkPolicy", "shut", spec));
    town.assert_open("nothing gets into the shop", |way| !way.to.starts_with("shop/"));
    let attempts = ["shop/b", "shop/c"].map(|to| Attempts::start(&town, "web/a", to));
    Some((town, attempts.into()))
}

#[test]
fn agents_that_come_and_go_open_nothing_and_lose_nothing() {
    let test = "agents_that_come_and_go_open_nothing_and_lose_nothing";
    let Some((town, attempts)) = shut_town(test) else { return };
    let scene = &town.scene;
    let allowed = town.pod("web/a").addresses[0].clone();
    let pinger = Pinger::start("what is allowed", scene.in_pod(1), &allowed).unwrap();
    for round in 0..testkit::count(1, 5) {
        for node in [scene.node(0), scene.node(1)] {
            scene.lab.kill(node, "agent").unwrap();
            attempts.iter().for_each(|attempts| attempts.wait_for_more(50));
            scene.lab.start(node, "agent", &[]).unwrap();
            scene.lab.stop(node, "agent").unwrap();
            scene.lab.start(node, "agent", &[]).unwrap();
            attempts.iter().for_each(|attempts| attempts.wait_for_more(100));
        }
        // The denying policy itself is written again each time.
        for order in 0..20 {
            let spec = json!({"selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"],
                "order": f64::from(order), "ingress": [{"action": "Allow", "source": {"nets": [format!("192.0.2.{}/32", round + 1)]}}]});
            scene.apply(&manifest("GlobalNetworkPolicy", "shut", spec));
        }
        attempts.iter().for_each(|attempts| attempts.wait_for_more(100));
    }
    pinger.wait_for_more(20).unwrap();
    let tally = pinger.stop().unwrap();
    let arrived: Vec<usize> = attempts.iter().map(Attempts::arrived).collect();
    assert_eq!((arrived, tally.lost), (vec![0, 0], 0), "{}", town.evidence());
}

/// The rules change, and the agent dies just before or just after.
#[test]
fn agents_that_die_while_rules_change_open_nothing() {
    let test = "agents_that_die_while_rules_change_open_nothing";
    let Some((town, attempts)) = shut_town(test) else { return };
    let scene = &town.scene;
    let node = scene.node(0);
    let deaths = |point: &str| {
        let words = format!("failpoint {point} reached");
        scene.lab.log_tail(node, "agent", usize::MAX).matches(&words).count()
    };
    for (round, point) in ["policy.before-rules", "policy.after-rules"].into_iter().enumerate() {
        scene.lab.kill(node, "agent").unwrap();
        let spec = json!({"selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"],
            "ingress": [{"action": "Allow", "source": {"nets": [format!("192.0.2.{}/32", round + 1)]}}]});
        scene.apply(&manifest("GlobalNetworkPolicy", "shut", spec));
        scene.lab.launch(node, "agent", &[("PLUMB_FAILPOINT", point)]).unwrap();
        wait_until("the agent to die there", || deaths(point) > 0).unwrap();
        scene.lab.kill(node, "agent").unwrap();
        attempts[0].wait_for_more(50);
        scene.lab.start(node, "agent", &[]).unwrap();
        wait_until("the rules are changed", || {
            let rules =
                scene.lab.run_on(node, &["nft", "list", "table", "inet", "plumb-policy"]).unwrap_or_default();
            rules.contains(&format!("192.0.2.{}", round + 1))
        })
        .unwrap();
        attempts[0].wait_for_more(50);
    }
    assert_eq!(attempts[0].arrived(), 0, "{}", town.evidence());
}

#[test]
fn what_another_program_flushes_is_restored_at_once() {
    let test = "what_another_program_flushes_is_restored_at_once";
    let Some((town, attempts)) = shut_town(test) else { return };
    let scene = &town.scene;
    let node = scene.node(1);
    let rules =
        || scene.lab.run_on(node, &["nft", "list", "table", "inet", "plumb-policy"]).unwrap_or_default();
    let before = without_counts(&rules());
    attempts[1].wait_for_more(50);
    assert_eq!(attempts[1].arrived(), 0);
    for words in [
        &["nft", "flush", "ruleset"][..],
        &["nft", "flush", "chain", "inet", "plumb-policy", "forward"],
        &["nft", "delete", "table", "inet", "plumb-policy"],
        &["nft", "insert", "rule", "inet", "plumb-policy", "forward", "accept"],
        &["nft", "add", "chain", "inet", "plumb-policy", "more", "{ type nat hook output priority 0; }"],
    ] {
        let (begun, arrived) = (Instant::now(), attempts[1].arrived());
        scene.lab.run_on(node, words).unwrap();
        wait_until("the rules are restored", || without_counts(&rules()) == before).unwrap();
        println!(
            "{words:?}: seen restored after {:?}, {} packets passed",
            begun.elapsed(),
            attempts[1].arrived() - arrived
        );
        let arrived = attempts[1].arrived();
        attempts[1].wait_for_more(100);
        assert_eq!(attempts[1].arrived(), arrived, "{}", town.evidence());
    }
    assert_eq!(attempts[0].arrived(), 0, "the other node's rules were not touched");
}

/// Numbers of packets change all the time, and chains are listed in the order in which they were made.
fn without_counts(rules: &str) -> Vec<String> {
    let lines = rules.lines().filter(|line| !line.trim_start().starts_with("packets "));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}
