//! What happens to packets while things happen. What must lose none, loses none; the rest is printed.

use std::process::Command;

use lab::Pinger;
use lab::cluster::{Mode, Plan, StoreKind, Topology};

use crate::address::printed;
use crate::scene::{Scene, plan};

/// Pods of the first two nodes ping each other, both ways.
pub(crate) fn ping_both_ways(scene: &Scene) -> Vec<(String, Pinger)> {
    let mut pingers = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        for address in &scene.pods[to].addresses {
            let what = format!("pod {from} to pod {to} ({address})");
            pingers.push((what.clone(), Pinger::start(&what, scene.in_pod(from), address).unwrap()));
        }
    }
    pingers
}

/// How many packets each of them lost.
pub(crate) fn losses(pingers: Vec<(String, Pinger)>) -> u64 {
    let mut all = 0;
    for (what, pinger) in pingers {
        let tally = pinger.stop().unwrap();
        println!("{what}: {} answered, {} lost", tally.answered, tally.lost);
        assert!(tally.answered > 20, "{what}");
        all += tally.lost;
    }
    all
}

pub(crate) fn wait_for_more(pingers: &[(String, Pinger)], packets: usize) {
    pingers.iter().for_each(|(_, pinger)| pinger.wait_for_more(packets).unwrap());
}

#[test]
fn agents_that_are_stopped_killed_and_started_lose_no_packet() {
    for mode in [Mode::Direct, Mode::Vxlan] {
        let test = "agents_that_are_stopped_killed_and_started_lose_no_packet";
        let Some(scene) = Scene::new(test, || plan(2, mode, Topology::Shared, true)) else { return };
        scene.assert_all_talk();
        let pingers = ping_both_ways(&scene);
        for _ in 0..testkit::count(1, 5) {
            for node in [scene.node(0), scene.node(1)] {
                scene.lab.stop(node, "agent").unwrap();
                wait_for_more(&pingers, 10);
                scene.lab.start(node, "agent", &[]).unwrap();
                scene.lab.kill(node, "agent").unwrap();
                scene.lab.start(node, "agent", &[]).unwrap();
                wait_for_more(&pingers, 20);
            }
        }
        assert_eq!(losses(pingers), 0, "{mode:?}{}", scene.evidence());
    }
}

#[test]
fn a_store_that_is_away_costs_no_packet() {
    let test = "a_store_that_is_away_costs_no_packet";
    if let Some(reason) = lab::missing_for_cluster(StoreKind::Etcdv3) {
        return testkit::skip(test, &reason);
    }
    let on_etcd = || Plan { store: StoreKind::Etcdv3, ..plan(2, Mode::Vxlan, Topology::Shared, false) };
    let Some(scene) = Scene::new(test, on_etcd) else { return };
    scene.assert_all_talk();
    let routes = scene.routes(0);
    let pingers = ping_both_ways(&scene);
    let etcd = etcd_of(&scene);
    signal(&etcd, "-STOP");
    // 50 packets a second.
    wait_for_more(&pingers, testkit::count(5, 60) * 50);
    assert_eq!(scene.routes(0), routes);
    signal(&etcd, "-CONT");
    wait_for_more(&pingers, 100);
    assert_eq!(losses(pingers), 0, "{}", scene.evidence());
    assert_eq!(scene.routes(0), routes);
}

#[test]
fn another_mode_for_the_pool_is_taken_over_under_traffic() {
    let test = "another_mode_for_the_pool_is_taken_over_under_traffic";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    for (mode, device) in [("Always", "vxlan.calico"), ("Never", "eth0"), ("CrossSubnet", "eth0")] {
        let pingers = ping_both_ways(&scene);
        let patch = format!("{{\"spec\":{{\"vxlanMode\":\"{mode}\"}}}}");
        scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", &patch]).unwrap();
        let leads_there = |from: usize, to: usize| {
            let address = &scene.pods[to].addresses[0];
            let way = scene.lab.run_on(scene.node(from), &["ip", "route", "get", address])?;
            anyhow::ensure!(way.contains(&format!("dev {device} ")), "{way}");
            Ok(())
        };
        for (from, to) in [(0, 1), (1, 0)] {
            lab::wait_for("the routes to follow", || leads_there(from, to)).unwrap();
        }
        wait_for_more(&pingers, 50);
        println!("from {mode} on: {} packets lost", losses(pingers));
    }
    scene.assert_all_talk();
}

#[test]
fn a_pool_that_is_disabled_still_carries_its_pods() {
    let test = "a_pool_that_is_disabled_still_carries_its_pods";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Subnets, false)) else { return };
    scene.assert_all_talk();
    let pingers = ping_both_ways(&scene);
    let disable = "{\"spec\":{\"disabled\":true}}";
    scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", disable]).unwrap();
    wait_for_more(&pingers, 100);
    scene.lab.stop(scene.node(0), "agent").unwrap();
    scene.lab.start(scene.node(0), "agent", &[]).unwrap();
    wait_for_more(&pingers, 50);
    assert_eq!(losses(pingers), 0, "{}", scene.evidence());
}

#[test]
fn strangers_changes_are_put_right() {
    let test = "strangers_changes_are_put_right";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    let state = || {
        // A device that is gone shows nothing.
        let show = |words: &[&str]| scene.lab.run_on(scene.node(0), words).unwrap_or_default();
        let neighbours = show(&["ip", "neigh", "show", "dev", "vxlan.calico"]);
        let addresses = show(&["ip", "-4", "-br", "address", "show", "dev", "vxlan.calico"]);
        (scene.routes(0), neighbours, show(&["bridge", "fdb", "show", "dev", "vxlan.calico"]), addresses)
    };
    let before = state();
    for change in [
        "ip route flush proto 113",
        "ip neigh flush dev vxlan.calico nud permanent",
        "ip link set vxlan.calico down",
        "ip address flush dev vxlan.calico",
        "ip link del vxlan.calico",
        "ip route add 10.99.0.0/24 dev eth0 proto 113",
    ] {
        scene.lab.run_on(scene.node(0), &change.split(' ').collect::<Vec<_>>()).unwrap();
        let is_back = || {
            let now = state();
            anyhow::ensure!(now == before, "{now:?} instead of {before:?}");
            Ok(())
        };
        lab::wait_for(&format!("what {change} broke to be put right"), is_back).unwrap();
    }
    // Each is told under the code that it would have been found under.
    let is_told = || {
        let status = printed(&scene, 0, &["plumb", "node", "status"]);
        for told in
            ["block-route-missing", "tunnel-end-unknown", "route 10.99.0.0/24 on", "device vxlan.calico on"]
        {
            anyhow::ensure!(status.contains(told), "no {told} in {status}");
        }
        Ok(())
    };
    lab::wait_for("the agent to tell what it put right", is_told).unwrap();
    scene.assert_all_talk();
}

fn etcd_of(scene: &Scene) -> String {
    let namespace = format!("plumb-lab.{}.fabric", scene.lab.name());
    let output = Command::new("ip").args(["netns", "pids", &namespace]).output().unwrap();
    let pids = String::from_utf8_lossy(&output.stdout);
    let is_etcd = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "etcd")
    };
    pids.lines().find(is_etcd).expect("the lab's etcd").to_owned()
}

fn signal(process: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}
