//! Routes, tunnels and masquerading between nodes against the real kernel: made, read back, broken, mended, removed.

use host::between::nft;
use host::{Host, HostError, Monitor};
use lab::{Lab, Node, Programs};
use model::IpVersion;
use plan::between::{
    Between, BetweenDevices, BetweenNotice, BetweenSettings, BlockView, Encapsulation, Extent, NatSettings,
    NodeView, PoolView, Presence, Step, Uplinks, between_differences, changes_of,
};

/// A node with a card, and another one at the other end of the cable.
struct Bench {
    node: Node,
    _other: Node,
    _lab: Lab,
}

impl Bench {
    fn new(test: &str) -> Option<Bench> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let (node, other) = (lab.node("a").unwrap(), lab.node("b").unwrap());
        let peer = other.namespace().name().to_owned();
        let bench = Bench { node, _other: other, _lab: lab };
        bench.ip(&format!("link add eth0 type veth peer name eth0 netns {peer}"));
        for command in [
            "address add 172.30.0.1/24 dev eth0",
            "address add fd30::1/64 dev eth0 nodad",
            "link set eth0 up",
        ] {
            bench.ip(command);
        }
        Some(bench)
    }

    fn ip(&self, command: &str) -> String {
        self.node.namespace().ip(&command.split(' ').collect::<Vec<_>>()).unwrap()
    }

    fn host<T: Send>(&self, act: impl FnOnce(&mut Host) -> T + Send) -> T {
        self.node.namespace().visit(|| act(&mut Host::here().unwrap())).unwrap()
    }

    fn uplinks(&self) -> Uplinks {
        self.host(|host| host.find_uplinks("172.30.0.1".parse().ok(), "fd30::1".parse().ok()).unwrap())
    }

    /// This node `a` with two others, as an agent would know them.
    fn cluster(&self, encapsulation: Encapsulation) -> Between {
        let mut between = Between::new("a");
        between.set_uplinks(self.uplinks());
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let host = index + 1;
            let presence = |address: String, tunnel: String| Presence {
                address: address.parse().ok(),
                tunnel: tunnel.parse().ok(),
                mac: None,
            };
            let v4 = presence(format!("172.30.0.{host}/24"), format!("10.244.{index}.0"));
            let v6 = presence(format!("fd30::{host}/64"), format!("fd44::{index}:0"));
            between.set_node(name, Some(NodeView { v4, v6, ipip_tunnel: None }));
            let block = BlockView { owner: Some(name.to_owned()), ..BlockView::default() };
            between.set_block(format!("10.244.{index}.0/26").parse().unwrap(), Some(block.clone()));
            between.set_block(format!("fd44::{index}:0/122").parse().unwrap(), Some(block));
        }
        set_mode(&mut between, encapsulation);
        between.settle();
        between
    }

    fn devices(&self, between: &Between) -> BetweenDevices {
        let mut devices = BetweenDevices {
            uplinks: [between.uplinks().v4.as_ref(), between.uplinks().v6.as_ref()]
                .map(|up| up.map(|up| up.index)),
            ..BetweenDevices::default()
        };
        for (slot, version) in [IpVersion::V4, IpVersion::V6].into_iter().enumerate() {
            let wanted = between.vxlan(version).cloned();
            devices.vxlan[slot] =
                wanted.map(|wanted| self.host(|host| host.ensure_vxlan(&wanted).unwrap().0));
        }
        devices
    }

    fn differences(&self, between: &Between, devices: &BetweenDevices) -> Vec<Step> {
        self.host(|host| between_differences(between, &host.observe_between(devices).unwrap()))
    }

    /// Everything as it should be, at one go.
    fn settle(&self, between: &Between) -> BetweenDevices {
        let devices = self.devices(between);
        let steps = self.differences(between, &devices);
        self.apply(&steps, &devices);
        assert_eq!(self.differences(between, &devices), []);
        devices
    }

    fn apply(&self, steps: &[Step], devices: &BetweenDevices) {
        let failed = self.host(|host| host.apply_between(steps, devices).unwrap());
        assert!(failed.is_empty(), "{failed:?}");
    }
}

fn set_mode(between: &mut Between, encapsulation: Encapsulation) {
    for (name, cidr) in [("v4", "10.244.0.0/16"), ("v6", "fd44::/48")] {
        let cidr = cidr.parse().unwrap();
        let pool = PoolView {
            cidr,
            encapsulation,
            nat_outgoing: true,
            is_enabled: true,
            is_of_services: false,
            block_size: 26,
        };
        between.set_pool(name, Some(pool));
    }
}

