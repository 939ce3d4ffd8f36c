//! The real plugin on the real kernel and a real store: pods come, talk, go, and leave nothing.

#[expect(dead_code, reason = "shared with the tests of the agent, which use more of it")]
mod common;
#[path = "common/stories.rs"]
mod stories;

use std::net::IpAddr;

use common::hostile::refused_adds;
use common::{Bench, DelOutcome as _, sandbox_of};
use model::{Key, Kind};
use serde_json::json;
use stories::on_sqlite_and_kubernetes;

fn two_pods_reach_each_other_and_the_node_and_leave_nothing(bench: &Bench) {
    let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
    let web_address = bench.add(&web).address().unwrap();
    let db_address = bench.add(&db).address().unwrap();
    assert_ne!(web_address, db_address);
    let (node, node_address) = (bench.node.namespace(), bench.node.address());
    assert!(web.netns().can_ping(&db_address.to_string()).unwrap());
    assert!(db.netns().can_ping(&web_address.to_string()).unwrap());
    assert!(web.netns().can_ping(node_address).unwrap() && db.netns().can_ping(node_address).unwrap());
    assert!(node.can_ping(&web_address.to_string()).unwrap());
    bench.assert_books_match_pods(&[(&web, web_address), (&db, db_address)]);

    bench.del(&web).result_of_del();
    bench.assert_books_match_pods(&[(&db, db_address)]);
    assert!(db.netns().can_ping(node_address).unwrap());
    assert_eq!(web.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
    bench.del(&db).result_of_del();
    bench.assert_nothing_left();
}

fn every_version_gets_its_shape_and_check_passes_right_after_add(bench: &Bench) {
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let pod = bench.pod("shop", "web-0");
        let result = bench.call("ADD", &pod).with_netconf("cniVersion", version).run(&bench.node).unwrap();
        let answer = result.result().unwrap();
        assert_eq!(answer["cniVersion"], version);
        assert_eq!(answer["interfaces"][1]["sandbox"], pod.netns().path().display().to_string());
        assert_eq!(answer["ips"][0].get("version").is_some(), version.starts_with("0."));
        let check =
            bench.call("CHECK", &pod).with_netconf("cniVersion", version).with_netconf("prevResult", answer);
        let checked = check.run(&bench.node).unwrap();
        if version.starts_with("0.3.") {
            assert_eq!(checked.error().unwrap().0, 1);
        } else {
            assert!(checked.success, "{}{}", checked.stdout, checked.stderr);
            assert_eq!(checked.stdout, "");
        }
        bench.del(&pod).result_of_del();
    }
    bench.assert_nothing_left();
}

