//! Calls that the agent serves: pods come, talk, are checked, go.

use std::net::IpAddr;

use serde_json::json;

use crate::common::{Bench, DelOutcome as _, sandbox_of};
use crate::running::wait_until;
use crate::stories::on_sqlite_and_kubernetes;

fn the_agent_connects_pods_and_leaves_nothing(bench: &Bench) {
    let agent = bench.agent(&[]);
    let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
    let web_address = bench.agent_add(&web).address().unwrap();
    let db_address = bench.agent_add(&db).address().unwrap();
    assert!(web.netns().can_ping(&db_address.to_string()).unwrap());
    assert!(web.netns().can_ping(bench.node.address()).unwrap());
    bench.assert_books_match_pods(&[(&web, web_address), (&db, db_address)]);
    assert_eq!(bench.metric("attachments"), 2);
    bench.agent_del(&web).result_of_del();
    bench.assert_books_match_pods(&[(&db, db_address)]);
    bench.agent_del(&db).result_of_del();
    bench.agent_del(&db).result_of_del();
    bench.assert_nothing_left();
    assert_eq!(bench.metric("attachments"), 0);
    // What is out of service is removed behind the calls.
    let links = || bench.node.namespace().ip(&["-br", "link"]).unwrap();
    wait_until(|| links().lines().count() == 1, links);
    agent.stop();
    assert!(!bench.socket().exists());
}

