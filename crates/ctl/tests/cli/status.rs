//! `plumb status`: does the network work?

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use model::cluster::AGENT_VERSION_ANNOTATION;
use serde_json::{Value, json};
use testkit::etcd::{Setup, start_or_skip};

use crate::harness::{Desk, PLUMB, Ran, machine_has_own_config, pool};

/// Writes a Node record, as the node's agent leaves it at its start.
fn register(desk: &Desk, name: &str, address: &str, annotations: &Value) {
    let node = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "Node", "metadata": { "name": name, "annotations": annotations },
        "spec": { "bgp": { "ipv4Address": format!("{address}/24") } }
    });
    desk.apply(&node.to_string());
}

fn with_agent(version: &str) -> Value {
    json!({ AGENT_VERSION_ANNOTATION: version })
}

fn status(desk: &Desk, arguments: &[&str]) -> Ran {
    desk.plumb(&[&["status", "--settle", "0"], arguments].concat())
}

#[track_caller]
fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn from_nothing_to_a_network(desk: &Desk) {
    desk.apply(&pool("pods", "10.0.0.0/24"));
    let ran = status(desk, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("Status        the network does not work\n"), "{ran:?}");
    assert!(ran.stdout.contains("- no node is registered"), "{ran:?}");

    register(desk, "node-a", "192.0.2.1", &with_agent("0.1.0"));
    register(desk, "node-b", "192.0.2.2", &json!({}));
    let ran = status(desk, &["-o", "json"]);
    let found = document(&ran);
    assert_eq!((ran.code, &found["works"]), (Some(1), &json!(false)));
    assert_eq!(found["problems"], json!(["no agent has started on node-b"]), "{ran:?}");
    assert_eq!(found["agents"]["versions"], json!({ "0.1.0": 1 }));
    assert_eq!(found["pools"][0]["free"], 256);

    register(desk, "node-b", "192.0.2.2", &with_agent("0.2.0"));
    let ran = status(desk, &["--wait"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("on 2 of 2 nodes: 1 × version 0.1.0, 1 × version 0.2.0\n"), "{ran:?}");

    // What does not keep packets from arriving is said, and is no reason to wait.
    desk.apply("apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: none}\nspec: {selector: all()}\n");
    let mut noting = with_agent("0.1.0");
    noting["plumbline.io/policies-not-enforced"] = "1".into();
    register(desk, "node-a", "192.0.2.1", &noting);
    let ran = status(desk, &[]);
    assert!(
        ran.code == Some(0) && ran.stdout.contains("\nNot enforced  one record denies traffic"),
        "{ran:?}"
    );
}

#[test]
fn on_sqlite_the_screen_says_what_is_missing() {
    let test = "on_sqlite_the_screen_says_what_is_missing";
    if !machine_has_own_config(test) {
        from_nothing_to_a_network(&Desk::on_sqlite());
    }
}

#[test]
fn on_etcd_the_screen_says_what_is_missing() {
    let test = "on_etcd_the_screen_says_what_is_missing";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    if !machine_has_own_config(test) {
        from_nothing_to_a_network(&Desk::on_etcd(&cluster));
    }
}

#[test]
fn a_script_waits_for_the_network() {
    let test = "a_script_waits_for_the_network";
    if machine_has_own_config(test) {
        return;
    }
    let desk = Desk::on_sqlite();
    let mut command = desk.command(PLUMB);
    let mut waiting = command
        .args(["status", "--settle", "0", "--wait=3000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has found out that there is no store yet.
    let mut said = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting: "), "{line}");
    desk.apply(&pool("pods", "10.0.0.0/24"));
    register(&desk, "node-a", "192.0.2.1", &with_agent("0.1.0"));
    assert!(waiting.wait().unwrap().success());

    let nowhere = Desk::on_sqlite();
    let ran = status(&nowhere, &["--wait=0"]);
    assert!(ran.code == Some(2) && ran.stdout.is_empty(), "{ran:?}");
}