fn the_same_add_gets_the_same_answer(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    let first = bench.add(&pod).result().unwrap();
    let before = bench.records();
    assert_eq!(bench.add(&pod).result().unwrap(), first);
    assert_eq!(bench.records(), before);
    // Also when the kernel has lost something in between.
    bench.node.namespace().ip(&["route", "flush", "proto", "112"]).unwrap();
    assert_eq!(bench.add(&pod).result().unwrap(), first);
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn a_del_can_be_repeated_and_needs_neither_namespace_nor_add(bench: &Bench) {
    let never = bench.pod("shop", "never");
    bench.del(&never).result_of_del();
    let pod = bench.pod("shop", "web-0");
    bench.add(&pod).result().unwrap();
    bench.call("DEL", &pod).with("CNI_NETNS", "").run(&bench.node).unwrap().result_of_del();
    bench.assert_nothing_left();
    bench.del(&pod).result_of_del();
    let pod = bench.pod("shop", "web-0");
    bench.add(&pod).result().unwrap();
    pod.netns().delete().unwrap();
    bench.del(&pod).result_of_del();
    bench.del(&pod).result_of_del();
    // Not even the pod's name is needed: podman and others send none.
    let pod = bench.pod("shop", "web-0");
    bench.add(&pod).result().unwrap();
    bench
        .call("DEL", &pod)
        .with("CNI_ARGS", "")
        .with("CNI_NETNS", "")
        .run(&bench.node)
        .unwrap()
        .result_of_del();
    bench.assert_nothing_left();
}

/// Incident `stale-delete`: the runtime retries the DEL of an old sandbox after a new one of the same pod is up.
fn a_late_del_of_an_old_sandbox_leaves_the_new_pod_alone(bench: &Bench) {
    let old = bench.pod("lijiaob", "etcd1-0");
    bench.add(&old).result().unwrap();
    bench.del(&old).result_of_del();
    let new = bench.pod("lijiaob", "etcd1-0");
    let address = bench.add(&new).address().unwrap();
    let before = bench.records();
    for netns in
        [old.netns().path().display().to_string(), String::new(), new.netns().path().display().to_string()]
    {
        bench.call("DEL", &old).with("CNI_NETNS", &netns).run(&bench.node).unwrap().result_of_del();
        assert_eq!(bench.records(), before);
        assert!(new.netns().can_ping(bench.node.address()).unwrap());
        assert!(bench.node.namespace().can_ping(&address.to_string()).unwrap());
    }
    assert!(bench.node.namespace().ip(&["link", "show", "cali9118ebbb10b"]).is_ok());
    bench.del(&new).result_of_del();
    bench.assert_nothing_left();
}

fn two_live_sandboxes_of_one_pod_both_have_a_network(bench: &Bench) {
    let (old, new) = (bench.pod("shop", "web-0"), bench.pod("shop", "web-0"));
    let old_address = bench.add(&old).address().unwrap();
    let new_address = bench.add(&new).address().unwrap();
    assert_ne!(old_address, new_address);
    for pod in [&old, &new] {
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    }
    assert_eq!(bench.add(&old).address().unwrap(), old_address);
    let endpoint = bench.endpoint_of(&new);
    assert!(endpoint.contains(&new.container_id) && !endpoint.contains(&old.container_id), "{endpoint}");
    bench.del(&old).result_of_del();
    bench.assert_books_match_pods(&[(&new, new_address)]);
    assert!(new.netns().can_ping(bench.node.address()).unwrap());
    bench.del(&new).result_of_del();
    bench.assert_nothing_left();
}

fn a_second_interface_that_fails_leaves_the_first_alone(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    bench.add(&pod).result().unwrap();
    // Somebody's route stands where the second interface's belongs: the second attachment fails and the first stays.
    pod.netns().ip(&["route", "add", "169.254.1.1", "dev", "lo", "metric", "101"]).unwrap();
    let second = bench.call("ADD", &pod).with("CNI_IFNAME", "net1").run(&bench.node).unwrap();
    let (code, message) = second.error().unwrap();
    assert_eq!(code, 101, "{message}");
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    assert_eq!(bench.handle_count(sandbox_of(&pod).handle().as_str()), 1);
    bench.del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn an_interface_that_is_there_fails_the_add_before_anything_is_written(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    pod.netns().ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "other"]).unwrap();
    let before = bench.records();
    let (code, message) = bench.add(&pod).error().unwrap();
    assert_eq!((code, message.as_str()), (4, "the pod already has an interface eth0"));
    assert_eq!(bench.records(), before);
    bench.assert_nothing_left();
}

