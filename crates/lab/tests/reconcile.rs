//! A node's side of its pods against the real kernel: strangers' changes are announced, found and put right, and what
//! is the stranger's own stays.

use std::time::Duration;

use host::{Host, Monitor, PodNamespace};
use lab::{Lab, Node, Pod, Programs};
use model::{DeviceName, Sandbox};
use plan::{
    Affected, Attachment, DifferenceKind, NodeDesired, NodeDifference, NodeFacts, Notice, PodWiring, Watched,
    inside_pod, node_differences,
};
use testkit::PATIENCE;

struct Stage {
    // Before the lab, so that namespaces go before the folder.
    node: Node,
    pods: Vec<(Pod, PodWiring)>,
    lab: Lab,
}

impl Stage {
    fn new(test: &str, pods: usize) -> Option<Stage> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let node = lab.node("node").unwrap();
        node.namespace().ip(&["link", "add", "stranger", "type", "veth", "peer", "name", "peer"]).unwrap();
        node.namespace().ip(&["link", "set", "stranger", "up"]).unwrap();
        node.namespace().ip(&["link", "set", "peer", "up"]).unwrap();
        let mut stage = Stage { node, pods: Vec::new(), lab };
        (0..pods).for_each(|number| stage.add_pod(number));
        stage.mend(&stage.differences());
        Some(stage)
    }

    fn add_pod(&mut self, number: usize) {
        let name = format!("web-{number}");
        let pod = self.lab.pod("default", &name).unwrap();
        let wiring = wiring(&pod, &name, number);
        self.on_node(|host| {
            let mut inside = PodNamespace::open(pod.netns().path()).unwrap();
            host.ensure(&mut inside, &wiring).unwrap();
        });
        self.pods.push((pod, wiring));
    }

    fn desired(&self) -> NodeDesired {
        self.pods.iter().map(|(_, wiring)| wiring.clone()).collect()
    }

    fn on_node<T: Send>(&self, act: impl FnOnce(&mut Host) -> T + Send) -> T {
        self.node.namespace().visit(|| act(&mut Host::here().unwrap())).unwrap()
    }

    fn differences(&self) -> Vec<NodeDifference> {
        let observed = self.on_node(|host| host.observe_node().unwrap());
        node_differences(&self.desired(), &observed)
    }

    fn mend(&self, differences: &[NodeDifference]) {
        let unmended = self.on_node(|host| host.mend(differences).unwrap());
        assert!(unmended.is_empty(), "{unmended:?}");
    }

    /// Runs `ip` or, for a word with slashes, writes a setting.
    fn change(&self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            [path, value] if path.starts_with("net/") => {
                let write = || std::fs::write(format!("/proc/sys/{path}"), value).unwrap();
                self.node.namespace().visit(write).unwrap();
            }
            _ => drop(self.node.namespace().ip(&words).unwrap()),
        }
    }

    fn everybody_can_be_reached(&self) -> bool {
        let addresses = |wiring: &PodWiring| wiring.pod.addresses.clone();
        let mut all = self.pods.iter().flat_map(|(_, wiring)| addresses(wiring));
        all.all(|address| self.node.namespace().can_ping(&address.addr().to_string()).unwrap())
    }

    /// Listens while `act` runs, and until a notice of pod number 0 has come. Says which notices there were.
    fn listen(&self, act: impl FnOnce() + Send) -> Vec<Notice> {
        let (desired, first) = (self.desired(), &self.pods[0].1.sandbox);
        let mut watched = Watched::new(&desired);
        for link in self.on_node(|host| host.owned_links().unwrap()) {
            watched.learn(link.index, &link.owner);
        }
        let mut heard = Vec::new();
        let listen = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut monitor = Monitor::open().unwrap();
                act();
                let mut is_announced = false;
                while !is_announced {
                    let next = monitor.next(|notice| {
                        is_announced |= watched.affected(&notice) == Affected::Pod(first.clone());
                        heard.push(notice);
                    });
                    tokio::time::timeout(PATIENCE, next).await.expect("an announcement").unwrap();
                }
            });
        };
        self.node.namespace().visit(listen).unwrap();
        heard
    }
}