#[test]
fn a_vxlan_device_is_made_and_put_right() {
    let Some(bench) = Bench::new("a_vxlan_device_is_made_and_put_right") else { return };
    let between = bench.cluster(Encapsulation::Vxlan(Extent::Always));
    for version in [IpVersion::V4, IpVersion::V6] {
        let wanted = between.vxlan(version).unwrap();
        let name = wanted.name();
        let ensure = || bench.host(|host| host.ensure_vxlan(wanted).unwrap());
        let (index, is_new) = ensure();
        assert!(is_new);
        assert_eq!(ensure(), (index, false));
        let shown = || bench.ip(&format!("-d link show dev {name}"));
        let expected = [
            "vxlan id 4096".to_owned(),
            "dev eth0".to_owned(),
            "dstport 4789".to_owned(),
            "nolearning".to_owned(),
            format!("local {}", wanted.local),
            format!("link/ether {}", wanted.mac),
            format!("mtu {}", wanted.mtu),
            ",UP".to_owned(),
        ];
        let check = |after: &str| {
            let shown = shown();
            for part in &expected {
                assert!(shown.contains(part), "after {after}: no {part} in {shown}");
            }
            let addresses = bench.ip(&format!("-br address show dev {name} scope global"));
            assert!(
                addresses.trim().ends_with(&format!(" {}/{}", wanted.address.unwrap(), version.bits())),
                "{addresses}"
            );
        };
        check("creation");
        for change in [
            "link set {} down",
            "link set {} mtu 1300",
            "link set {} address 02:00:00:00:00:01",
            "link set {} alias mine",
            "address add 192.0.2.77/32 dev {}",
            "address add fd77::1/128 dev {}",
        ] {
            bench.ip(&change.replace("{}", name));
            assert!(!ensure().1, "{change}");
            if version == IpVersion::V4 || !change.contains("192.0.2") {
                bench.ip(&format!(
                    "address flush dev {name} to {}",
                    if version == IpVersion::V4 { "fd77::1" } else { "192.0.2.77" }
                ));
            }
            check(change);
        }
        bench.ip(&format!("link del {name}"));
        assert!(ensure().1, "it was gone");
        bench.ip(&format!("link del {name}"));
        bench.ip(&format!("link add {name} type vxlan id 77 dev eth0 dstport 4789 local {}", wanted.local));
        assert!(ensure().1, "it was another tunnel");
        check("another one");
        assert!(bench.host(|host| host.remove_vxlan(version).unwrap()));
        assert!(!bench.host(|host| host.remove_vxlan(version).unwrap()));
    }
}

#[test]
fn a_strangers_device_keeps_its_name() {
    let Some(bench) = Bench::new("a_strangers_device_keeps_its_name") else { return };
    let between = bench.cluster(Encapsulation::Vxlan(Extent::Always));
    bench.ip("link add vxlan.calico type bridge");
    let wanted = between.vxlan(IpVersion::V4).unwrap();
    let refusal = bench.host(|host| host.ensure_vxlan(wanted)).unwrap_err();
    assert!(matches!(refusal, HostError::NameTaken { .. }), "{refusal}");
    bench.ip("link del vxlan.calico");
    bench.ip("link add vxlan.calico type vxlan id 9 dev eth0 dstport 4789");
    assert!(!bench.host(|host| host.remove_vxlan(IpVersion::V4).unwrap()), "somebody else may need it");
    bench.ip("link show dev vxlan.calico");
}

#[test]
fn routes_and_tunnels_are_made_found_and_mended() {
    let Some(bench) = Bench::new("routes_and_tunnels_are_made_found_and_mended") else { return };
    let between = bench.cluster(Encapsulation::Vxlan(Extent::Always));
    let devices = bench.settle(&between);
    let routes = bench.ip("route show proto 113");
    assert!(routes.contains("blackhole 10.244.0.0/26"), "{routes}");
    assert!(routes.contains("10.244.1.0/26 via 10.244.1.0 dev vxlan.calico onlink"), "{routes}");
    let routes = bench.ip("-6 route show proto 113");
    assert!(routes.contains("fd44::1:0/122 via fd44::1:0 dev vxlan-v6.calico"), "{routes}");
    let mac = model::Mac::of_vxlan("b", IpVersion::V4);
    let neighbours = bench.ip("neigh show dev vxlan.calico");
    assert!(neighbours.contains(&format!("10.244.1.0 lladdr {mac} PERMANENT")), "{neighbours}");

    for (change, found) in [
        ("route del 10.244.1.0/26", 1),
        ("route replace 10.244.1.0/26 dev eth0 proto 113", 1),
        ("route del blackhole 10.244.0.0/26 metric 1048576", 1),
        ("-6 route del fd44::2:0/122", 1),
        ("route add 10.99.0.0/26 dev eth0 proto 113", 1),
        ("-6 route add blackhole fd45::/122 proto 113", 1),
        ("neigh del 10.244.1.0 dev vxlan.calico", 1),
        ("neigh replace fd44::1:0 lladdr 02:00:00:00:00:09 nud permanent dev vxlan-v6.calico", 1),
        ("link set eth0 down", 0),
    ] {
        bench.ip(change);
        if change.starts_with("link") {
            bench.ip("link set eth0 up");
            bench.settle(&between);
            continue;
        }
        let steps = bench.differences(&between, &devices);
        assert_eq!(steps.len(), found, "{change}: {steps:?}");
        bench.apply(&steps, &devices);
        assert_eq!(bench.differences(&between, &devices), [], "{change}");
    }
}