fn an_add_that_fails_late_is_undone(bench: &Bench) {
    let first = bench.pod("shop", "first");
    let address = bench.add(&first).address().unwrap();
    // A stranger holds the route of the address that comes next, so the last step fails.
    let IpAddr::V4(v4) = address else { panic!("an IPv4 address") };
    let next = std::net::Ipv4Addr::from(u32::from(v4) + 1).to_string();
    bench.node.namespace().ip(&["route", "add", "blackhole", &next]).unwrap();
    let second = bench.pod("shop", "second");
    let (code, message) = bench.add(&second).error().unwrap();
    assert_eq!(code, 101);
    assert!(message.starts_with(&format!("cannot add route {next}/32 dev cali")), "{message}");
    bench.assert_books_match_pods(&[(&first, address)]);
    assert_eq!(second.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
    assert!(first.netns().can_ping(bench.node.address()).unwrap());
    // A namesake's record that the failed ADD had replaced is back. Now no address of the block can be routed.
    let endpoint = bench.endpoint_of(&first);
    for taken in common::block_addresses(v4).iter().filter(|taken| **taken != address.to_string()) {
        bench.node.namespace().ip(&["route", "replace", "blackhole", taken]).unwrap();
    }
    let namesake = bench.pod("shop", "first");
    assert_eq!(bench.add(&namesake).error().unwrap().0, 101);
    assert_eq!(bench.endpoint_of(&first), endpoint);
    bench.assert_books_match_pods(&[(&first, address)]);
    bench.node.namespace().ip(&["route", "flush", "type", "blackhole"]).unwrap();
    bench.del(&first).result_of_del();
    bench.assert_nothing_left();
}

fn concurrent_adds_get_an_address_each(bench: &Bench) {
    let pods: Vec<_> =
        (0..testkit::count(8, 60)).map(|number| bench.pod("shop", &format!("web-{number}"))).collect();
    let children: Vec<_> =
        pods.iter().map(|pod| bench.call("ADD", pod).spawn(&bench.node).unwrap()).collect();
    let outcomes = children.into_iter().map(|child| lab::CniOutcome::from(child.wait_with_output().unwrap()));
    let addresses: Vec<IpAddr> = outcomes.map(|outcome| outcome.address().unwrap()).collect();
    let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
    assert_eq!(distinct.len(), pods.len());
    let pairs: Vec<_> = pods.iter().zip(addresses.iter().copied()).collect();
    bench.assert_books_match_pods(&pairs);
    let children: Vec<_> =
        pods.iter().map(|pod| bench.call("DEL", pod).spawn(&bench.node).unwrap()).collect();
    for child in children {
        lab::CniOutcome::from(child.wait_with_output().unwrap()).result_of_del();
    }
    bench.assert_nothing_left();
}

fn check_finds_what_is_missing(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    let answer = bench.add(&pod).result().unwrap();
    let address = bench.add(&pod).address().unwrap().to_string();
    let check = bench.call("CHECK", &pod).with_netconf("prevResult", answer);
    assert!(check.run(&bench.node).unwrap().success);
    let node = bench.node.namespace();
    node.ip(&["route", "del", &address]).unwrap();
    let outcome = check.run(&bench.node).unwrap();
    assert_eq!(outcome.error().unwrap().0, 104);
    let details = outcome.json().unwrap()["details"].to_string();
    assert!(details.contains(&format!("route {address}/32 is missing")), "{details}");
    bench.add(&pod).result().unwrap();
    assert!(check.run(&bench.node).unwrap().success);
    pod.netns().ip(&["neigh", "flush", "dev", "eth0", "nud", "permanent"]).unwrap();
    assert_eq!(check.run(&bench.node).unwrap().error().unwrap().0, 104);
    bench.add(&pod).result().unwrap();
    assert!(check.run(&bench.node).unwrap().success);
    bench.remove_record(&Key::Handle(sandbox_of(&pod).handle()));
    let details = check.run(&bench.node).unwrap().json().unwrap()["details"].to_string();
    assert!(details.contains("the IPAM records hold [] for it"), "{details}");
}

#[test]
fn without_a_pool_the_error_says_how_to_make_one() {
    let Some(bench) = Bench::empty("without_a_pool_the_error_says_how_to_make_one") else { return };
    let pod = bench.pod("shop", "web-0");
    let outcome = bench.add(&pod);
    assert_eq!(outcome.error().unwrap(), (103, "there is no IP pool".to_owned()));
    assert!(outcome.json().unwrap()["details"].to_string().contains("plumb apply -f"));
    // The veth is made while the records are being written, and goes when there are none.
    assert_eq!(pod.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
    bench.del(&pod).result_of_del();
    assert!(bench.records().is_empty());
}

fn a_locked_store_is_left_alone_until_it_is_unlocked(bench: &Bench) {
    let (pod, late) = (bench.pod("shop", "web-0"), bench.pod("shop", "late"));
    bench.add(&pod).result().unwrap();
    bench.set_ready(false);
    let before = bench.records();
    assert_eq!(bench.add(&late).error().unwrap(), (11, "the store is locked for a migration".to_owned()));
    bench.del(&pod).result_of_del();
    assert_eq!(bench.records(), before);
    bench.set_ready(true);
    // The DEL was queued, and is finished by the next call.
    bench.add(&late).result().unwrap();
    assert_eq!(bench.handle_count(sandbox_of(&pod).handle().as_str()), 0);
    bench.del(&late).result_of_del();
    bench.assert_nothing_left();
}

fn pools_and_reservations_decide_the_address(bench: &Bench) {
    bench.put(
        Kind::IpPool,
        "special",
        json!({"cidr": "10.9.0.0/28", "blockSize": 28, "assignmentMode": "Manual"}),
    );
    bench.put(Kind::IpReservation, "kept", json!({"reservedCIDRs": ["10.9.0.0/29", "10.9.0.8"]}));
    let pod = bench.pod("shop", "web-0");
    let ipam = json!({"type": "calico-ipam", "ipv4_pools": ["special"]});
    let outcome = bench.call("ADD", &pod).with_netconf("ipam", ipam).run(&bench.node).unwrap();
    assert_eq!(outcome.address().unwrap().to_string(), "10.9.0.9");
    bench.del(&pod).result_of_del();
    assert!(bench.add(&pod).address().unwrap().to_string().starts_with("10.244.0."));
    bench.del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn bad_input_gets_a_clean_error(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    let mut calls = refused_adds(|| bench.call("ADD", &pod));
    let add = || bench.call("ADD", &pod);
    calls.extend([
        (add().with_netconf("datastore_type", "stone"), 7),
        (add().with_netconf("agent_socket", "/run/plumb/agent.sock"), 11),
    ]);
    bench.assert_refused(calls.iter().map(|(call, code)| (call, *code)));
}

#[test]
fn plugin_and_daemon_name_the_same_versions() {
    let Some(bench) = Bench::empty("plugin_and_daemon_name_the_same_versions") else { return };
    let pod = bench.pod("shop", "web-0");
    let call = bench.call("VERSION", &pod).with_netconf("cniVersion", "1.1.0");
    let plugin = call.run(&bench.node).unwrap().result().unwrap();
    let daemon = std::process::Command::new(bench.programs().daemon())
        .arg("cni")
        .env("CNI_COMMAND", "VERSION")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let daemon: serde_json::Value = serde_json::from_slice(&daemon.stdout).unwrap();
    assert_eq!(plugin, daemon);
}

on_sqlite_and_kubernetes! {
    two_pods_reach_each_other_and_the_node_and_leave_nothing
    every_version_gets_its_shape_and_check_passes_right_after_add
    the_same_add_gets_the_same_answer
    a_del_can_be_repeated_and_needs_neither_namespace_nor_add
    a_late_del_of_an_old_sandbox_leaves_the_new_pod_alone
    two_live_sandboxes_of_one_pod_both_have_a_network
    a_second_interface_that_fails_leaves_the_first_alone
    an_interface_that_is_there_fails_the_add_before_anything_is_written
    an_add_that_fails_late_is_undone
    concurrent_adds_get_an_address_each
    check_finds_what_is_missing
    a_locked_store_is_left_alone_until_it_is_unlocked
    pools_and_reservations_decide_the_address
    bad_input_gets_a_clean_error
}
