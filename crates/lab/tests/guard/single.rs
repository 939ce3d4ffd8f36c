//! On one node: without an agent, without `nft`, before there is a route, and by claims of neighbours.

use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use lab::{CniCall, Namespace, Pod};
use model::Kind;
use serde_json::json;

use crate::common::{Bench, DelOutcome as _};
use crate::packet::{Datagram, arp_claim, neighbour_claim};
use crate::raw;
use crate::running::wait_until;

const HONEST: u16 = 40_000;
const FORGED: u16 = 40_001;

fn bench(test: &str) -> Option<Bench> {
    if let Some(reason) = raw::missing() {
        testkit::skip(test, reason);
        return None;
    }
    let bench = Bench::new(test)?;
    bench.put(Kind::IpPool, "pods6", json!({"cidr": "fd44::/64"}));
    bench.node.namespace().ip(&["address", "add", "fd30::1/128", "dev", "lo"]).unwrap();
    Some(bench)
}

fn both(call: CniCall) -> CniCall {
    call.with_netconf("ipam", json!({"assign_ipv4": "true", "assign_ipv6": "true"}))
}

/// Both addresses of a pod that was just added.
fn add(bench: &Bench, pod: &Pod) -> [IpAddr; 2] {
    let answer = both(bench.call("ADD", pod)).run(&bench.node).unwrap().result().unwrap();
    let address = |index: usize| {
        let text = answer["ips"][index]["address"].as_str().unwrap();
        text.split('/').next().unwrap().parse().unwrap()
    };
    [address(0), address(1)]
}

fn inside(namespace: &Namespace) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name()]);
    command
}