#[test]
fn the_table_of_hardware_addresses_is_mended() {
    let Some(bench) = Bench::new("the_table_of_hardware_addresses_is_mended") else { return };
    let between = bench.cluster(Encapsulation::Vxlan(Extent::Always));
    let devices = bench.settle(&between);
    let mac = model::Mac::of_vxlan("b", IpVersion::V4).to_string();
    let bridge = |words: &[&str]| {
        let output = bench.node.namespace().run("bridge".as_ref(), words).unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listed = bridge(&["fdb", "show", "dev", "vxlan.calico"]);
    assert!(listed.contains(&format!("{mac} dst 172.30.0.2")), "{listed}");
    bridge(&["fdb", "replace", &mac, "dev", "vxlan.calico", "dst", "172.30.0.99"]);
    let steps = bench.differences(&between, &devices);
    assert_eq!(steps.len(), 2, "the right one comes, the wrong one goes: {steps:?}");
    bench.apply(&steps, &devices);
    bridge(&["fdb", "del", &mac, "dev", "vxlan.calico"]);
    bridge(&["fdb", "add", "02:00:00:00:00:77", "dev", "vxlan.calico", "dst", "172.30.0.99"]);
    let steps = bench.differences(&between, &devices);
    assert_eq!(steps.len(), 2, "{steps:?}");
    bench.apply(&steps, &devices);
    assert_eq!(bench.differences(&between, &devices), []);
}

#[test]
fn changes_lead_where_a_look_at_everything_would() {
    let Some(bench) = Bench::new("changes_lead_where_a_look_at_everything_would") else { return };
    let mut between = bench.cluster(Encapsulation::None);
    let mut devices = bench.settle(&between);
    for encapsulation in
        [Encapsulation::Vxlan(Extent::Always), Encapsulation::None, Encapsulation::Vxlan(Extent::CrossSubnet)]
    {
        set_mode(&mut between, encapsulation);
        let changed = between.settle();
        let had = devices;
        devices = bench.devices(&between);
        let vxlan = [0, 1].map(|version| devices.vxlan[version].or(had.vxlan[version]));
        let known = BetweenDevices { vxlan, ..devices };
        bench.apply(&changes_of(&between, &changed, &known), &devices);
        assert_eq!(bench.differences(&between, &devices), [], "{encapsulation:?}");
    }
    // An address that one node lends to another.
    let lent = Box::new([("10.244.1.9".parse().unwrap(), "c".to_owned())]);
    between
        .set_block("10.244.1.0/26".parse().unwrap(), Some(BlockView { owner: Some("b".to_owned()), lent }));
    let changed = between.settle();
    bench.apply(&changes_of(&between, &changed, &devices), &devices);
    assert!(bench.ip("route show proto 113").contains("10.244.1.9 via 172.30.0.3 dev eth0 metric 1 onlink"));
    assert_eq!(bench.differences(&between, &devices), []);
}

#[test]
fn strangers_routes_are_neither_listed_nor_replaced() {
    let Some(bench) = Bench::new("strangers_routes_are_neither_listed_nor_replaced") else { return };
    let mut between = bench.cluster(Encapsulation::None);
    bench.ip("route add 10.244.1.0/26 via 172.30.0.77 proto static");
    bench.ip("route add 10.9.0.0/26 via 172.30.0.77 proto static");
    let devices = bench.settle(&between);
    let all = bench.ip("route show 10.244.1.0/26");
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 2, "{all}");
    assert!(lines[0].contains("via 172.30.0.2"), "ours comes first: {all}");
    // Another way for ours leaves the stranger's where it is.
    between.set_node(
        "b",
        Some(NodeView {
            v4: Presence { address: "172.30.0.22/24".parse().ok(), ..Presence::default() },
            ..NodeView::default()
        }),
    );
    let changed = between.settle();
    bench.apply(&changes_of(&between, &changed, &devices), &devices);
    let all = bench.ip("route show 10.244.1.0/26");
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("via 172.30.0.22"), "{all}");
    assert!(lines[1].contains("172.30.0.77"), "{all}");
    assert!(bench.ip("route show proto static").contains("10.9.0.0/26"));
}

