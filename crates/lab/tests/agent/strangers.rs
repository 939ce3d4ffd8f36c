//! What others change on the node is put right; what is theirs is left alone.

use crate::common::{Bench, DelOutcome as _};
use crate::running::wait_until;

#[test]
fn what_a_stranger_breaks_is_put_right() {
    let Some(bench) = Bench::new("what_a_stranger_breaks_is_put_right") else { return };
    let agent = bench.agent(&[]);
    let (pod, other) = (bench.pod("shop", "web-0"), bench.pod("shop", "web-1"));
    let answer = bench.agent_add(&pod).result().unwrap();
    bench.agent_add(&other).result().unwrap();
    let device = answer["interfaces"][0]["name"].as_str().unwrap().to_owned();
    let address = answer["ips"][0]["address"].as_str().unwrap().trim_end_matches("/32").to_owned();
    let node = bench.node.namespace();
    let check = bench.agent_call("CHECK", &pod).with_netconf("prevResult", answer.clone());
    let is_fine = || check.run(&bench.node).unwrap().success;
    assert!(is_fine());
    for broken in [
        &["route", "del", &address][..],
        &["neigh", "del", &address, "dev", &device],
        &["link", "set", &device, "down"],
        &["link", "set", &device, "mtu", "1300"],
        &["link", "set", &device, "name", "stolen0"],
    ] {
        node.ip(broken).unwrap();
        wait_until(is_fine, || format!("{broken:?}: {}", agent.log()));
        assert!(pod.netns().can_ping(bench.node.address()).unwrap(), "{broken:?}");
    }
    node.visit(|| std::fs::write(format!("/proc/sys/net/ipv4/conf/{device}/forwarding"), "0"))
        .unwrap()
        .unwrap();
    wait_until(is_fine, || agent.log());
    node.visit(|| std::fs::write(format!("/proc/sys/net/ipv4/conf/{device}/route_localnet"), "0"))
        .unwrap()
        .unwrap();
    wait_until(is_fine, || agent.log());
    assert!(bench.metric("mended_total") >= 6);
    assert_eq!(bench.metric("unmended"), 0);
    for pod in [&pod, &other] {
        bench.agent_del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}

#[test]
fn what_breaks_while_the_agent_is_down_is_put_right_at_its_start() {
    let Some(bench) = Bench::new("what_breaks_while_the_agent_is_down_is_put_right_at_its_start") else {
        return;
    };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let address = bench.agent_add(&pod).address().unwrap();
    agent.kill();
    let node = bench.node.namespace();
    node.ip(&["route", "flush", "proto", "112"]).unwrap();
    // A route of ours that nothing asks for any more.
    node.ip(&["route", "add", "10.244.0.200", "dev", "lo", "proto", "112"]).unwrap();
    node.ip(&["route", "add", "10.77.0.0/24", "dev", "lo"]).unwrap();
    let _agent = bench.agent(&[]);
    bench.assert_books_match_pods(&[(&pod, address)]);
    assert!(node.ip(&["route"]).unwrap().contains("10.77.0.0/24"), "a stranger's route stays");
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&pod).result_of_del();
}

#[test]
fn a_device_that_was_deleted_is_made_anew() {
    let Some(bench) = Bench::new("a_device_that_was_deleted_is_made_anew") else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let answer = bench.agent_add(&pod).result().unwrap();
    let device = answer["interfaces"][0]["name"].as_str().unwrap();
    bench.node.namespace().ip(&["link", "del", device]).unwrap();
    let check = bench.agent_call("CHECK", &pod).with_netconf("prevResult", answer.clone());
    wait_until(|| check.run(&bench.node).unwrap().success, || agent.log());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}
