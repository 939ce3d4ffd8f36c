//! What others change on the node is put right; what is theirs is left alone.

use lab::Pod;
use model::Kind;
use serde_json::json;

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
    assert!(bench.metric("mended_total") >= 5);
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

/// Reads a setting of the node, or changes it.
fn setting(bench: &Bench, path: &str, value: Option<&str>) -> String {
    let file = format!("/proc/sys/{path}");
    let act = || {
        if let Some(value) = value {
            std::fs::write(&file, value).unwrap();
        }
        std::fs::read_to_string(&file).unwrap().trim_end().to_owned()
    };
    bench.node.namespace().visit(act).unwrap()
}

#[test]
fn every_setting_that_somebody_flips_is_put_right() {
    let Some(bench) = Bench::new("every_setting_that_somebody_flips_is_put_right") else { return };
    bench.put(Kind::IpPool, "pods6", json!({"cidr": "fd00:10:244::/112"}));
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let both = json!({"assign_ipv4": "true", "assign_ipv6": "true"});
    let add = bench.agent_call("ADD", &pod).with_netconf("ipam", both);
    let answer = add.run(&bench.node).unwrap().result().unwrap();
    let device = answer["interfaces"][0]["name"].as_str().unwrap().to_owned();
    let announced = [
        format!("net/ipv4/conf/{device}/forwarding 0"),
        format!("net/ipv4/conf/{device}/proxy_arp 0"),
        format!("net/ipv4/conf/{device}/rp_filter 2"),
        format!("net/ipv6/conf/{device}/forwarding 0"),
        format!("net/ipv6/conf/{device}/proxy_ndp 0"),
        format!("net/ipv6/conf/{device}/disable_ipv6 1"),
        "net/ipv4/ip_forward 0".to_owned(),
        "net/ipv6/conf/all/forwarding 0".to_owned(),
    ];
    assert_eq!(setting(&bench, "net/ipv4/ip_forward", None), "1", "the ADD sees to it");
    let looks_before = bench.metric("reconciles_total");
    for change in &announced[..6] {
        flip_and_wait(&bench, change, || agent.log());
    }
    let looks = bench.metric("reconciles_total") - looks_before;
    assert!(looks < 6, "the kernel announced these, and {looks} looks at the whole node were needed");
    for change in &announced[6..] {
        flip_and_wait(&bench, change, || agent.log());
    }
    // In silence; one look finds them all.
    let silent = [
        format!("net/ipv4/conf/{device}/route_localnet 0"),
        format!("net/ipv4/neigh/{device}/proxy_delay 80"),
        format!("net/ipv6/conf/{device}/accept_ra 2"),
        format!("net/ipv6/conf/{device}/accept_dad 1"),
    ];
    let paths = silent.each_ref().map(|change| change.split_once(' ').unwrap());
    let before = paths.map(|(path, _)| setting(&bench, path, None));
    for (path, value) in paths {
        assert_eq!(setting(&bench, path, Some(value)), value);
    }
    wait_until(|| paths.map(|(path, _)| setting(&bench, path, None)) == before, || agent.log());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    assert_eq!(bench.metric("unmended"), 0);
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

#[track_caller]
fn flip_and_wait(bench: &Bench, change: &str, report: impl Fn() -> String) {
    let (path, value) = change.split_once(' ').unwrap();
    let before = setting(bench, path, None);
    assert_ne!(before, value, "{path} would not be flipped");
    setting(bench, path, Some(value));
    wait_until(|| setting(bench, path, None) == before, || format!("{change}: {}", report()));
}

#[test]
fn a_strangers_route_stays_behind_ours_and_is_said() {
    let Some(bench) = Bench::new("a_strangers_route_stays_behind_ours_and_is_said") else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let address = bench.agent_add(&pod).address().unwrap().to_string();
    let node = bench.node.namespace();
    node.ip(&["route", "replace", &address, "dev", "lo", "proto", "static"]).unwrap();
    let first = || node.ip(&["route", "show", &address]).unwrap().lines().next().unwrap().to_owned();
    wait_until(|| first().contains("dev cali"), || agent.log());
    wait_until(|| bench.metric("rival_routes") == 1, || agent.log());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    let routes = node.ip(&["route", "show", &address]).unwrap();
    assert!(routes.contains("dev lo proto static"), "the stranger's route is gone: {routes}");
    assert!(agent.log().contains(&format!("another program has a route to {address}/32")), "{}", agent.log());
    assert_eq!(bench.metric("unmended"), 0);
    bench.agent_del(&pod).result_of_del();
    assert!(node.ip(&["route"]).unwrap().contains("dev lo proto static"));
}

#[test]
fn a_device_is_made_anew_although_a_stranger_took_its_route() {
    let test = "a_device_is_made_anew_although_a_stranger_took_its_route";
    let Some(bench) = Bench::new(test) else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let answer = bench.agent_add(&pod).result().unwrap();
    let device = answer["interfaces"][0]["name"].as_str().unwrap();
    let address = answer["ips"][0]["address"].as_str().unwrap().trim_end_matches("/32");
    agent.kill();
    let node = bench.node.namespace();
    node.ip(&["link", "del", device]).unwrap();
    node.ip(&["route", "add", address, "dev", "lo", "proto", "static"]).unwrap();
    let agent = bench.agent(&[]);
    let check = bench.agent_call("CHECK", &pod).with_netconf("prevResult", answer.clone());
    wait_until(|| check.run(&bench.node).unwrap().success, || agent.log());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    let routes = node.ip(&["route", "show", address]).unwrap();
    assert!(routes.contains("dev lo proto static"), "the stranger's route is gone: {routes}");
    bench.agent_del(&pod).result_of_del();
}

#[test]
fn a_pod_that_a_call_is_at_work_on_is_left_to_the_call() {
    let Some(bench) = Bench::new("a_pod_that_a_call_is_at_work_on_is_left_to_the_call") else { return };
    let agent = bench.agent(&[]);
    let (pod, other) = (bench.pod("shop", "web-0"), bench.pod("shop", "web-1"));
    let localnet = |pod: &Pod| {
        let answer = bench.agent_add(pod).result().unwrap();
        format!("net/ipv4/conf/{}/route_localnet", answer["interfaces"][0]["name"].as_str().unwrap())
    };
    let (held, free) = (localnet(&pod), localnet(&other));
    agent.stop();
    // A DEL that stops before it has touched anything.
    let agent = bench.agent(&[("PLUMB_FAILPOINT", "del.fenced:pause")]);
    let mut del = bench.agent_call("DEL", &pod).spawn(&bench.node).unwrap();
    wait_until(|| agent.log().contains("failpoint del.fenced reached"), || agent.log());
    let looks_before = bench.metric("reconciles_total");
    setting(&bench, &held, Some("0"));
    for _ in 0..2 {
        setting(&bench, &free, Some("0"));
        // Makes the agent look at everything at once.
        setting(&bench, "net/ipv4/ip_forward", Some("0"));
        wait_until(|| setting(&bench, &free, None) == "1", || agent.log());
    }
    // The other pod may also have been looked at by itself.
    wait_until(|| bench.metric("reconciles_total") >= looks_before + 2, || agent.log());
    assert_eq!(setting(&bench, &held, None), "0", "a look changed what a call was at work on");
    // The plugin first: it would queue its DEL.
    del.kill().unwrap();
    del.wait().unwrap();
    agent.kill();
    let agent = bench.agent(&[]);
    wait_until(|| setting(&bench, &held, None) == "1", || agent.log());
    for pod in [&pod, &other] {
        bench.agent_del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}