fn wiring(pod: &Pod, name: &str, number: usize) -> PodWiring {
    let sandbox = Sandbox::new(Lab::NETWORK, &pod.container_id, "eth0").unwrap();
    let attachment = Attachment {
        device: DeviceName::of_pod("cali", "default", name).unwrap(),
        mac: sandbox.mac(),
        sandbox,
        mtu: 1450,
        addresses: vec![
            format!("10.244.{}.{}", number / 250, number % 250 + 1).parse().unwrap(),
            format!("fd00:10::{:x}", number + 1).parse().unwrap(),
        ],
        pod_forwards: false,
        pod_routes: Vec::new(),
    };
    PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: true }).unwrap()
}

#[test]
fn each_change_by_a_stranger_is_announced_found_and_put_right() {
    let Some(stage) = Stage::new("each_change_by_a_stranger_is_announced_found_and_put_right", 2) else {
        return;
    };
    assert_eq!(stage.differences(), []);
    let device = stage.pods[0].1.host.device.clone();
    for change in [
        format!("route del 10.244.0.1 dev {device}"),
        format!("route del fd00:10::1 dev {device}"),
        "route flush root 10.244.0.0/16".to_owned(),
        format!("neigh del 10.244.0.1 dev {device}"),
        format!("neigh replace fd00:10::1 lladdr 02:00:00:00:00:09 dev {device} nud permanent"),
        format!("neigh replace 10.244.0.1 lladdr 02:00:00:00:00:09 dev {device} nud reachable"),
        format!("addr flush dev {device}"),
        format!("link set {device} down"),
        format!("link set {device} mtu 1300"),
        format!("link set {device} address 02:00:00:00:00:09"),
        format!("link set {device} name renamed"),
        format!("net/ipv4/conf/{device}/proxy_arp 0"),
        format!("net/ipv4/conf/{device}/forwarding 0"),
        format!("net/ipv4/conf/{device}/rp_filter 2"),
        format!("net/ipv6/conf/{device}/proxy_ndp 0"),
        format!("net/ipv6/conf/{device}/forwarding 0"),
        format!("net/ipv6/conf/{device}/disable_ipv6 1"),
        "net/ipv4/ip_forward 0".to_owned(),
    ] {
        stage.listen(|| stage.change(&change));
        let first = &stage.pods[0].1;
        let found = stage.on_node(|host| host.check_host_end(first, None).unwrap());
        assert_ne!(found, [], "{change}");
        stage.mend(&found);
        let left = stage.on_node(|host| host.check_host_end(first, None).unwrap());
        assert!(left.iter().all(is_starting), "{change}: {left:?}");
        // The other pod may have been hit as well.
        stage.mend(&stage.differences());
        settle(&stage);
        assert!(stage.everybody_can_be_reached(), "{change}");
    }
}

fn is_starting(found: &NodeDifference) -> bool {
    let NodeDifference::OfPod { difference, .. } = found else { return false };
    matches!(difference.kind, DifferenceKind::NotRunning | DifferenceKind::AddressMissing { .. })
}

