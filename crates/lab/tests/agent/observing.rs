//! An agent that only observes, beside a network that is somebody else's: it sees and tells, and changes nothing.

use std::net::IpAddr;

use lab::Pod;
use serde_json::Value;
use testkit::process::command;

use crate::common::Bench;
use crate::running::{Agent, wait_until};

const SETTINGS: [(&str, &str); 2] = [("PLUMB_OBSERVE", "true"), ("PLUMB_DOCTOR_EVERY", "200ms")];

/// A node with one pod, and an observer that has read its records.
fn observed(test: &str) -> Option<(Bench, Agent, Pod, IpAddr)> {
    let bench = Bench::new(test)?;
    let pod = bench.pod("shop", "web");
    let address = bench.add(&pod).address().unwrap();
    let agent = bench.start_agent(&SETTINGS);
    wait_until(
        || bench.socket().exists() && bench.page("readiness").starts_with("HTTP/1.1 200"),
        || agent.log(),
    );
    Some((bench, agent, pod, address))
}

fn counted(bench: &Bench, code: &str) -> bool {
    let start = format!("plumb_findings{{code=\"{code}\",");
    bench.page("metrics").lines().any(|line| line.starts_with(&start) && !line.ends_with(" 0"))
}

#[test]
fn what_is_wrong_is_told_and_left_as_it_is() {
    let Some((bench, agent, _pod, address)) = observed("what_is_wrong_is_told_and_left_as_it_is") else {
        return;
    };
    let (records, node) = (bench.records(), bench.node.namespace());
    node.ip(&["route", "del", &address.to_string()]).unwrap();
    wait_until(|| counted(&bench, "route-missing"), || agent.log());
    assert_eq!(node.ip(&["route", "show", &address.to_string()]).unwrap(), "", "{}", agent.log());
    node.visit(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "0")).unwrap().unwrap();
    let report = diagnosed(&bench);
    let found = report["findings"].as_array().unwrap();
    assert!(found.iter().any(|finding| finding["code"] == "forwarding-off"), "{report:#}");
    assert_eq!(bench.records(), records);
    agent.stop();
    assert_eq!(bench.records(), records);
}

/// What the doctor says, called outside of the node: all it knows of the node's kernel comes from the observer.
fn diagnosed(bench: &Bench) -> Value {
    let mut plumb = command(bench.programs().plumb());
    plumb.args(["doctor", "-o", "json", "--node", bench.node.name(), "--agent-socket"]).arg(bench.socket());
    plumb.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    let output = plumb.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn calls_are_refused() {
    let Some((bench, agent, _, _)) = observed("calls_are_refused") else { return };
    let (records, pod) = (bench.records(), bench.pod("shop", "db"));
    assert_eq!(bench.agent_add(&pod).error().unwrap().0, 51);
    assert!(!pod.netns().ip(&["-br", "link"]).unwrap().contains("eth0"));
    assert_eq!(bench.records(), records);
    drop(agent);
}

/// No store is named, and none is made: the node alone is worth a look.
#[test]
fn without_a_store_the_kernel_is_looked_at() {
    let Some(bench) = Bench::empty("without_a_store_the_kernel_is_looked_at") else { return };
    let unnamed = [("DATASTORE_TYPE", ""), ("SQLITE_PATH", "")];
    let agent = bench.start_agent(&[&SETTINGS[..], &unnamed].concat());
    wait_until(|| bench.socket().exists(), || agent.log());
    wait_until(|| bench.page("metrics").contains("plumb_findings{"), || agent.log());
    assert!(!bench.lab.store_path().exists());
    agent.stop();
}
