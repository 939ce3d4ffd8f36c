//! What an operator's repair asks an agent for: carried out by one that acts and by one that observes and repairs, refused by one that only
//! observes. Never anything that harms a live sandbox.

use std::net::IpAddr;

use lab::kubelet::Listing;
use lab::{Lab, Pod};
use plan::task::{KernelChange, NextHop, PodNetwork, RepairTask, TaskOutcome, Veth};
use serde_json::{Value, json};

use crate::adoption::{as_calico_made_it, device_of, runtime};
use crate::common::Bench;
use crate::hostile::{frame, say};
use crate::running::{Agent, wait_until};

/// The agent's answer to any question: whether it is a success, and its text.
fn ask(bench: &Bench, question: &Value) -> (bool, String) {
    let answer = say(bench, &frame(&question.to_string()));
    let answer: Value = serde_json::from_slice(&answer[4..]).unwrap();
    (answer["exit"] == 0, answer["stdout"].as_str().unwrap().to_owned())
}

fn repair(bench: &Bench, works: &[RepairTask]) -> Vec<TaskOutcome> {
    let (success, text) = ask(bench, &json!({"version": 1, "ask": "repair", "works": works}));
    assert!(success, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn does(bench: &Bench, work: &RepairTask) -> Option<RepairTask> {
    match repair(bench, std::slice::from_ref(work)).remove(0) {
        TaskOutcome::Done { undo } => undo.map(|undo| *undo),
        other => panic!("{work}: {other:?}"),
    }
}

#[track_caller]
fn refuses(bench: &Bench, work: &RepairTask, reason: &str) {
    match repair(bench, std::slice::from_ref(work)).remove(0) {
        TaskOutcome::Surprise { said } => assert!(said.contains(reason), "{work}: {said}"),
        other => panic!("{work}: {other:?}"),
    }
}

fn mode(bench: &Bench) -> String {
    let (_, bundle) = ask(bench, &json!({"version": 1, "ask": "evidence"}));
    let modes = ["acts", "observes", "repairs"];
    let is_told = |mode: &&str| bundle.contains(&format!("\"agent_mode\":\"{mode}\""));
    modes.into_iter().find(is_told).unwrap_or_else(|| panic!("{bundle}")).to_owned()
}

/// A node with one pod, its agent with these settings, and a runtime that has the pod.
fn scene(test: &str, settings: &[(&str, &str)]) -> Option<(Bench, Agent, Pod, IpAddr, Listing)> {
    let bench = Bench::new(test)?;
    let pod = bench.pod("shop", "web");
    let address = bench.add(&pod).address().unwrap();
    let listing = runtime(&bench, &[&pod]);
    let endpoint = format!("unix://{}/cri.sock", bench.state_folder().display());
    let known = [("CONTAINER_RUNTIME_ENDPOINT", endpoint.as_str()), ("PLUMB_GRACE", "1s")];
    let agent = bench.start_agent(&[settings, &known].concat());
    wait_until(
        || bench.socket().exists() && bench.page("readiness").starts_with("HTTP/1.1 200"),
        || agent.log(),
    );
    Some((bench, agent, pod, address, listing))
}

const REPAIRS: [(&str, &str); 2] = [("PLUMB_OBSERVE", "true"), ("PLUMB_REPAIR", "true")];

fn route(address: IpAddr, device: &str) -> RepairTask {
    let to = NextHop { device: Some(device.to_owned()), ..NextHop::default() };
    RepairTask::here(KernelChange::Route { destination: address.into(), from: None, to: Some(to) })
}

fn removal(bench: &Bench, device: &str) -> RepairTask {
    let look = || host::survey::Survey::here().unwrap();
    let links = bench.node.namespace().visit(look).unwrap().links;
    let link = links.into_iter().find(|link| link.name == device).expect("it is there");
    let from = Veth { index: Some(link.index), alias: link.alias, mac: link.mac, ..Veth::default() };
    RepairTask::here(KernelChange::Device { device: device.to_owned(), from: Some(from), to: None })
}

#[test]
fn one_that_only_observes_repairs_nothing() {
    let only = [("PLUMB_OBSERVE", "true")];
    let Some((bench, agent, pod, address, _runtime)) = scene("one_that_only_observes_repairs_nothing", &only)
    else {
        return;
    };
    assert_eq!(mode(&bench), "observes");
    let device = device_of(&bench, &pod);
    bench.node.namespace().ip(&["route", "del", &address.to_string()]).unwrap();
    let works = [route(address, &device)];
    let (success, text) = ask(&bench, &json!({"version": 1, "ask": "repair", "works": works}));
    assert!(!success && text.contains("only observes") && text.contains("--repair"), "{text}");
    assert_eq!(bench.node.namespace().ip(&["route", "show", &address.to_string()]).unwrap(), "");
    assert!(agent.log().contains("refused"), "{}", agent.log());
}

#[test]
fn one_that_observes_and_repairs_does_as_it_is_told_and_no_more() {
    let test = "one_that_observes_and_repairs_does_as_it_is_told_and_no_more";
    let Some((bench, agent, pod, address, _runtime)) = scene(test, &REPAIRS) else { return };
    assert_eq!(mode(&bench), "repairs");
    assert_eq!(bench.agent_add(&bench.pod("shop", "db")).error().unwrap().0, 51, "it serves no calls");
    let (device, node) = (as_calico_made_it(&bench, &pod, address), bench.node.namespace());
    node.ip(&["route", "del", &address.to_string()]).unwrap();
    node.ip(&["link", "set", &device, "mtu", "1300"]).unwrap();
    let undo = does(&bench, &route(address, &device)).unwrap();
    let shown = node.ip(&["-d", "route", "show", &address.to_string()]).unwrap();
    assert!(shown.contains(&device) && shown.contains("proto boot"), "as Felix marks its own: {shown}");
    assert_eq!(repair(&bench, &[route(address, &device)]), [TaskOutcome::Already]);
    does(&bench, &undo);
    does(&bench, &route(address, &device));
    assert!(node.ip(&["link", "show", &device]).unwrap().contains("mtu 1300"), "nobody asked for that");
    let metrics = bench.page("metrics");
    assert!(metrics.contains("plumb_repairs_total{outcome=\"done\"} 3\n"), "{metrics}");
    assert!(metrics.contains("plumb_repairs_total{outcome=\"already\"} 1\n"), "{metrics}");
    assert!(
        agent.log().contains(&format!("repair: applied step=ip route replace {address}/32 dev {device}"))
    );
}

#[test]
fn the_network_of_a_running_sandbox_is_made_anew_inside_and_out() {
    let test = "the_network_of_a_running_sandbox_is_made_anew_inside_and_out";
    let Some((bench, _agent, pod, address, _runtime)) = scene(test, &REPAIRS) else { return };
    let (device, node) = (device_of(&bench, &pod), bench.node.namespace());
    let inside = |change| RepairTask::inside(pod.container_id.as_str(), change);
    pod.netns().ip(&["link", "set", "eth0", "mtu", "1300"]).unwrap();
    does(&bench, &inside(KernelChange::Mtu { device: "eth0".to_owned(), from: 1300, to: 1450 }));
    assert!(pod.netns().ip(&["link", "show", "eth0"]).unwrap().contains("mtu 1450"));
    node.ip(&["link", "del", &device]).unwrap();
    let wire = PodNetwork {
        network: Lab::NETWORK.to_owned(),
        container_id: pod.container_id.clone(),
        interface: "eth0".to_owned(),
        device,
        addresses: vec![address],
        mac: None,
        mtu: Some(1450),
    };
    let undo = does(&bench, &RepairTask::here(KernelChange::Wire(wire.clone()))).unwrap();
    assert!(node.can_ping(&address.to_string()).unwrap());
    does(&bench, &undo);
    assert!(!node.can_ping(&address.to_string()).unwrap());
    let other = PodNetwork { container_id: "f".repeat(64), ..wire };
    refuses(&bench, &RepairTask::here(KernelChange::Wire(other)), "does not list");
}

#[test]
fn a_device_goes_only_when_nobody_lives_behind_it() {
    let test = "a_device_goes_only_when_nobody_lives_behind_it";
    let Some((bench, _agent, pod, address, listing)) = scene(test, &REPAIRS) else { return };
    // Calico's: no alias tells whose it is.
    let device = as_calico_made_it(&bench, &pod, address);
    let before = bench.node.namespace().ip(&["-o", "link"]).unwrap();
    refuses(&bench, &removal(&bench, &device), "which is ready");
    assert_eq!(bench.node.namespace().ip(&["-o", "link"]).unwrap(), before);
    listing.stop(&pod).unwrap();
    let undo = does(&bench, &removal(&bench, &device)).unwrap();
    assert_eq!(repair(&bench, &[undo.undo()]), [TaskOutcome::Already]);
    does(&bench, &undo);
    does(&bench, &removal(&bench, &device));
}

/// Its socket is there no more: it starts anew, or was stopped.
#[test]
fn a_runtime_that_cannot_be_asked_is_no_reason_to_remove_anything() {
    let test = "a_runtime_that_cannot_be_asked_is_no_reason_to_remove_anything";
    let Some((bench, _agent, pod, address, _listing)) = scene(test, &REPAIRS) else { return };
    let device = device_of(&bench, &pod);
    std::fs::remove_file(bench.state_folder().join("cri.sock")).unwrap();
    refuses(&bench, &removal(&bench, &device), "cannot be asked");
    let up = KernelChange::Up { device: "eth0".to_owned(), from: true, to: false };
    refuses(&bench, &RepairTask::inside(pod.container_id.as_str(), up), "cannot be asked");
    assert!(bench.node.namespace().can_ping(&address.to_string()).unwrap());
}

#[test]
fn one_that_acts_repairs_what_is_not_its_own_to_keep() {
    let test = "one_that_acts_repairs_what_is_not_its_own_to_keep";
    let Some((bench, agent, pod, address, _runtime)) = scene(test, &[]) else { return };
    assert_eq!(mode(&bench), "acts");
    wait_until(|| bench.metric("attachments") == 1, || agent.log());
    let (device, node) = (device_of(&bench, &pod), bench.node.namespace());
    refuses(&bench, &removal(&bench, &device), "the agent keeps");
    let wire = PodNetwork {
        network: Lab::NETWORK.to_owned(),
        container_id: pod.container_id.clone(),
        interface: "eth0".to_owned(),
        device: device.clone(),
        addresses: vec!["10.244.0.77".parse().unwrap()],
        mac: None,
        mtu: None,
    };
    refuses(&bench, &RepairTask::here(KernelChange::Wire(wire.clone())), &format!("addresses {address}"));
    node.ip(&["link", "add", "cali0000000000a", "type", "veth", "peer", "name", "stray"]).unwrap();
    does(&bench, &removal(&bench, "cali0000000000a"));
    // The undo of a wiring that the agent has taken over since: it lets go of it.
    let same = PodNetwork { addresses: vec![address], ..wire };
    does(&bench, &RepairTask::here(KernelChange::Unwire(same.clone())));
    assert_eq!(bench.metric("attachments"), 0);
    does(&bench, &RepairTask::here(KernelChange::Wire(same)));
    wait_until(|| bench.metric("attachments") == 1, || agent.log());
    assert!(node.can_ping(&address.to_string()).unwrap());
}

#[test]
fn questions_that_make_no_sense_do_no_harm() {
    let test = "questions_that_make_no_sense_do_no_harm";
    let Some((bench, mut agent, pod, address, _runtime)) = scene(test, &[]) else { return };
    let device = device_of(&bench, &pod);
    let works = |works: Value| json!({"version": 1, "ask": "repair", "works": works});
    let up = json!({"act": "up", "device": device, "from": false, "to": true});
    for broken in [
        works(json!("all of it")),
        works(json!([{"act": "reboot"}])),
        works(json!([{"act": "up", "device": device}])),
        works(json!([up, {"act": "route", "destination": "everywhere", "from": null, "to": null}])),
        works(Value::Array(vec![up.clone(); 257])),
        json!({"version": 1, "ask": "repair"}),
        json!({"version": 7, "ask": "repair", "works": []}),
    ] {
        let (success, text) = ask(&bench, &broken);
        assert!(!success && !text.is_empty(), "{broken}: {text}");
    }
    assert_eq!(repair(&bench, &[]), []);
    let done = repair(&bench, &vec![serde_json::from_value(up).unwrap(); 256]);
    assert!(done.iter().all(|done| *done == TaskOutcome::Already) && done.len() == 256);
    assert!(agent.is_running() && bench.node.namespace().can_ping(&address.to_string()).unwrap());
}