/// Waits until the kernel has done in the background what it was asked for.
fn settle(stage: &Stage) {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let mut left = stage.differences();
        // A closer look, which also sees whether addresses are in use yet.
        for (_, wiring) in &stage.pods {
            left.extend(stage.on_node(|host| host.check_host_end(wiring, None).unwrap()));
        }
        if left.is_empty() {
            return;
        }
        assert!(left.iter().all(is_starting) && std::time::Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_changes_in_silence_is_found_by_looking() {
    let Some(stage) = Stage::new("what_changes_in_silence_is_found_by_looking", 2) else { return };
    let device = stage.pods[1].1.host.device.clone();
    for change in [
        format!("net/ipv4/conf/{device}/route_localnet 0"),
        format!("net/ipv4/neigh/{device}/proxy_delay 80"),
        format!("net/ipv6/conf/{device}/accept_ra 2"),
        format!("net/ipv6/conf/{device}/accept_dad 1"),
    ] {
        stage.change(&change);
        let found = stage.differences();
        assert_eq!(found.len(), 1, "{change}: {found:?}");
        let one = stage.on_node(|host| host.check_host_end(&stage.pods[1].1, None).unwrap());
        assert_eq!(one, found);
        stage.mend(&found);
        assert_eq!(stage.differences(), [], "{change}");
    }
}

#[test]
fn a_whole_node_is_put_right_and_strangers_keep_what_is_theirs() {
    let test = "a_whole_node_is_put_right_and_strangers_keep_what_is_theirs";
    let pods = testkit::count(12, 110);
    let Some(stage) = Stage::new(test, pods) else { return };
    for command in [
        "route add 198.51.100.0/24 dev stranger",
        "route add 10.244.0.200 dev stranger proto static",
        "route add fd00:20::/64 dev stranger",
        "neigh add 198.51.100.7 lladdr 02:00:00:00:00:07 dev stranger nud permanent",
    ] {
        stage.change(command);
    }
    let theirs = || {
        let ip = |words: &[&str]| stage.node.namespace().ip(words).unwrap();
        let routes =
            ip(&["route", "show", "dev", "stranger"]) + &ip(&["-6", "route", "show", "dev", "stranger"]);
        (routes, ip(&["neigh", "show", "dev", "stranger"]), ip(&["link", "show", "dev", "stranger"]))
    };
    let before = theirs();
    for (number, (_, wiring)) in stage.pods.iter().enumerate() {
        let device = &wiring.host.device;
        match number % 6 {
            0 => stage.change(&format!("link set {device} down")),
            1 => stage.change(&format!("link set {device} name renamed{number}")),
            2 => stage.change(&format!("route flush dev {device}")),
            3 => stage.change(&format!("neigh flush dev {device} nud permanent")),
            4 => stage.change(&format!("net/ipv4/conf/{device}/forwarding 0")),
            _ => {}
        }
    }
    // Ours, and asked for by nobody.
    stage.change("route add 10.99.0.0/24 dev stranger proto 112");
    stage.change("route add 10.98.0.0/24 dev stranger proto 112 metric 7");
    let found = stage.differences();
    assert!(found.len() > pods, "{found:?}");
    stage.mend(&found);
    settle(&stage);
    assert_eq!(theirs(), before);
    assert!(stage.everybody_can_be_reached());
}

#[test]
fn ours_is_put_in_front_of_a_strangers_route_which_stays() {
    let Some(stage) = Stage::new("ours_is_put_in_front_of_a_strangers_route_which_stays", 1) else { return };
    let device = stage.pods[0].1.host.device.to_string();
    let first_of = |address: &str| {
        let family = if address.contains(':') { "-6" } else { "-4" };
        let routes = stage.node.namespace().ip(&[family, "route", "show", address]).unwrap();
        (routes.lines().next().unwrap_or_default().contains(&device), routes.contains("stranger"))
    };
    for (address, change) in [
        ("10.244.0.1", "route replace 10.244.0.1 dev stranger proto static"),
        ("10.244.0.1", "route prepend 10.244.0.1 dev stranger proto static"),
        ("fd00:10::1", "route replace fd00:10::1 dev stranger proto static"),
        ("fd00:10::1", "route add fd00:10::1 dev stranger proto static metric 100"),
    ] {
        let heard = stage.listen(|| stage.change(change));
        assert!(heard.iter().all(|notice| *notice != Notice::Overrun));
        let expected = format!("node: a route to {address}");
        let one = stage.on_node(|host| host.check_host_end(&stage.pods[0].1, None).unwrap());
        for found in [stage.differences(), one] {
            assert_eq!(found.len(), 1, "{change}: {found:?}");
            assert!(found[0].to_string().starts_with(&expected), "{change}: {found:?}");
        }
        stage.mend(&stage.differences());
        assert_eq!(stage.differences(), [], "{change}");
        assert!(stage.everybody_can_be_reached(), "{change}");
        assert_eq!(first_of(address), (true, true), "{change}");
        stage.change(&format!("route del {address} dev stranger"));
        assert_eq!(stage.differences(), [], "{change}");
    }
    // Also one that leads nowhere.
    stage.change("route replace blackhole 10.244.0.1");
    stage.mend(&stage.differences());
    assert_eq!(stage.differences(), []);
    assert!(stage.everybody_can_be_reached());
    assert!(stage.node.namespace().ip(&["route"]).unwrap().contains("blackhole 10.244.0.1"));
}

#[test]
fn the_node_forwards_as_long_as_it_has_pods() {
    let Some(stage) = Stage::new("the_node_forwards_as_long_as_it_has_pods", 1) else { return };
    assert_eq!(stage.differences(), []);
    for change in ["net/ipv4/ip_forward 0", "net/ipv6/conf/all/forwarding 0"] {
        let heard = stage.listen(|| stage.change(change));
        assert!(heard.contains(&Notice::NodeSetting), "{change}: {heard:?}");
        let found = stage.differences();
        assert!(matches!(&found[0], NodeDifference::Setting { .. }), "{change}: {found:?}");
        stage.mend(&found);
        assert_eq!(stage.differences(), [], "{change}");
    }
}

#[test]
fn what_is_not_ours_concerns_nobody_and_too_much_of_it_is_said() {
    let test = "what_is_not_ours_concerns_nobody_and_too_much_of_it_is_said";
    let Some(stage) = Stage::new(test, 1) else { return };
    let mut watched = Watched::new(&stage.desired());
    let batch = |verb: &str, count: usize| {
        let line = |number: usize| {
            format!(
                "route {verb} 172.{}.{}.{} dev stranger\n",
                16 + number / 65536,
                number / 256 % 256,
                number % 256
            )
        };
        let file = stage.lab.folder().join(format!("{verb}.batch"));
        std::fs::write(&file, (0..count).map(line).collect::<String>()).unwrap();
        stage.node.namespace().ip(&["-batch", file.to_str().unwrap()]).unwrap();
    };
    let routes = testkit::count(1000, 5000);
    let listen = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut monitor = Monitor::open().unwrap();
            batch("add", routes);
            let mut heard = 0;
            while heard < routes {
                let next = monitor.next(|notice| {
                    assert_eq!(watched.affected(&notice), Affected::Nobody, "{notice:?}");
                    heard += usize::from(matches!(notice, Notice::Route { .. }));
                });
                tokio::time::timeout(PATIENCE, next).await.expect("an announcement").unwrap();
            }
            // Nobody listens for a while.
            batch("replace", 40_000);
            let mut is_overrun = false;
            while !is_overrun {
                let next = monitor.next(|notice| is_overrun |= watched.affected(&notice) == Affected::Node);
                tokio::time::timeout(PATIENCE, next).await.expect("an announcement").unwrap();
            }
        });
    };
    stage.node.namespace().visit(listen).unwrap();
    assert_eq!(stage.differences(), []);
}

