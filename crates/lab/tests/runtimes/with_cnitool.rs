//! Our plugin called by cnitool, which is libcni, the library in most runtimes, with a command line.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;
use testkit::process::{on_path, run, wait_until};

use crate::machine::{self, NODE_ADDRESS};
use crate::node::{NETWORK, Node, Service};

with_and_without_agent! {
    cnitool_adds_checks_and_removes_in_every_version,
    cnitool_asks_for_the_status,
    cnitool_collects_only_what_it_remembers,
}

/// The version that brought GC and STATUS.
const WITH_ALL_VERBS: &str = "1.1.0";

/// A node. `None`, with the reason reported, where cnitool cannot run.
fn node(test: &str, service: Service) -> Option<Node> {
    let missing = machine::missing(&[]).or_else(|| {
        let reason = "cnitool is not installed; `cargo xtask test` builds it where there is Go and a network";
        (!on_path("cnitool")).then(|| reason.to_owned())
    });
    if let Some(reason) = missing {
        testkit::skip(test, &reason);
        return None;
    }
    Some(Node::start(service).unwrap())
}

fn cnitool(node: &Node, verb: &str, netns: &Path) -> Result<String> {
    let mut command = node.machine.command("cnitool");
    command.args([verb, NETWORK]).arg(netns);
    command.env("NETCONFPATH", node.configurations()).env("CNI_PATH", node.plugins());
    let output = run(&mut command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn namespace(node: &Node, name: &str) -> PathBuf {
    node.machine.run("ip", &["netns", "add", name]).unwrap();
    node.machine.run("ip", &["-n", name, "link", "set", "lo", "up"]).unwrap();
    Path::new("/run/netns").join(name)
}

fn cnitool_adds_checks_and_removes_in_every_version(test: &str, service: Service) {
    let Some(node) = node_with_all_verbs(test, service) else { return };
    let netns = namespace(&node, "box");
    for version in node.supported_versions().unwrap() {
        node.configure(&version, &[]).unwrap();
        let result: Value = serde_json::from_str(&cnitool(&node, "add", &netns).unwrap()).unwrap();
        assert_eq!(result["cniVersion"], version);
        assert!(node.machine.can_ping(&netns, NODE_ADDRESS), "{version}");
        node.assert_pods(1);
        // libcni itself refuses CHECK before 0.4.0.
        if version.as_str() >= "0.4.0" {
            cnitool(&node, "check", &netns).unwrap();
            // An agent would have put it right before anybody can ask.
            if service == Service::OneShot {
                node.machine.run("ip", &["route", "flush", "proto", "112"]).unwrap();
                cnitool(&node, "check", &netns).unwrap_err();
            }
        }
        // The second time libcni has nothing to say about what there was.
        for _ in 0..2 {
            cnitool(&node, "del", &netns).unwrap();
            node.assert_pods(0);
        }
    }
}

/// A node whose network is configured for GC and STATUS.
fn node_with_all_verbs(test: &str, service: Service) -> Option<Node> {
    let node = node(test, service)?;
    node.configure(WITH_ALL_VERBS, &[]).unwrap();
    // An agent that has just started says that it is not ready yet, and cnitool does not try again as runtimes do.
    wait_until("the network to be ready", || cnitool(&node, "status", Path::new("")).is_ok()).unwrap();
    Some(node)
}

fn cnitool_asks_for_the_status(test: &str, service: Service) {
    let Some(node) = node_with_all_verbs(test, service) else { return };
    assert_eq!(node.calls().last().map(|call| call.verb.clone()), Some("STATUS".to_owned()));
}

fn cnitool_collects_only_what_it_remembers(test: &str, service: Service) {
    let Some(node) = node_with_all_verbs(test, service) else { return };
    let namespaces = ["a", "b"].map(|name| namespace(&node, name));
    for namespace in &namespaces {
        cnitool(&node, "add", namespace).unwrap();
    }
    node.assert_pods(2);
    // One is forgotten by libcni, and with it the DEL that it would send by itself.
    let forget_one = "cd /var/lib/cni/results && rm \"$(ls | head -1)\"";
    node.machine.run("sh", &["-c", forget_one]).unwrap();
    // What libcni remembers gets a DEL. Of the others it says nothing, not even that none is to stay: they do.
    let refused = cnitool(&node, "gc", Path::new("")).unwrap_err().to_string();
    assert!(refused.contains("GC needs cni.dev/valid-attachments"), "{refused}");
    assert!(node.calls().iter().any(|call| call.verb == "GC"), "{:?}", node.calls());
    node.assert_pods(1);
    for namespace in &namespaces {
        cnitool(&node, "del", namespace).unwrap();
    }
    node.assert_pods(0);
}