fn on_node(bench: &Bench, line: &str) -> String {
    let output = inside(bench.node.namespace()).args(["sh", "-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sends forged frames, then an honest one the same way, and waits for that. Whether a forged one has arrived at the node.
fn arrives(bench: &Bench, sender: &Namespace, device: &str, forged: &[Datagram], honest: &Datagram) -> bool {
    on_node(bench, &raw::counting([HONEST, FORGED].into_iter()));
    let frames: Vec<Vec<u8>> = forged.iter().map(Datagram::frame).collect();
    raw::send(inside(sender), device, &frames);
    let count = |port: u16| raw::counts(&on_node(bench, raw::COUNTS)).get(&port).copied().unwrap_or(0);
    wait_until(
        || {
            raw::send(inside(sender), device, &[honest.frame()]);
            count(HONEST) > 0
        },
        || on_node(bench, "nft list ruleset; ip route; ip -6 route"),
    );
    count(FORGED) > 0
}

fn node_address(version: usize) -> IpAddr {
    ["192.0.2.1", "fd30::1"][version].parse().unwrap()
}

/// As another pod, and to loopback: nothing of it arrives.
#[track_caller]
fn assert_restricted(bench: &Bench, pod: &Pod, own: [IpAddr; 2], other: [IpAddr; 2]) {
    for version in [0, 1] {
        let loopback = ["127.0.0.1", "::1"][version].parse().unwrap();
        let to = node_address(version);
        let forged = [
            Datagram::new(other[version], to, FORGED, 7000),
            Datagram::new(own[version], loopback, FORGED, 7000),
        ];
        let honest = Datagram::new(own[version], to, HONEST, 7000);
        assert!(
            !arrives(bench, pod.netns(), "eth0", &forged, &honest),
            "{}",
            on_node(bench, "nft list ruleset")
        );
    }
}

#[test]
fn without_an_agent_pods_send_only_from_their_own_addresses() {
    let Some(bench) = bench("without_an_agent_pods_send_only_from_their_own_addresses") else { return };
    on_node(&bench, "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $each; done");
    let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
    let own = add(&bench, &web);
    let other = add(&bench, &db);
    assert_restricted(&bench, &web, own, other);
    // Or this shows nothing.
    on_node(&bench, "nft delete table inet plumb");
    let forged = [Datagram::new(other[0], node_address(0), FORGED, 7000)];
    let honest = Datagram::new(own[0], node_address(0), HONEST, 7000);
    assert!(arrives(&bench, web.netns(), "eth0", &forged, &honest));
    // Whoever comes next puts them back.
    let third = bench.pod("shop", "web-1");
    add(&bench, &third);
    assert_restricted(&bench, &web, own, other);
    // Half of them is not enough.
    on_node(&bench, "nft flush chain inet plumb pods-prerouting");
    let fourth = bench.pod("shop", "web-2");
    add(&bench, &fourth);
    assert_restricted(&bench, &web, own, other);
    for pod in [&web, &db, &third, &fourth] {
        bench.del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}

/// FelixConfiguration, of the cluster and of the node, holds for single calls as it does for an agent.
#[test]
fn without_an_agent_the_rules_are_those_of_the_records() {
    let Some(bench) = bench("without_an_agent_the_rules_are_those_of_the_records") else { return };
    let keeps_vxlan_out = |name: &str| {
        add(&bench, &bench.pod("shop", name));
        on_node(&bench, "nft list table inet plumb").contains("4789")
    };
    let lets_through = |lets: bool| json!({ "allowVXLANPacketsFromWorkloads": lets });
    bench.put(Kind::FelixConfiguration, "default", lets_through(true));
    assert!(!keeps_vxlan_out("web-0"));
    let of_node = format!("node.{}", bench.node.name());
    bench.put(Kind::FelixConfiguration, &of_node, lets_through(false));
    assert!(keeps_vxlan_out("web-1"), "the node's own come first");
    bench.put(Kind::FelixConfiguration, "node.another", lets_through(true));
    on_node(&bench, "nft delete table inet plumb");
    assert!(keeps_vxlan_out("web-2"), "another node's are not this one's");
    bench.put(Kind::FelixConfiguration, &of_node, lets_through(true));
    on_node(&bench, "nft delete table inet plumb");
    assert!(!keeps_vxlan_out("web-3"));
}

/// Where `PATH` has a program.
fn find(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A folder for `PATH` with everything that is needed, except `nft`.
fn path_without_nft(bench: &Bench) -> PathBuf {
    let folder = bench.lab.folder().join("path");
    std::fs::create_dir_all(&folder).unwrap();
    for program in ["ip", "setpriv"] {
        if let Some(path) = find(program) {
            symlink(path, folder.join(program)).unwrap();
        }
    }
    folder
}

#[test]
fn without_nft_no_pod_is_added_and_it_is_said() {
    let Some(bench) = bench("without_nft_no_pod_is_added_and_it_is_said") else { return };
    let path = path_without_nft(&bench);
    let (before, pod) = (bench.records(), bench.pod("shop", "web-0"));
    let refused = bench.call("ADD", &pod).with("PATH", path.to_str().unwrap()).run(&bench.node).unwrap();
    let (code, message) = refused.error().unwrap();
    assert_eq!(code, 101, "{message}");
    assert_eq!(message, "cannot load the nftables rules that restrict pods to their own addresses");
    assert!(refused.stdout.contains("nft is not installed"), "{}", refused.stdout);
    assert_eq!(bench.records(), before);
    bench.assert_nothing_left();
    // An agent serves, and says what is missing.
    let agent = bench.start_agent(&[("PATH", path.to_str().unwrap())]);
    let add = || bench.agent_call("ADD", &pod).run(&bench.node).unwrap();
    wait_until(|| add().error().is_ok_and(|(code, _)| code == 101), || agent.log());
    assert!(bench.page("readiness").contains("restrict pods"), "{}", bench.page("readiness"));
    assert_eq!(bench.metric("pod_guard_missing"), 1);
    bench.assert_nothing_left();
    // Once it is there, everything is well.
    symlink(find("nft").unwrap(), path.join("nft")).unwrap();
    wait_until(|| add().success, || agent.log());
    wait_until(|| bench.metric("pod_guard_missing") == 0, || agent.log());
    // What is loaded needs no program.
    std::fs::remove_file(path.join("nft")).unwrap();
    let second = bench.pod("shop", "web-1");
    bench.agent_add(&second).result().unwrap();
    for pod in [&pod, &second] {
        bench.agent_del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}

#[test]
fn a_device_without_a_route_is_shut() {
    let Some(bench) = bench("a_device_without_a_route_is_shut") else { return };
    let pod = bench.pod("shop", "web-0");
    let own = add(&bench, &pod);
    // A device of a pod as it is in the middle of an ADD, or of somebody else's. Both ends are here, to send from.
    on_node(
        &bench,
        "ip link add calihand address ee:ee:ee:ee:ee:ee type veth peer name handpeer; \
         for each in calihand handpeer; do ip link set $each up; echo 0 > /proc/sys/net/ipv4/conf/$each/rp_filter; done; \
         echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
    );
    let addresses = [("10.244.0.200", "-4"), ("fd44::200", "-6")];
    for (version, (address, _)) in addresses.into_iter().enumerate() {
        let forged = [Datagram::new(address.parse().unwrap(), node_address(version), FORGED, 7000)];
        let frames: Vec<Vec<u8>> = forged.iter().map(Datagram::frame).collect();
        on_node(&bench, &raw::counting([HONEST, FORGED].into_iter()));
        raw::send(inside(bench.node.namespace()), "handpeer", &frames);
        let honest = Datagram::new(own[version], node_address(version), HONEST, 7000);
        assert!(!arrives(&bench, pod.netns(), "eth0", &[], &honest));
        assert_eq!(raw::counts(&on_node(&bench, raw::COUNTS)).get(&FORGED), Some(&0));
    }
    // The route is the permission.
    for (version, (address, family)) in addresses.into_iter().enumerate() {
        on_node(&bench, &format!("ip {family} route add {address} dev calihand"));
        let now = Datagram::new(address.parse().unwrap(), node_address(version), HONEST, 7000);
        assert!(!arrives(&bench, bench.node.namespace(), "handpeer", &[], &now));
    }
    on_node(&bench, "ip link del calihand");
    bench.del(&pod).result_of_del();
    bench.assert_nothing_left();
}

#[test]
fn claims_of_a_pod_to_have_anothers_address_change_nothing() {
    let Some(bench) = bench("claims_of_a_pod_to_have_anothers_address_change_nothing") else { return };
    let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
    let (own, other) = (add(&bench, &web), add(&bench, &db));
    let neighbours = || {
        let mut lines: Vec<String> = on_node(&bench, "ip neigh show nud permanent")
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        lines.sort_unstable();
        lines
    };
    let before = neighbours();
    let thief = [2, 0, 0, 0, 0, 0x66];
    let gateway = plan::V6_GATEWAY;
    let mut frames = Vec::new();
    for address in [own, other, ["192.0.2.1".parse().unwrap(), "fd30::1".parse().unwrap()]] {
        let [IpAddr::V4(v4), IpAddr::V6(v6)] = address else { panic!("one of each version") };
        frames.push(arp_claim(v4, thief));
        for from in [v6, "fe80::66".parse().unwrap()] {
            frames.push(neighbour_claim(from, gateway, v6, thief));
        }
    }
    raw::send(inside(web.netns()), "eth0", &frames);
    for version in [0, 1] {
        let honest = Datagram::new(own[version], node_address(version), HONEST, 7000);
        assert!(!arrives(&bench, web.netns(), "eth0", &[], &honest));
    }
    assert_eq!(neighbours(), before);
    for address in own.into_iter().chain(other) {
        assert!(bench.node.namespace().can_ping(&address.to_string()).unwrap(), "{address}");
    }
    for pod in [&web, &db] {
        bench.del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}

#[test]
fn a_pod_sends_from_more_addresses_where_its_record_and_the_node_allow_it() {
    let test = "a_pod_sends_from_more_addresses_where_its_record_and_the_node_allow_it";
    let Some(bench) = bench(test) else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let own = bench.agent_add(&pod).address().unwrap();
    on_node(&bench, "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $each; done");
    let honest = Datagram::new(own, node_address(0), HONEST, 7000);
    let from = |text: &str| [Datagram::new(text.parse().unwrap(), node_address(0), FORGED, 7000)];
    let passes = |text: &str| arrives(&bench, pod.netns(), "eth0", &from(text), &honest);
    let plumb = |words: &[&str]| {
        let mut command = Command::new(bench.programs().plumb());
        command.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path()).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let record = r#"{"spec":{"allowSpoofedSourcePrefixes":["10.9.0.0/16","10.10.0.7"]}}"#;
    plumb(&["patch", "workloadendpoint", "-n", "shop", "node--a-k8s-web--0-eth0", "-p", record]);
    bench.put(Kind::FelixConfiguration, "default", json!({"workloadSourceSpoofing": "Disabled"}));
    assert!(!passes("10.9.1.2"), "the node does not allow it");
    let felix = |value: &str| {
        let patch = json!({"spec": {"workloadSourceSpoofing": value}}).to_string();
        plumb(&["patch", "felixconfiguration", "default", "-p", &patch]);
    };
    felix("Any");
    wait_until(
        || passes("10.9.1.2") && passes("10.10.0.7"),
        || format!("{}{}", agent.log(), on_node(&bench, "nft list ruleset")),
    );
    assert!(!passes("10.10.0.8") && !passes("10.244.0.99"), "only what is allowed");
    felix("Disabled");
    wait_until(|| !passes("10.9.1.2"), || agent.log());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}
