//! What a pod makes in its own namespace costs the agent neither its memory nor its sight of others.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::effort::resident_bytes;
use testkit::process::command;

use crate::common::{Bench, DelOutcome as _};
use crate::running::{Agent, wait_until};

const MANY: u32 = 300_000;
/// Far below what reading them all takes, which is near 2 GB.
const MORE_MAX: u64 = 100 << 20;

fn batch(bench: &Bench, namespace: &str, lines: impl Iterator<Item = String>) {
    let mut ip = Command::new("ip");
    ip.args(["-n", namespace, "-batch", "-"]).stdin(Stdio::piped());
    let mut child = ip.spawn().unwrap();
    let mut input = std::io::BufWriter::new(child.stdin.take().unwrap());
    lines.for_each(|line| writeln!(input, "{line}").unwrap());
    drop(input);
    assert!(child.wait().unwrap().success(), "{}", bench.node.name());
}

fn numbered(number: u32) -> String {
    let [_, b, c, d] = number.to_be_bytes();
    format!("11.{b}.{c}.{d}")
}

fn numbered_v6(number: u32) -> String {
    format!("fd11::{:x}:{:x}", number >> 16, number & 0xffff)
}

fn peak(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn doctor(bench: &Bench) -> Value {
    let mut plumb = command(bench.programs().plumb());
    plumb.args(["doctor", "-o", "json", "--node", bench.node.name(), "--agent-socket"]).arg(bench.socket());
    plumb.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    let output = plumb.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn crowded(report: &Value) -> Vec<&Value> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.filter(|finding| finding["code"] == "pod-network-crowded").collect()
}

/// The same of the other IP version, on a device of the pod's own: `eth0` may be without that version.
fn crowd_v6(bench: &Bench, inside: &str) {
    let own = ["link add own type veth peer name own-peer", "link set own up", "link set own-peer up"]
        .map(str::to_owned);
    batch(bench, inside, own.into_iter());
    let routes = (0..MANY).map(|number| format!("route add {}/128 dev own", numbered_v6(number)));
    batch(bench, inside, routes);
    let neighbours = (0..3000).map(|number| {
        format!("neigh add {} lladdr 02:00:00:00:00:01 dev own nud permanent", numbered_v6(number))
    });
    batch(bench, inside, neighbours);
    let addresses =
        (0..3000).map(|number| format!("address add {}/128 dev own nodad", numbered_v6(1 << 23 | number)));
    batch(bench, inside, addresses);
}

#[test]
fn what_a_pod_makes_does_not_fill_the_agents_memory() {
    let Some(bench) = Bench::new("what_a_pod_makes_does_not_fill_the_agents_memory") else { return };
    let agent = bench.agent(&[]);
    let (hostile, other) = (bench.pod("shop", "hostile"), bench.pod("shop", "other"));
    let hostile_v6 = bench.pod("shop", "other-version");
    for pod in [&hostile, &hostile_v6, &other] {
        bench.agent_add(pod).result().unwrap();
    }
    let healthy = doctor(&bench);
    assert_eq!(crowded(&healthy), [] as [&Value; 0], "{healthy:#}");
    let before = resident_bytes(agent.id()).unwrap();
    let inside = hostile.netns().name();
    let routes = (0..MANY).map(|number| format!("route add {} dev eth0", numbered(number)));
    batch(&bench, inside, routes);
    let neighbours = (0..3000).map(|number| {
        format!("neigh add {} lladdr 02:00:00:00:00:01 dev eth0 nud permanent", numbered(number))
    });
    batch(&bench, inside, neighbours);
    let addresses = (0..3000).map(|number| format!("address add {}/32 dev eth0", numbered(1 << 23 | number)));
    batch(&bench, inside, addresses);
    let links = (0..150).map(|number| format!("link add d{number} type veth peer name e{number}"));
    batch(&bench, inside, links);
    crowd_v6(&bench, hostile_v6.netns().name());
    let report = doctor(&bench);
    let found = crowded(&report);
    assert_eq!(found.len(), 2, "{report:#}");
    let about = |pod: &str| {
        let is_about = |finding: &&&Value| finding["subject"].to_string().contains(pod);
        found.iter().find(is_about).unwrap()["summary"].as_str().unwrap()
    };
    for what in ["routes", "neighbours", "addresses", "links"] {
        assert!(about("hostile").contains(what), "{}", about("hostile"));
    }
    for what in ["routes", "neighbours", "addresses"] {
        assert!(about("other-version").contains(what), "{}", about("other-version"));
    }
    let unseen = report["unseen"].to_string();
    assert!(unseen.contains("was not read completely"), "{unseen}");
    let (most, after) = (peak(&agent), || resident_bytes(agent.id()).unwrap());
    eprintln!("{} MB before, {} MB at most, {} MB after", before >> 20, most >> 20, after() >> 20);
    assert!(most < before + MORE_MAX, "{} MB before, {} MB at most", before >> 20, most >> 20);
    wait_until(|| after() < before + MORE_MAX / 2, || format!("{} MB", after() >> 20));
    // It takes part in everything else all the same.
    let check = bench
        .agent_call("CHECK", &other)
        .with_netconf("prevResult", bench.agent_add(&other).result().unwrap());
    assert!(check.run(&bench.node).unwrap().success, "{}", agent.log());
    assert!(bench.page("readiness").starts_with("HTTP/1.1 200"), "{}", bench.page("readiness"));
    for pod in [&hostile, &hostile_v6, &other] {
        bench.agent_del(pod).result_of_del();
    }
    bench.assert_nothing_left();
}
