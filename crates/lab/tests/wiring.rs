//! The host crate against the real kernel: wiring made, read back, broken, mended, removed.

use host::{Ahead, Host, HostError, PodNamespace};
use lab::{Lab, Node, Pod, Programs};
use model::{DeviceName, Sandbox};
use plan::{Attachment, Difference, DifferenceKind, NodeFacts, PodWiring};

const NODE_V6: &str = "fd00:99::1";

struct Bench {
    // Before the lab, so that namespaces go before the folder.
    node: Node,
    pod: Pod,
    wiring: PodWiring,
    _lab: Lab,
}

impl Bench {
    fn new(test: &str) -> Option<Bench> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let (node, pod) = (lab.node("node").unwrap(), lab.pod("default", "web-0").unwrap());
        let sandbox = Sandbox::new(Lab::NETWORK, &pod.container_id, "eth0").unwrap();
        let wiring = wiring(&sandbox, &["10.244.0.5"]);
        Some(Bench { node, pod, wiring, _lab: lab })
    }

    /// The same with these addresses for the pod, and an IPv6 address for the node.
    fn with_addresses(test: &str, addresses: &[&str]) -> Option<Bench> {
        let mut bench = Bench::new(test)?;
        bench.wiring = wiring(&bench.wiring.sandbox, addresses);
        bench.node_ip(&format!("address add {NODE_V6}/128 dev lo"));
        Some(bench)
    }

    fn on_node<T: Send>(&self, act: impl FnOnce(&mut Host, &mut PodNamespace) -> T + Send) -> T {
        let visit = || {
            let mut host = Host::here().unwrap();
            let mut pod = PodNamespace::open(self.pod.netns().path()).unwrap();
            act(&mut host, &mut pod)
        };
        self.node.namespace().visit(visit).unwrap()
    }

    fn ensure(&self) -> Result<(), HostError> {
        self.on_node(|host, pod| host.ensure(pod, &self.wiring))
    }

    fn differences(&self) -> Vec<Difference> {
        self.on_node(|host, pod| host.check(pod, &self.wiring).unwrap())
    }

    fn node_setting(&self, path: &str, value: &str) {
        let write = || std::fs::write(format!("/proc/sys/{path}"), value).unwrap();
        self.node.namespace().visit(write).unwrap();
    }

    fn pod_setting(&self, path: &str, value: &str) {
        let write = || std::fs::write(format!("/proc/sys/{path}"), value).unwrap();
        self.pod.netns().visit(write).unwrap();
    }

    fn node_ip(&self, command: &str) -> String {
        self.node.namespace().ip(&command.split(' ').collect::<Vec<_>>()).unwrap()
    }
}

fn wiring(sandbox: &Sandbox, addresses: &[&str]) -> PodWiring {
    let attachment = Attachment {
        sandbox: sandbox.clone(),
        device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
        mac: sandbox.mac(),
        mtu: 1450,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        pod_forwards: false,
        pod_routes: Vec::new(),
    };
    PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: true }).unwrap()
}

#[test]
fn a_wired_pod_reaches_its_node_and_back_at_once() {
    let Some(bench) = Bench::new("a_wired_pod_reaches_its_node_and_back_at_once") else { return };
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
    assert!(bench.node.namespace().can_ping("10.244.0.5").unwrap());
    assert_eq!(bench.differences(), []);
    bench.ensure().unwrap();
    let routes = bench.node_ip("route show");
    assert_eq!(routes.trim(), "10.244.0.5 dev cali0d7763386da proto 112 scope link");
    let neighbours = bench.node_ip("neigh show");
    assert!(neighbours.contains(&format!("lladdr {} PERMANENT", bench.wiring.pod.mac)), "{neighbours}");
}

