//! Faults of a cluster whose records Kubernetes keeps: each is found, and nothing besides; a repair mends it, and can be taken back.

use lab::kubelet::{KubeletRequest, LeftBehind, PodState};
use model::ipam::{Affinity, AffinityState};
use model::{AffinityOwner, Cidr, HandleId, Key};
use serde_json::{Value, json};
use testkit::process::wait_until;

use crate::desk::{Desk, REPAIRS, found, path_of, pod_key, subject};
use crate::scene::{add, delete, holders, noted, read_pod};

fn notes(address: &str) -> Value {
    let network = match address {
        "" => String::new(),
        address => format!("{address}/32"),
    };
    json!({ "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network })
}

/// One lab for all: each fault leaves nothing behind.
#[test]
fn the_doctor_sees_kubernetes_and_repairs_it() {
    let Some(desk) = Desk::up("the_doctor_sees_kubernetes_and_repairs_it") else { return };
    an_annotation_disagrees_with_the_books(&desk);
    an_annotation_alone_is_a_warning(&desk);
    a_late_del_emptied_the_annotations(&desk);
    an_address_is_in_two_pods(&desk);
    a_route_is_missing(&desk);
    a_kubelet_is_silent(&desk);
    a_node_is_deleted_while_its_records_stay(&desk);
    a_pod_has_a_namesake(&desk);
    a_pod_is_gone_and_its_address_is_not(&desk);
}

/// As when two ADDs of one name crossed.
fn an_annotation_disagrees_with_the_books(desk: &Desk) {
    let pod = &desk.pods[0];
    desk.annotate(pod, &notes("10.244.250.9"));
    desk.mends(&[found("endpoint-address-differs", subject(pod))]);
    let object = read_pod(&desk.lab, "shop/web-0").unwrap();
    assert_eq!(noted(&object, "podIP"), format!("{}/32", pod.addresses[0]));
}

/// Calico's plugin notes no MAC address; then what the kubelet reports counts.
fn an_annotation_alone_is_a_warning(desk: &Desk) {
    let pod = &desk.pods[0];
    let mac =
        read_pod(&desk.lab, "shop/web-0").unwrap()["metadata"]["annotations"]["plumbline.io/mac"].clone();
    assert!(mac.is_string());
    let mut odd = notes("10.244.250.9");
    odd["plumbline.io/mac"] = Value::Null;
    desk.annotate(pod, &odd);
    desk.sees(&[found("endpoint-address-differs", subject(pod))]);
    let left = desk.left();
    let advised = format!("cni.projectcalico.org/podIP={}/32", pod.addresses[0]);
    assert!(
        left.len() == 1 && left[0].contains("only its annotations are wrong") && left[0].contains(&advised),
        "{left:?}"
    );
    let mut right = notes(&pod.addresses[0]);
    right["plumbline.io/mac"] = mac;
    desk.annotate(pod, &right);
    desk.sees(&[]);
}

/// The DEL of an older sandbox took the addresses off the pod that has the name now, and out of the books.
fn a_late_del_emptied_the_annotations(desk: &Desk) {
    let pod = &desk.pods[1];
    let mut emptied = notes("");
    emptied["plumbline.io/mac"] = Value::Null;
    desk.annotate(pod, &emptied);
    desk.mends(&[found("pod-without-endpoint", subject(pod))]);
    let restored = read_pod(&desk.lab, "shop/web-1").unwrap();
    assert_eq!(noted(&restored, "podIP"), format!("{}/32", pod.addresses[0]));
    assert_eq!(noted(&restored, "containerID"), pod.container_id);

    desk.annotate(pod, &emptied);
    let address = pod.addresses[0].parse().unwrap();
    let handle = HandleId::of_sandbox(lab::cluster::NETWORK, &pod.container_id);
    desk.edit_block(&pod.addresses[0], |block| {
        let ordinal = block.ordinal(address).unwrap();
        ipam::give_back(block, &[ordinal], None);
    });
    desk.change(Key::Handle(handle), |_| None);
    // The free address follows from it.
    let report = desk.report();
    assert_eq!(report["findings"][0]["symptoms"][0]["code"], "address-used-but-free", "{report:#}");
    desk.mends(&[found("pod-without-endpoint", subject(pod))]);
    assert!(holders(&desk.lab).contains(&pod.container_id));
}

/// The plugin and the kubelet say of one pod what is another's.
fn an_address_is_in_two_pods(desk: &Desk) {
    let (pod, other) = (&desk.pods[0], &desk.pods[2]);
    desk.annotate(other, &notes(&pod.addresses[0]));
    desk.report_address(other, &pod.addresses[0]);
    desk.sees(&[found("address-shared", &pod.addresses[0])]);
    desk.report_address(other, &other.addresses[0]);
    desk.annotate(other, &notes(&other.addresses[0]));
    desk.sees(&[]);
}

fn a_route_is_missing(desk: &Desk) {
    let pod = &desk.pods[0];
    desk.lab.run_on("node1", &["ip", "route", "del", &pod.addresses[0]]).unwrap();
    desk.mends(&[found("route-missing", format!("route {}/32 on node1", pod.addresses[0]))]);
}

/// What the controller manager writes when a kubelet has not renewed its lease.
fn a_kubelet_is_silent(desk: &Desk) {
    let ready = |status: &str, reason: &str| {
        json!({ "status": { "conditions": [
            { "type": "Ready", "status": status, "reason": reason, "message": "Kubelet stopped posting node status." }
        ] } })
    };
    desk.patch("/api/v1/nodes/node2/status", &ready("Unknown", "NodeStatusUnknown"));
    desk.sees(&[found("node-not-ready", "node node2")]);
    let report = desk.report();
    let shown = report["findings"][0]["summary"].as_str().unwrap();
    assert_eq!(shown, "node node2 is not ready, but 2 pods there are still shown as Running");
    desk.patch("/api/v1/nodes/node2/status", &ready("True", "KubeletReady"));
    desk.sees(&[]);
}

fn a_node_is_deleted_while_its_records_stay(desk: &Desk) {
    let owner = AffinityOwner::Host("node9".to_owned());
    let block: Cidr = "10.244.200.0/26".parse().unwrap();
    let affinity = Affinity::new(AffinityState::Confirmed).encode();
    let empty = ipam::new_block(block, &owner, None, "2026-01-01T00:00:00Z".parse().unwrap());
    desk.change(Key::Affinity { owner: owner.clone(), block }, |_| Some(affinity));
    desk.change(Key::Block(block), |_| Some(empty.encode()));
    desk.mends(&[found("affinity-of-gone-node", "node node9")]);
}

/// A pod is deleted by force and comes back with another UID, while the DEL of its sandbox is late.
fn a_pod_has_a_namesake(desk: &Desk) {
    let old = &desk.pods[3];
    // One that observes serves no runtime.
    desk.restart_agent("node2", &[]);
    desk.lab.kubelet("node2", &KubeletRequest::HoldDels { is_held: true }).unwrap();
    delete(&desk.lab, "node2", "shop/db-1", false);
    let new = add(&desk.lab, "node2", "shop/db-1");
    assert!(new.uid != old.uid && new.container_id != old.container_id);
    let before = read_pod(&desk.lab, "shop/db-1").unwrap();
    let findings = desk.findings();
    assert!(findings.iter().all(|(_, subject)| !subject.contains(&new.addresses[0])), "{findings:?}");
    desk.plumb(&["repair", "--apply", "--settle", "0.1", "--grace", "1"]).output().unwrap();
    assert_eq!(read_pod(&desk.lab, "shop/db-1").unwrap(), before, "not even its revision has changed");
    assert!(holders(&desk.lab).contains(&new.container_id));
    desk.lab.kubelet("node2", &KubeletRequest::HoldDels { is_held: false }).unwrap();
    let is_over = || desk.lab.pods("node2").unwrap().iter().all(|pod| pod.state == PodState::Running);
    wait_until("the old sandbox to end", is_over).unwrap();
    desk.restart_agent("node2", &REPAIRS);
    desk.sees(&[]);
    assert_eq!(read_pod(&desk.lab, "shop/db-1").unwrap(), before);
}

/// Kubernetes is one of the witnesses, without any text: the pod does not exist there any more.
fn a_pod_is_gone_and_its_address_is_not(desk: &Desk) {
    let pod = &desk.pods[2];
    let lose = KubeletRequest::Lose { pods: vec![pod_key("shop/db-0")], leaves: LeftBehind::Nothing };
    desk.lab.kubelet("node2", &lose).unwrap();
    desk.lab
        .with_api(|api| api.get(&path_of(&pod.key())))
        .map(|answer| assert_eq!(answer.status, 404))
        .unwrap();
    let mut doctor = desk.findings();
    doctor.retain(|(code, _)| code == "address-leaked");
    assert_eq!(doctor, [found("address-leaked", &pod.addresses[0])].into());
    let id = desk.apply();
    assert!(!holders(&desk.lab).contains(&pod.container_id));
    desk.sees(&[]);
    desk.undo(&id);
    assert!(holders(&desk.lab).contains(&pod.container_id));
}
