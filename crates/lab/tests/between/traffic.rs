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
    if let Some(reason) = lab::missing_for_cluster(StoreKind::Etcdv3, None) {
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
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, true)) else { return };
    scene.assert_all_talk();
    let modes = [("Always", "vxlan"), ("Never", "eth0"), ("Always", "vxlan"), ("CrossSubnet", "eth0")];
    for (mode, device) in modes.into_iter().cycle().take(modes.len() * testkit::count(1, 10)) {
        let pingers = ping_both_ways(&scene);
        set_mode(&scene, mode);
        wait_for_ways(&scene, device);
        wait_for_more(&pingers, 50);
        assert_eq!(losses(pingers), 0, "from {mode} on{}", scene.evidence());
    }
    scene.assert_all_talk();
}

fn set_mode(scene: &Scene, mode: &str) {
    let patch = format!("{{\"spec\":{{\"vxlanMode\":\"{mode}\"}}}}");
    for pool in ["default-ipv4-ippool", "default-ipv6-ippool"] {
        // A lab with IPv4 alone has no other.
        let _ = scene.lab.plumb(&["patch", "ippool", pool, "-p", &patch]);
    }
}

/// Until packets between the first two pods leave by such a device, both ways.
fn wait_for_ways(scene: &Scene, device: &str) {
    for (from, to) in [(0, 1), (1, 0)] {
        for address in &scene.pods[to].addresses {
            lab::wait_for("the routes to follow", || {
                let way = scene.lab.run_on(scene.node(from), &["ip", "route", "get", address])?;
                anyhow::ensure!(way.contains(&format!("dev {device}")), "{way}");
                Ok(())
            })
            .unwrap();
        }
    }
}

/// Who reads a node's tunnel address in its record sends there at once: the device is there before.
#[test]
fn the_tunnels_device_is_there_before_anybody_hears_of_it() {
    let test = "the_tunnels_device_is_there_before_anybody_hears_of_it";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    // Nobody can make a device of that name.
    let taken = "ip link add vxlan.calico type veth peer name stranger0";
    scene.lab.run_on(scene.node(1), &taken.split(' ').collect::<Vec<_>>()).unwrap();
    let pingers = ping_both_ways(&scene);
    set_mode(&scene, "Always");
    let tunnel = |index: usize| {
        let field = "jsonpath={.spec.ipv4VXLANTunnelAddr}";
        scene.lab.plumb(&["get", "node", scene.node(index), "-o", field]).unwrap().trim().to_owned()
    };
    lab::wait_for("the first node's tunnel", || {
        anyhow::ensure!(!tunnel(0).is_empty(), "no address yet");
        Ok(())
    })
    .unwrap();
    let readiness = || printed(&scene, 1, &["curl", "-s", "127.0.0.1:9099/readiness"]);
    lab::wait_for("the second node to say what it lacks", || {
        anyhow::ensure!(readiness().contains("vxlan.calico"), "{}", readiness());
        Ok(())
    })
    .unwrap();
    wait_for_more(&pingers, 50);
    assert_eq!(tunnel(1), "", "nobody can send through a tunnel that is not there");
    scene.lab.run_on(scene.node(1), &["ip", "link", "del", "vxlan.calico"]).unwrap();
    wait_for_ways(&scene, "vxlan");
    wait_for_more(&pingers, 50);
    assert_eq!(losses(pingers), 0, "{}", scene.evidence());
}

#[test]
fn pods_made_after_a_change_of_mode_fit_through_the_tunnel_and_older_ones_are_named() {
    let test = "pods_made_after_a_change_of_mode_fit_through_the_tunnel_and_older_ones_are_named";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    let mtu = |pod: &lab::kubelet::PodReport| {
        let mut cat = scene.lab.command_in(scene.node(0), &pod.netns).unwrap();
        let output = cat.args(["ip", "-o", "link", "show", "eth0"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().skip_while(|word| *word != "mtu").nth(1).unwrap_or_default().to_owned()
    };
    // Labs say an MTU; without one the plugin asks what the agent has noted.
    let forget = "sed -i 's/\"mtu\": *[0-9]*/\"mtu\": 0/' /etc/cni/net.d/*; cat /etc/cni/net.d/*";
    let conflist = scene.lab.run_on(scene.node(0), &["sh", "-c", forget]).unwrap();
    assert!(conflist.contains("\"mtu\": 0"), "{conflist}");
    let early = crate::scene::add(&scene.lab, scene.node(0), "early");
    assert_eq!(mtu(&early), "1500");
    set_mode(&scene, "Always");
    wait_for_ways(&scene, "vxlan");
    for number in 0..6 {
        let pod = crate::scene::add(&scene.lab, scene.node(0), &format!("late-{number}"));
        // Less what VXLAN takes, of IPv4 or of IPv6, whose pool has the same mode.
        assert!(["1450", "1430"].contains(&mtu(&pod).as_str()), "late-{number} has {}", mtu(&pod));
    }
    assert_eq!(mtu(&early), "1500", "who is there keeps what it has");
    let report = printed(&scene, 0, &["plumb", "doctor", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let is_it = |finding: &&serde_json::Value| finding["code"] == "mtu-too-large";
    let found =
        report["findings"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{report:#}"));
    let words = found.to_string();
    assert!(words.contains("early") && !words.contains("late-"), "{found:#}");
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