#[test]
fn both_families_work_at_once() {
    let addresses = ["10.244.0.5", "fd00:10::5"];
    let Some(bench) = Bench::with_addresses("both_families_work_at_once", &addresses) else { return };
    // As runtimes make it.
    bench.pod_setting("net/ipv6/conf/all/disable_ipv6", "1");
    bench.ensure().unwrap();
    for (inside, outside) in [(NODE_V6, "fd00:10::5"), (bench.node.address(), "10.244.0.5")] {
        assert!(bench.pod.netns().can_ping(inside).unwrap(), "{inside}");
        assert!(bench.node.namespace().can_ping(outside).unwrap(), "{outside}");
    }
    assert_eq!(bench.differences(), []);
    bench.ensure().unwrap();
    let tentative = bench.pod.netns().ip(&["-6", "address", "show", "tentative"]).unwrap();
    assert_eq!(tentative, "", "nothing waits for duplicate address detection");
    let addresses = bench.node_ip("-6 -o address show dev cali0d7763386da");
    assert_eq!(addresses.lines().count(), 1, "{addresses}");
    assert!(addresses.contains("fe80::ecee:eeff:feee:eeee/64"), "{addresses}");
}

#[test]
fn ipv6_alone_works_at_once() {
    let Some(bench) = Bench::with_addresses("ipv6_alone_works_at_once", &["fd00:10::5"]) else { return };
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(NODE_V6).unwrap());
    assert!(bench.node.namespace().can_ping("fd00:10::5").unwrap());
    assert!(!bench.pod.netns().ip(&["route"]).unwrap().contains("169.254.1.1"));
}

#[test]
fn a_pod_finds_its_gateway_by_asking_too() {
    let addresses = ["10.244.0.5", "fd00:10::5"];
    let Some(bench) = Bench::with_addresses("a_pod_finds_its_gateway_by_asking_too", &addresses) else {
        return;
    };
    bench.ensure().unwrap();
    // The kernel answers for what it would forward to, and so only where it has a route.
    bench.node_ip("route add default dev lo");
    bench.pod.netns().ip(&["neigh", "flush", "dev", "eth0", "nud", "permanent"]).unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
    assert!(bench.pod.netns().can_ping(NODE_V6).unwrap());
}

#[test]
fn a_node_without_ipv6_still_serves_both() {
    for addresses in [&["10.244.0.5"][..], &["10.244.0.5", "fd00:10::5"]] {
        let test = "a_node_without_ipv6_still_serves_both";
        let Some(bench) = Bench::new(test).map(|mut bench| {
            bench.wiring = wiring(&bench.wiring.sandbox, addresses);
            bench
        }) else {
            return;
        };
        bench.node_setting("net/ipv6/conf/all/disable_ipv6", "1");
        bench.node_setting("net/ipv6/conf/default/addr_gen_mode", "1");
        bench.ensure().unwrap();
        assert_eq!(bench.differences(), []);
        for address in addresses {
            assert!(bench.node.namespace().can_ping(address).unwrap(), "{address}");
        }
    }
}

#[test]
fn what_a_stranger_breaks_is_seen_and_mended() {
    let Some(bench) = Bench::new("what_a_stranger_breaks_is_seen_and_mended") else { return };
    bench.ensure().unwrap();
    let device = "cali0d7763386da";
    for (command, expected) in [
        (
            format!("route del 10.244.0.5 dev {device}"),
            "node: route 10.244.0.5/32 is missing on cali0d7763386da",
        ),
        (format!("neigh del 10.244.0.5 dev {device}"), "node: permanent neighbour 10.244.0.5 at"),
        (format!("link set {device} mtu 1300"), "node: device cali0d7763386da has MTU 1300 instead of 1450"),
        (
            format!("link set {device} address 02:00:00:00:00:01"),
            "node: device cali0d7763386da has hardware address",
        ),
        (format!("link set {device} down"), "node: device cali0d7763386da is down"),
    ] {
        bench.node_ip(&command);
        let found = bench.differences();
        assert!(
            found.iter().any(|difference| difference.to_string().starts_with(expected)),
            "{command}: {found:?}"
        );
        bench.ensure().unwrap();
        assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap(), "{command}");
    }
    for command in [
        "route del default",
        "addr flush dev eth0",
        "neigh flush dev eth0 nud permanent",
        "link set eth0 down",
    ] {
        bench.pod.netns().ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
        assert_ne!(bench.differences(), [], "{command}");
        bench.ensure().unwrap();
        assert!(bench.node.namespace().can_ping("10.244.0.5").unwrap(), "{command}");
    }
}

