//! Pods from their creation to their end, as Kubernetes' API sees them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lab::cluster::Plan;
use lab::kubelet::{KubeletRequest, LeftBehind, PodState};
use lab::ping::Outcome;
use serde_json::{Value, json};
use testkit::process::wait_until;

use crate::scene::{add, delete, holders, key, noted, plan, read, read_pod, up};

#[test]
fn a_lab_runs_on_kubernetes_and_leaves_no_trace() {
    let Some(lab) = up("a_lab_runs_on_kubernetes_and_leaves_no_trace", || plan(2)) else { return };
    let settings = lab.status().store_settings;
    assert_eq!(settings[0], ("DATASTORE_TYPE".to_owned(), "kubernetes".to_owned()));
    let kubeconfig = PathBuf::from(&settings[1].1);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&kubeconfig), mode(kubeconfig.parent().unwrap())), (0o600, 0o700));
    let conflist = lab.root_of("node1").unwrap().join("etc/cni/net.d/10-plumb.conflist");
    assert!(!fs::read_to_string(conflist).unwrap().contains("kubeconfig"), "the agent has it");

    let node = read(&lab, "/api/v1/nodes/node2").unwrap();
    assert_eq!(node["status"]["addresses"][0], json!({"type": "InternalIP", "address": "172.30.0.2"}));
    assert_eq!(node["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(node["metadata"]["annotations"]["projectcalico.org/IPv4Address"], "172.30.0.2/24");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node2";
    wait_until("the node's lease", || read(&lab, lease).is_some()).unwrap();

    let (web, db) = (add(&lab, "node1", "shop/web-0"), add(&lab, "node2", "db-0"));
    assert_ne!(web.addresses, db.addresses);
    let object = read_pod(&lab, "shop/web-0").unwrap();
    assert_eq!(object["metadata"]["uid"], web.uid);
    assert_eq!(
        (&object["spec"]["nodeName"], &object["status"]["phase"]),
        (&json!("node1"), &json!("Running"))
    );
    assert_eq!(object["status"]["podIPs"], json!([{"ip": web.addresses[0]}]));
    assert_eq!(noted(&object, "containerID"), web.container_id);
    let lost: Vec<_> = lab::ping::all(&lab).unwrap();
    let lost: Vec<_> = lost.iter().filter(|trip| trip.outcome != Outcome::Answered).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(lab.plumb(&["get", "wep", "-A", "-o", "name"]).unwrap().lines().count(), 2);

    delete(&lab, "node1", "shop/web-0", true);
    assert_eq!((read_pod(&lab, "shop/web-0"), holders(&lab)), (None, vec![db.container_id]));
    for node in ["node1", "node2"] {
        let log = lab.log_tail(node, "agent", usize::MAX);
        assert!(log.contains(&format!("/{node}.kubeconfig")), "it is not the administrator: {log}");
        assert!(!log.contains("refuses access"), "the shipped role and policies are enough: {log}");
    }
    let removed = lab.down().unwrap();
    assert!(removed.folder && removed.namespaces == 3, "{removed:?}");
    assert!(!kubeconfig.exists());
}

#[test]
fn the_plugin_alone_uses_the_kubeconfig() {
    let alone = || Plan { has_agents: false, ..plan(1) };
    let Some(lab) = up("the_plugin_alone_uses_the_kubeconfig", alone) else { return };
    let conflist = lab.root_of("node1").unwrap().join("etc/cni/net.d/10-plumb.conflist");
    let conflist: Value = serde_json::from_slice(&fs::read(conflist).unwrap()).unwrap();
    let status = lab.status();
    let own = Path::new(&status.store_settings[1].1).with_file_name("node1.kubeconfig");
    assert_eq!(conflist["plugins"][0]["kubernetes"]["kubeconfig"], own.display().to_string());
    let pod = add(&lab, "node1", "web-0");
    assert_eq!(noted(&read_pod(&lab, "web-0").unwrap(), "containerID"), pod.container_id);
    lab.kubelet("node1", &KubeletRequest::Check).unwrap();
    delete(&lab, "node1", "web-0", true);
    assert_eq!((read_pod(&lab, "web-0"), holders(&lab)), (None, vec![]));
}

/// Kubernetes marks a pod as deleted at once, and keeps it until its DEL is done.
#[test]
fn a_pod_that_ends_stays_until_its_del_is_done() {
    let Some(lab) = up("a_pod_that_ends_stays_until_its_del_is_done", || plan(1)) else { return };
    let pod = add(&lab, "node1", "web-0");
    lab.kubelet("node1", &KubeletRequest::HoldDels { is_held: true }).unwrap();
    delete(&lab, "node1", "web-0", false);
    let ending = read_pod(&lab, "web-0").unwrap();
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(noted(&ending, "podIP"), format!("{}/32", pod.addresses[0]), "it may still use it");
    assert_eq!(holders(&lab), [pod.container_id]);
    lab.kubelet("node1", &KubeletRequest::HoldDels { is_held: false }).unwrap();
    wait_until("the pod to go", || read_pod(&lab, "web-0").is_none()).unwrap();
    assert_eq!(holders(&lab), [] as [String; 0]);
}

/// A StatefulSet's pod is deleted by force and comes back, with another UID, while the old sandbox still waits for its DEL.
#[test]
fn a_late_del_leaves_the_pod_alone_that_has_the_name_now() {
    let Some(lab) = up("a_late_del_leaves_the_pod_alone_that_has_the_name_now", || plan(1)) else { return };
    let old = add(&lab, "node1", "web-0");
    lab.kubelet("node1", &KubeletRequest::HoldDels { is_held: true }).unwrap();
    delete(&lab, "node1", "web-0", false);
    let new = add(&lab, "node1", "web-0");
    assert!(new.uid != old.uid && new.addresses != old.addresses);
    let before = read_pod(&lab, "web-0").unwrap();
    assert_eq!(before["metadata"]["uid"], new.uid);
    assert_eq!(noted(&before, "podIP"), format!("{}/32", new.addresses[0]));

    lab.kubelet("node1", &KubeletRequest::HoldDels { is_held: false }).unwrap();
    wait_until("the old pod to end", || lab.pods("node1").unwrap().len() == 1).unwrap();
    for _ in 0..3 {
        lab.kubelet("node1", &KubeletRequest::RepeatDel { sandbox: old.sandbox() }).unwrap();
    }
    assert_eq!(read_pod(&lab, "web-0").unwrap(), before, "not even its revision has changed");
    assert_eq!(holders(&lab), [new.container_id]);
    lab.kubelet("node1", &KubeletRequest::Check).unwrap();
    let mut ping = lab.command_on("node1").unwrap();
    assert!(ping.args(["ping", "-c", "1", "-W", "5", &new.addresses[0]]).output().unwrap().status.success());
}

/// A runtime that lost everything: Kubernetes still has the pod, which gets a new sandbox. Nothing of the old one stays.
#[test]
fn a_kubelet_without_memory_takes_its_pods_from_the_api() {
    let Some(lab) = up("a_kubelet_without_memory_takes_its_pods_from_the_api", || plan(1)) else { return };
    let (old, gone) = (add(&lab, "node1", "web-0"), add(&lab, "node1", "lost"));
    let lose = KubeletRequest::Lose { pods: vec![key("lost")], leaves: LeftBehind::Nothing };
    lab.kubelet("node1", &lose).unwrap();
    assert_eq!(read_pod(&lab, "lost"), None);
    lab.kill("node1", "kubelet").unwrap();
    lab.run_on("node1", &["ip", "netns", "del", old.netns.rsplit('/').next().unwrap()]).unwrap();
    lab.start("node1", "kubelet", &["--forget"]).unwrap();
    let running = || lab.pods("node1").unwrap().into_iter().find(|pod| pod.state == PodState::Running);
    wait_until("the pod to run again", || running().is_some()).unwrap();
    let new = running().unwrap();
    assert!(new.uid == old.uid && new.container_id != old.container_id);
    let reported = || read_pod(&lab, "web-0").unwrap()["status"]["podIP"].clone();
    wait_until("its new address to be reported", || reported() == *new.addresses[0]).unwrap();
    assert_eq!(noted(&read_pod(&lab, "web-0").unwrap(), "containerID"), new.container_id);
    // Two witnesses report each of the old sandboxes gone.
    wait_until("the old sandboxes' addresses to be released", || holders(&lab) == [&*new.container_id])
        .unwrap_or_else(|error| panic!("{error}: {:?} {gone:?}", holders(&lab)));
}