fn the_same_add_gets_the_same_answer_also_after_a_restart(bench: &Bench) {
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let first = bench.agent_add(&pod).result().unwrap();
    assert_eq!(bench.agent_add(&pod).result().unwrap(), first);
    agent.kill();
    let _agent = bench.agent(&[]);
    assert_eq!(bench.agent_add(&pod).result().unwrap(), first);
    assert_eq!(bench.metric("attachments"), 1);
    let check = bench.agent_call("CHECK", &pod).with_netconf("prevResult", first);
    let checked = check.run(&bench.node).unwrap();
    assert!(checked.success, "{}{}", checked.stdout, checked.stderr);
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn a_graceful_stop_and_a_kill_leave_pods_connected(bench: &Bench) {
    let pod = bench.pod("shop", "web-0");
    let agent = bench.agent(&[]);
    let address = bench.agent_add(&pod).address().unwrap();
    agent.stop();
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent(&[]).kill();
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.assert_books_match_pods(&[(&pod, address)]);
    let _agent = bench.agent(&[]);
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn a_second_interface_and_given_addresses_work(bench: &Bench) {
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let asked = json!({"ips": ["10.244.0.77/24"], "mac": "02:11:22:33:44:55"});
    let add = bench.agent_call("ADD", &pod).with_netconf("runtimeConfig", asked);
    let first = add.run(&bench.node).unwrap();
    assert_eq!(first.address().unwrap().to_string(), "10.244.0.77");
    assert_eq!(first.result().unwrap()["interfaces"][1]["mac"], "02:11:22:33:44:55");
    let second = bench.agent_call("ADD", &pod).with("CNI_IFNAME", "net1").run(&bench.node).unwrap();
    assert_ne!(second.address().unwrap(), first.address().unwrap());
    assert_eq!(bench.handle_count(sandbox_of(&pod).handle().as_str()), 2);
    bench.agent_call("DEL", &pod).with("CNI_IFNAME", "net1").run(&bench.node).unwrap().result_of_del();
    bench.assert_books_match_pods(&[(&pod, first.address().unwrap())]);
    // An address that somebody has is not given.
    let other = bench.pod("shop", "web-1");
    let taken =
        bench.agent_call("ADD", &other).with_netconf("runtimeConfig", json!({"ips": ["10.244.0.77"]}));
    assert_eq!(taken.run(&bench.node).unwrap().error().unwrap().0, 103);
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn both_ip_versions_at_once(bench: &Bench) {
    bench.put(model::Kind::IpPool, "pods6", json!({"cidr": "fd00:244::/112"}));
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let ipam = json!({"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"});
    let answer = bench.agent_call("ADD", &pod).with_netconf("ipam", ipam.clone()).run(&bench.node).unwrap();
    let answer = answer.result().unwrap();
    let addresses: Vec<IpAddr> = answer["ips"].as_array().unwrap().iter().map(address_of).collect();
    assert!(addresses.len() == 2 && addresses[0].is_ipv4() && addresses[1].is_ipv6(), "{answer}");
    for address in &addresses {
        assert!(bench.node.namespace().can_ping(&address.to_string()).unwrap(), "{address}");
    }
    let check = bench.agent_call("CHECK", &pod).with_netconf("ipam", ipam).with_netconf("prevResult", answer);
    let checked = check.run(&bench.node).unwrap();
    assert!(checked.success, "{}{}", checked.stdout, checked.stderr);
    bench.agent_del(&pod).result_of_del();
    assert_eq!(bench.handle_count(sandbox_of(&pod).handle().as_str()), 0);
}

fn address_of(ip: &serde_json::Value) -> IpAddr {
    ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap()
}

fn many_at_once_get_an_address_each(bench: &Bench) {
    let _agent = bench.agent(&[]);
    let pods: Vec<_> = (0..testkit::count(12, 60)).map(|n| bench.pod("shop", &format!("web-{n}"))).collect();
    let calls: Vec<_> =
        pods.iter().map(|pod| bench.agent_call("ADD", pod).spawn(&bench.node).unwrap()).collect();
    let mut connected = Vec::new();
    for (pod, child) in pods.iter().zip(calls) {
        let outcome = lab::CniOutcome::from(child.wait_with_output().unwrap());
        connected.push((pod, outcome.address().unwrap()));
    }
    bench.assert_books_match_pods(&connected);
    let calls: Vec<_> =
        pods.iter().map(|pod| bench.agent_call("DEL", pod).spawn(&bench.node).unwrap()).collect();
    for child in calls {
        lab::CniOutcome::from(child.wait_with_output().unwrap()).result_of_del();
    }
    bench.assert_nothing_left();
}

fn gc_removes_what_the_runtime_does_not_list(bench: &Bench) {
    let _agent = bench.agent(&[]);
    let (kept, gone) = (bench.pod("shop", "kept"), bench.pod("shop", "gone"));
    let address = bench.agent_add(&kept).address().unwrap();
    bench.agent_add(&gone).result().unwrap();
    let gc = || bench.agent_call("GC", &kept).with_netconf("cniVersion", "1.1.0");
    let refused = gc().run(&bench.node).unwrap();
    assert_eq!(refused.error().unwrap().0, 7, "without a list nothing may go");
    let listed = json!([{"containerID": kept.container_id, "ifname": kept.interface}]);
    gc().with_netconf("cni.dev/valid-attachments", listed).run(&bench.node).unwrap().result_of_del();
    bench.assert_books_match_pods(&[(&kept, address)]);
    assert!(kept.netns().can_ping(bench.node.address()).unwrap());
    gc().with_netconf("cni.dev/valid-attachments", json!([])).run(&bench.node).unwrap().result_of_del();
    bench.assert_nothing_left();
}

#[test]
fn an_empty_store_is_filled_as_by_a_first_calico_node() {
    let Some(bench) = Bench::empty("an_empty_store_is_filled_as_by_a_first_calico_node") else { return };
    let settings =
        [("NO_DEFAULT_POOLS", "false"), ("CALICO_IPV4POOL_CIDR", "10.9.0.0/16"), ("IP", "192.0.2.1/24")];
    let _agent = bench.agent(&settings);
    let records = bench.records();
    let names: Vec<String> = records.keys().map(ToString::to_string).collect();
    for expected in
        ["Node(node-a)", "ClusterInformation(default)", "IPPool(default-ipv4-ippool)", "Tier(default)"]
    {
        assert!(names.iter().any(|name| name == expected), "{expected}: {names:?}");
    }
    let pod = bench.pod("shop", "web-0");
    assert!(bench.agent_add(&pod).address().unwrap().to_string().starts_with("10.9."));
    bench.agent_del(&pod).result_of_del();
}

on_sqlite_and_kubernetes! {
    the_agent_connects_pods_and_leaves_nothing
    the_same_add_gets_the_same_answer_also_after_a_restart
    a_graceful_stop_and_a_kill_leave_pods_connected
    a_second_interface_and_given_addresses_work
    both_ip_versions_at_once
    many_at_once_get_an_address_each
    gc_removes_what_the_runtime_does_not_list
}