#[test]
fn a_flipped_setting_is_seen_and_mended() {
    let Some(bench) = Bench::new("a_flipped_setting_is_seen_and_mended") else { return };
    bench.ensure().unwrap();
    bench.node_setting("net/ipv4/conf/cali0d7763386da/proxy_arp", "0");
    let found: Vec<String> = bench.differences().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["node: net/ipv4/conf/cali0d7763386da/proxy_arp is 0 instead of 1"]);
    bench.ensure().unwrap();
    assert_eq!(bench.differences(), []);
}

#[test]
fn a_link_under_another_name_is_taken_back() {
    let Some(bench) = Bench::new("a_link_under_another_name_is_taken_back") else { return };
    bench.ensure().unwrap();
    bench.node_ip("link set cali0d7763386da down");
    bench.node_ip("link set cali0d7763386da name renamed");
    assert_ne!(bench.differences(), []);
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
    assert_eq!(bench.on_node(|host, _| host.owned_links().unwrap()).len(), 1);
}

#[test]
fn a_link_whose_other_end_came_back_leads_into_no_pod() {
    let Some(bench) = Bench::new("a_link_whose_other_end_came_back_leads_into_no_pod") else { return };
    bench.ensure().unwrap();
    let into_pods = || bench.on_node(|host, _| host.links_into_pods().unwrap()).len();
    assert_eq!(into_pods(), 1);
    let node = bench.node.namespace().name();
    bench.pod.netns().ip(&["link", "set", "eth0", "name", "left0", "netns", node]).unwrap();
    assert_eq!(into_pods(), 0);
    assert_eq!(bench.on_node(|host, _| host.owned_links().unwrap()).len(), 1);
}

#[test]
fn only_the_sandboxs_own_links_are_removed() {
    let Some(bench) = Bench::new("only_the_sandboxs_own_links_are_removed") else { return };
    bench.ensure().unwrap();
    bench.node_ip("link add calistranger type veth peer name peer");
    let other = Sandbox::new(Lab::NETWORK, "other", "eth0").unwrap();
    assert_eq!(bench.on_node(|host, _| host.remove_links_of(&other).unwrap()), []);
    bench.node_ip("link set cali0d7763386da name renamed down");
    let removed = bench.on_node(|host, _| host.remove_links_of(&bench.wiring.sandbox).unwrap());
    assert_eq!(removed[0].name, "renamed");
    assert_eq!(bench.on_node(|host, _| host.remove_links_of(&bench.wiring.sandbox).unwrap()), []);
    let links = bench.node_ip("-br link");
    assert!(links.contains("calistranger") && !links.contains("renamed"), "{links}");
}

#[test]
fn a_strangers_device_is_never_touched() {
    let Some(bench) = Bench::new("a_strangers_device_is_never_touched") else { return };
    bench.node_ip("link add cali0d7763386da type veth peer name peer");
    let before = bench.node_ip("-d link show cali0d7763386da");
    let error = bench.ensure().unwrap_err();
    assert!(matches!(error, HostError::NameTaken { .. }), "{error}");
    let found = bench.differences();
    assert!(matches!(&found[..], [Difference { kind: DifferenceKind::Foreign { .. }, .. }]), "{found:?}");
    // The same when it appears after we looked.
    let error = bench.on_node(|host, pod| {
        let missing = plan::differences(&bench.wiring, &plan::ObservedWiring::default());
        host.apply(pod, &bench.wiring, &missing).unwrap_err()
    });
    assert!(matches!(error, HostError::NameTaken { .. }), "{error}");
    assert_eq!(bench.node_ip("-d link show cali0d7763386da"), before);
    assert_eq!(bench.on_node(|host, _| host.owned_links().unwrap()), []);
    assert_eq!(bench.pod.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
}

#[test]
fn an_address_that_is_routed_elsewhere_is_refused() {
    let Some(bench) = Bench::new("an_address_that_is_routed_elsewhere_is_refused") else { return };
    bench.node_ip("link add strange type veth peer name peer");
    bench.node_ip("link set strange up");
    bench.node_ip("route add 10.244.0.5 dev strange");
    let error = bench.ensure().unwrap_err();
    assert_eq!(error.to_string(), "cannot add route 10.244.0.5/32 dev cali0d7763386da");
    assert_eq!(bench.node_ip("route show 10.244.0.5").trim(), "10.244.0.5 dev strange scope link linkdown");
}

#[test]
fn a_refusal_comes_in_the_kernels_own_words() {
    let Some(mut bench) = Bench::new("a_refusal_comes_in_the_kernels_own_words") else { return };
    bench.ensure().unwrap();
    bench.wiring.host.mtu = 10;
    let error = bench.on_node(|host, pod| {
        let found = host.check(pod, &bench.wiring).unwrap();
        host.apply(pod, &bench.wiring, &found).unwrap_err()
    });
    let expected = "cannot give cali0d7763386da MTU 10 (mtu less than device minimum)";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.errno(), Some(22));
}