#[test]
fn many_detached_links_are_swept_together() {
    let Some(stage) = Stage::new("many_detached_links_are_swept_together", 2) else { return };
    let links = testkit::count(40, 200);
    let (pod, wiring) = &stage.pods[0];
    stage.on_node(|host| {
        let mut inside = PodNamespace::open(pod.netns().path()).unwrap();
        for _ in 0..links {
            let detached =
                host.detach(&wiring.sandbox, Some(&wiring.host.device), Some(&mut inside)).unwrap();
            assert_eq!(detached.links.len(), 1);
            host.ensure(&mut inside, wiring).unwrap();
        }
    });
    assert_eq!(stage.on_node(|host| host.detached_links().unwrap()).len(), links);
    let waiting = stage.differences();
    assert_eq!(waiting.len(), links);
    assert!(waiting.iter().all(|found| matches!(found, NodeDifference::Detached { .. })), "{waiting:?}");
    stage.mend(&waiting);
    assert_eq!(stage.on_node(|host| host.sweep().unwrap()).links.len(), links);
    assert_eq!(stage.differences(), []);
    assert!(stage.everybody_can_be_reached());
}

#[test]
fn inside_a_pod_only_what_is_lost_is_put_back() {
    let Some(stage) = Stage::new("inside_a_pod_only_what_is_lost_is_put_back", 1) else { return };
    let (pod, wiring) = &stage.pods[0];
    let look = || {
        stage.on_node(|host| {
            let mut inside = PodNamespace::open(pod.netns().path()).unwrap();
            let found = inside_pod(wiring, &host.observe(&mut inside, wiring).unwrap());
            host.apply(&mut inside, wiring, &found.restore).unwrap();
            found
        })
    };
    let change = |command: &str| pod.netns().ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
    for lost in ["route del default", "-6 route del default", "neigh flush dev eth0 nud permanent"] {
        change(lost);
        let found = look();
        assert!(!found.restore.is_empty() && found.report.is_empty(), "{lost}: {found:?}");
        assert!(look().restore.is_empty(), "{lost}");
        assert!(stage.everybody_can_be_reached(), "{lost}");
    }
    change("addr flush dev eth0 scope global");
    assert!(!look().restore.is_empty());
    // The kernel takes an address into use a little later.
    let deadline = std::time::Instant::now() + PATIENCE;
    while !look().restore.is_empty() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(stage.everybody_can_be_reached());
    for own in ["route replace default dev lo", "link set eth0 mtu 1280"] {
        change(own);
        let found = look();
        assert!(found.restore.is_empty() && !found.report.is_empty(), "{own}: {found:?}");
    }
    let routes = pod.netns().ip(&["route"]).unwrap();
    assert!(routes.contains("default dev lo"), "{routes}");
}