/// Routes and neighbours that were announced, up to the one that a stranger makes in the end.
fn announced(bench: &Bench, between: &Between, devices: &BetweenDevices, is_own_ignored: bool) -> usize {
    for flush in ["route flush proto 113", "-6 route flush proto 113"] {
        bench.ip(flush);
    }
    bench.ip("neigh del 10.244.1.0 dev vxlan.calico");
    let counting = || {
        let mut host = Host::here().unwrap();
        let own = if is_own_ignored { host.port().unwrap() } else { 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut monitor = Monitor::open_between(own).unwrap();
        let steps = between_differences(between, &host.observe_between(devices).unwrap());
        assert!(steps.len() > 5, "{steps:?}");
        assert!(host.apply_between(&steps, devices).unwrap().is_empty());
        bench.ip("route add 10.99.0.0/26 dev eth0 proto 113");
        let (mut count, mut is_last) = (0, false);
        while !is_last {
            let each = |notice| match notice {
                BetweenNotice::Route { destination, .. } if destination.to_string() == "10.99.0.0/26" => {
                    is_last = true;
                }
                BetweenNotice::Route { ours: true, .. } | BetweenNotice::Neighbour { mac: Some(_), .. } => {
                    count += 1;
                }
                _ => {}
            };
            runtime.block_on(monitor.next(each)).unwrap();
        }
        count
    };
    let count = bench.node.namespace().visit(counting).unwrap();
    bench.ip("route del 10.99.0.0/26 dev eth0 proto 113");
    count
}

#[test]
fn what_was_done_by_oneself_is_not_announced() {
    let Some(bench) = Bench::new("what_was_done_by_oneself_is_not_announced") else { return };
    let between = bench.cluster(Encapsulation::Vxlan(Extent::Always));
    let devices = bench.settle(&between);
    assert_eq!(announced(&bench, &between, &devices, true), 0);
    assert!(announced(&bench, &between, &devices, false) > 5, "everything is, to others");
}

#[test]
fn rules_are_loaded_listed_and_removed() {
    let Some(bench) = Bench::new("rules_are_loaded_listed_and_removed") else { return };
    let between = bench.cluster(Encapsulation::None);
    let rules = between.nat().expect("the pools want it").to_owned();
    bench.host(|_| {
        assert_eq!(nft::list().unwrap(), None);
        let loaded = nft::load(&rules).unwrap();
        assert!(loaded.contains("masquerade") && loaded.contains("10.244.0.0/16"), "{loaded}");
        assert_eq!(nft::list().unwrap().as_deref(), Some(loaded.as_str()));
        assert_eq!(nft::load(&rules).unwrap(), loaded, "loading again changes nothing");
        let flush = std::process::Command::new("nft")
            .args(["flush", "chain", "inet", "plumb", "postrouting"])
            .status();
        assert!(flush.unwrap().success());
        assert_ne!(nft::list().unwrap().as_deref(), Some(loaded.as_str()), "a stranger's change is seen");
        assert!(matches!(nft::load("nonsense").unwrap_err(), HostError::Nft { .. }));
        nft::add("delete table inet plumb\n").unwrap();
        assert_eq!(nft::list().unwrap(), None);
    });
}

#[test]
fn rules_of_all_settings_are_taken() {
    let Some(bench) = Bench::new("rules_of_all_settings_are_taken") else { return };
    let mut between = bench.cluster(Encapsulation::None);
    for address in [None, Some("172.30.0.1"), Some("fd30::1")] {
        for ports in [None, Some((2000, 3000))] {
            for device in [None, Some("eth+"), Some("eth0")] {
                let nat = NatSettings {
                    address: address.map(|text| text.parse().unwrap()),
                    ports,
                    excludes_nodes: true,
                    device: device.map(str::to_owned),
                };
                let device_prefixes = vec!["tap".to_owned()];
                between.set_settings(BetweenSettings { nat, device_prefixes, ..BetweenSettings::default() });
                let sources = ["10.9.0.0/16", "10.9.7.0/24", "0.0.0.0/0", "fd09::/64", "fd09::7/128"];
                let device = model::DeviceName::new("cali0123").unwrap();
                between.set_allowed_sources(sources.map(|net| (device.clone(), net.parse().unwrap())).into());
                between.settle();
                let rules = between.nat().unwrap();
                let loaded = bench.host(|_| nft::load(rules));
                assert!(loaded.is_ok(), "{loaded:?}: {rules}");
            }
        }
    }
}