#[test]
fn the_longest_sandbox_has_a_whole_alias() {
    let Some(mut bench) = Bench::new("the_longest_sandbox_has_a_whole_alias") else { return };
    let sandbox = Sandbox::new(&"n".repeat(100), &"c".repeat(131), "fifteen-letters").unwrap();
    bench.wiring = wiring(&sandbox, &["10.244.0.5"]);
    bench.ensure().unwrap();
    assert_eq!(bench.on_node(|host, _| host.owned_links().unwrap())[0].owner, sandbox);
}

#[test]
fn a_detached_sandbox_is_out_of_service_at_once_and_can_come_back() {
    let test = "a_detached_sandbox_is_out_of_service_at_once_and_can_come_back";
    let Some(bench) = Bench::with_addresses(test, &["10.244.0.5", "fd00:10::5"]) else { return };
    bench.node_ip("link add calistranger type veth peer name peer");
    for round in 0..3 {
        bench.ensure().unwrap();
        let sandbox = &bench.wiring.sandbox;
        let device = (round > 0).then_some(&bench.wiring.host.device);
        let detached = bench.on_node(|host, pod| host.detach(sandbox, device, Some(pod)).unwrap());
        assert_eq!(detached.links[0].name, "cali0d7763386da");
        assert_eq!(detached.left_inside, None);
        assert_eq!(bench.on_node(|host, _| host.owned_links().unwrap()), []);
        assert_eq!(bench.on_node(|host, _| host.detached_links().unwrap()).len(), round + 1);
        assert_eq!(bench.node_ip("route show"), "");
        assert_eq!(bench.node_ip("neigh show nud permanent dev calistranger"), "");
        assert!(!bench.node_ip("link show up").contains("plgone"));
        let inside = bench.pod.netns().ip(&["-br", "link"]).unwrap();
        assert!(!inside.contains("eth0"), "{inside}");
        let again = bench.on_node(|host, pod| host.detach(sandbox, device, Some(pod)).unwrap());
        assert_eq!(again.links, []);
    }
    bench.ensure().unwrap();
    assert_eq!(bench.on_node(|host, _| host.sweep().unwrap()).links.len(), 3);
    assert_eq!(bench.on_node(|host, _| host.detached_links().unwrap()), []);
    assert!(bench.pod.netns().can_ping(NODE_V6).unwrap());
    assert_eq!(bench.differences(), []);
    assert!(bench.node_ip("-br link").contains("calistranger"));
    assert_eq!(bench.on_node(|host, _| host.sweep().unwrap()).links, []);
}

#[test]
fn another_sandbox_is_not_detached() {
    let Some(bench) = Bench::new("another_sandbox_is_not_detached") else { return };
    bench.ensure().unwrap();
    let other = Sandbox::new(Lab::NETWORK, "other", "eth0").unwrap();
    let device = &bench.wiring.host.device;
    let detached = bench.on_node(|host, pod| host.detach(&other, Some(device), Some(pod)).unwrap());
    assert_eq!(detached.links, []);
    assert_eq!(bench.differences(), []);
}

#[test]
fn a_del_that_was_killed_before_it_entered_the_pod_does_not_block_the_name() {
    let test = "a_del_that_was_killed_before_it_entered_the_pod_does_not_block_the_name";
    let Some(bench) = Bench::new(test) else { return };
    bench.ensure().unwrap();
    bench.on_node(|host, _| host.detach(&bench.wiring.sandbox, None, None).unwrap());
    assert!(bench.pod.netns().ip(&["-br", "link"]).unwrap().contains("eth0"));
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
}

