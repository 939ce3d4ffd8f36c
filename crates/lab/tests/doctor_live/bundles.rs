//! The same cluster from bundles: what `plumb collect` takes along on every node says as much as a look at the live one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use lab::Programs;
use lab::cluster::StoreKind;
use lab::kubelet::{KubeletRequest, NewPod};
use model::FindingCode;

use crate::faults;
use crate::injection::Injection;
use crate::scene::{BUSY_NODES, NODES, Scene, Verdict, missing};

/// One or two of each layer, of those that need nothing but store and nodes.
const TRIED: [FindingCode; 8] = [
    FindingCode::AddressLeaked,
    FindingCode::BgpNotRunning,
    FindingCode::EndpointOfOldSandbox,
    FindingCode::ForwardingOff,
    FindingCode::HandleMissing,
    FindingCode::PodDefaultRouteMissing,
    FindingCode::PoolOverlap,
    FindingCode::RouteMissing,
];

/// A lab's nodes know each other's agents. A machine without any is looked at by itself.
const ALONE: [&str; 3] = ["env", "-u", "PLUMB_AGENT_SOCKETS"];

/// Collects on every node, with its agent or without, and looks at all of it together.
fn audit(scene: &Scene, has_agents: bool) -> Result<Verdict> {
    let folder = tempfile::tempdir()?;
    for node in NODES {
        let out = folder.path().join(format!("{node}.bundle")).display().to_string();
        let without_agent = if has_agents { vec![] } else { vec!["--node", node] };
        let alone = if has_agents { vec![] } else { ALONE.to_vec() };
        let words =
            [alone, vec!["plumb", "collect", "--settle", "0.02", "--out", &out], without_agent].concat();
        scene.lab().run_on(node, &words)?;
    }
    diagnose(folder.path())
}

/// Looks at all bundles of a folder together.
fn diagnose(folder: &Path) -> Result<Verdict> {
    let plumb: PathBuf = Programs::of_test()?.folder().join("plumb");
    let mut doctor = Command::new(plumb);
    doctor.args(["doctor", "-o", "json", "--grace", "0", "--from"]).arg(folder);
    Verdict::of(doctor)
}

#[test]
fn bundles_of_all_nodes_tell_the_same() {
    let test = "bundles_of_all_nodes_tell_the_same";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up(StoreKind::Sqlite).unwrap();
    for has_agents in [true, false] {
        let verdict = audit(&scene, has_agents).unwrap();
        assert!(verdict.roots.is_empty(), "agents: {has_agents}: {:#}", verdict.report);
    }
    let tried = faults::all().filter(|fault| TRIED.contains(&fault.code));
    for (index, fault) in tried.enumerate() {
        let has_agents = index % 2 == 0;
        let mut injection = Injection::new(&scene, fault, BUSY_NODES[index / 2 % 2], index % 4);
        (fault.inject)(&mut injection).unwrap();
        let verdict = audit(&scene, has_agents);
        injection.undo().unwrap();
        scene.restore_records().unwrap();
        let verdict = verdict.unwrap();
        let code = fault.code;
        assert_eq!(verdict.roots, injection.roots, "{code}, agents: {has_agents}: {:#}", verdict.report);
    }
}

/// Every bundle says what its machine's clock showed when the store was in which state.
#[test]
fn bundles_of_machines_whose_clocks_differ() {
    let test = "bundles_of_machines_whose_clocks_differ";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up(StoreKind::Sqlite).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |node: &str| folder.path().join(format!("{node}.bundle"));
    for node in NODES {
        let out = file(node).display().to_string();
        let words = ["plumb", "collect", "--settle", "0", "--out", &out, "--node", node];
        scene.lab().run_on(node, &[&ALONE[..], &words].concat()).unwrap();
        // Something happens in the cluster, as always: the next one reads another state.
        let (key, value) = scene.records().unwrap().pop_first().unwrap();
        scene.change(key, Some(value)).unwrap();
    }
    let verdict = diagnose(folder.path()).unwrap();
    assert!(verdict.roots.is_empty(), "{:#}", verdict.report);
    // The first machine's clock is an hour ahead: it read first, and at the latest hour of all.
    let text = std::fs::read_to_string(file(NODES[0])).unwrap();
    std::fs::write(file(NODES[0]), an_hour_later(&text)).unwrap();
    let verdict = diagnose(folder.path()).unwrap();
    let expected = [(FindingCode::ClockSkew, format!("node {}", NODES[0]))];
    assert_eq!(verdict.roots, expected.into(), "{:#}", verdict.report["findings"]);
}

/// Every moment that a bundle's reading of the clock holds, put forward.
fn an_hour_later(bundle: &str) -> String {
    let mut lines = Vec::new();
    for line in bundle.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        let readings =
            value.pointer_mut("/node/setup/clock_readings").and_then(serde_json::Value::as_array_mut);
        for reading in readings.into_iter().flatten() {
            for moment in ["before", "after"] {
                let moment = &mut reading["seen"][moment];
                let at: jiff::Timestamp = moment.as_str().unwrap().parse().unwrap();
                *moment = (at + jiff::SignedDuration::from_hours(1)).to_string().into();
            }
        }
        // What tells a bundle from other files comes first in its line.
        lines.push(if value.get("plumbBundle").is_some() { line.to_owned() } else { value.to_string() });
    }
    lines.join("\n")
}

#[test]
fn an_agent_that_observes_changes_nothing_and_serves_nobody() {
    let test = "an_agent_that_observes_changes_nothing_and_serves_nobody";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up(StoreKind::Sqlite).unwrap();
    let (node, pod) = (BUSY_NODES[0], scene.pod(BUSY_NODES[0], 0));
    let (before, address) = (scene.records().unwrap(), &pod.addresses[0]);
    scene.on(node, &format!("ip route del {address}")).unwrap();
    let new = NewPod::new(&"team/late".parse().unwrap());
    scene.lab().kubelet(node, &KubeletRequest::Add { pods: vec![new], waits: false }).unwrap();
    let report = || {
        let pods = scene.lab().pods(node).unwrap();
        pods.into_iter().find(|pod| pod.name == "late").and_then(|pod| pod.last_error)
    };
    testkit::process::wait_until("two refusals", || {
        scene.lab().pods(node).unwrap().iter().any(|pod| pod.name == "late" && pod.attempts > 1)
    })
    .unwrap();
    assert!(report().unwrap().contains("the agent of this node only observes"), "{:?}", report());
    // An agent that acts would have put it back long ago.
    assert_eq!(scene.on(node, &format!("ip route show exact {address}")).unwrap(), "");
    assert_eq!(scene.records().unwrap(), before);
    scene.lab().stop(node, "agent").unwrap();
    scene.lab().start(node, "agent", &[]).unwrap();
    testkit::process::wait_until("the route", || {
        !scene.on(node, &format!("ip route show exact {address}")).unwrap().is_empty()
    })
    .unwrap();
    testkit::process::wait_until("the late pod", || {
        scene.lab().pods(node).unwrap().iter().any(|pod| pod.name == "late" && !pod.addresses.is_empty())
    })
    .unwrap();
}