#[test]
fn a_veth_can_be_made_ahead_of_its_addresses() {
    let Some(bench) = Bench::new("a_veth_can_be_made_ahead_of_its_addresses") else { return };
    make_ahead(&bench, Ahead::Made);
    bench.on_node(|host, pod| host.detach(&bench.wiring.sandbox, None, Some(pod)).unwrap());
    make_ahead(&bench, Ahead::Started);
}

fn make_ahead(bench: &Bench, ahead: Ahead) {
    let (sandbox, wiring, bare) = (&bench.wiring.sandbox, &bench.wiring, wiring(&bench.wiring.sandbox, &[]));
    let prepare = |host: &mut Host, pod: &mut PodNamespace| host.prepare(pod, &bare, ahead).unwrap();
    bench.on_node(|host, pod| {
        let prepared = prepare(host, pod).unwrap();
        assert_eq!(host.owned_links().unwrap().len(), 1);
        host.abandon(prepared).unwrap();
        assert_eq!(host.owned_links().unwrap(), []);
        let prepared = prepare(host, pod).unwrap();
        assert!(prepare(host, pod).is_none(), "there is one already");
        host.finish(pod, prepared, wiring).unwrap();
    });
    assert_eq!(bench.differences(), []);
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
    // One that was killed in between.
    bench.on_node(|host, pod| host.detach(sandbox, None, Some(pod)).unwrap());
    bench.on_node(|host, pod| prepare(host, pod).map(|_| ()).unwrap());
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
    bench.on_node(|host, pod| host.detach(sandbox, None, Some(pod)).unwrap());
    bench.on_node(|host, pod| prepare(host, pod).map(|_| ()).unwrap());
    let detached = bench.on_node(|host, pod| host.detach(sandbox, None, Some(pod)).unwrap());
    assert_eq!(detached.links.len(), 1);
    bench.ensure().unwrap();
}

#[test]
fn a_stranger_who_takes_the_name_first_keeps_it() {
    let Some(bench) = Bench::new("a_stranger_who_takes_the_name_first_keeps_it") else { return };
    let bare = wiring(&bench.wiring.sandbox, &[]);
    bench.node_ip(&format!("link add {} type veth peer name other", bare.host.device));
    let before = bench.node_ip("-d link");
    for ahead in [Ahead::Made, Ahead::Started] {
        assert!(bench.on_node(|host, pod| host.prepare(pod, &bare, ahead).unwrap()).is_none());
    }
    assert!(matches!(bench.ensure(), Err(HostError::NameTaken { .. })));
    assert_eq!(bench.node_ip("-d link"), before, "neither alias nor anything else");
    assert!(!bench.pod.netns().ip(&["-br", "link"]).unwrap().contains("eth0"));
}

#[test]
fn a_pod_cannot_keep_its_del_from_ending() {
    let Some(bench) = Bench::new("a_pod_cannot_keep_its_del_from_ending") else { return };
    bench.ensure().unwrap();
    let index = bench.on_node(|host, pod| host.observe(pod, &bench.wiring).unwrap().pod.unwrap().index);
    let name = format!("plgone{index:x}");
    bench.pod.netns().ip(&["link", "add", &name, "type", "veth", "peer", "name", "other"]).unwrap();
    let detached = bench.on_node(|host, pod| host.detach(&bench.wiring.sandbox, None, Some(pod)).unwrap());
    assert_eq!((detached.links.len(), detached.left_inside.is_some()), (1, true));
    bench.on_node(|host, _| host.sweep().unwrap());
    assert!(!bench.pod.netns().ip(&["-br", "link"]).unwrap().contains("eth0"));
    bench.ensure().unwrap();
    assert!(bench.pod.netns().can_ping(bench.node.address()).unwrap());
}

#[test]
fn a_strangers_device_in_our_group_is_not_swept() {
    let Some(bench) = Bench::new("a_strangers_device_in_our_group_is_not_swept") else { return };
    bench.ensure().unwrap();
    bench.node_ip("link add stranger group 1886154082 type veth peer name peer");
    bench.on_node(|host, pod| host.detach(&bench.wiring.sandbox, None, Some(pod)).unwrap());
    assert_eq!(bench.on_node(|host, _| host.sweep().unwrap()).links.len(), 1);
    let links = bench.node_ip("-br link");
    assert!(links.contains("stranger") && !links.contains("plgone"), "{links}");
}
