//! Everything else that an agent must not write: handles, records of the cluster, nodes and pods.

use model::kube::place;
use model::{Key, Kind};
use serde_json::json;

use super::{Refused, owner_that_is_gone};
use crate::acts::Act;
use crate::fixture::Cluster;

pub(super) fn on_nodes_and_pods() -> Vec<Refused> {
    let annotated = |name: &str| json!({ "metadata": { "annotations": { name: "10.0.0.9/32" } } });
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    let held = json!({ "metadata": { "finalizers": ["somebody.example/holds"] } });
    let node = |what, name: &str, body| Act::merge(what, &format!("/api/v1/nodes/{name}/status"), body);
    let pod = |what, name: &str, body| {
        Act::merge(what, &format!("/api/v1/namespaces/blue/pods/web-{name}/status"), body)
    };
    let (of_node, of_pod) = ("projectcalico.org/IPv4Address", "cni.projectcalico.org/podIP");
    let address = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.1.1.1" }] } });
    vec![
        (node("another node's annotations", "node-b", annotated(of_node)), "it is another node"),
        (
            node("another program's annotation", "node-a", annotated("somebody.example/else")),
            "only annotations",
        ),
        (
            node(
                "removing another program's annotation",
                "node-a",
                json!({ "metadata": { "annotations": null } }),
            ),
            "only annotations",
        ),
        (node("the status of its node", "node-a", address), "the status may not change"),
        (node("the labels of its node", "node-a", labelled.clone()), "the labels may not change"),
        (node("a finalizer on its node", "node-a", held.clone()), "owner references and finalizers"),
        (pod("another node's pod", "node-b", annotated(of_pod)), "the pod runs on another node"),
        (
            pod("another program's annotation of a pod", "node-a", annotated("a.example/b")),
            "only annotations",
        ),
        (
            pod("the phase of its pod", "node-a", json!({ "status": { "phase": "Succeeded" } })),
            "the status may not",
        ),
        (pod("the labels of its pod", "node-a", labelled), "the labels may not change"),
        (pod("a finalizer on its pod", "node-a", held), "owner references and finalizers"),
    ]
}

pub(super) fn on_others(cluster: &Cluster) -> Vec<Refused> {
    let tunnel = Key::Handle("vxlan-tunnel-addr-node-b".into());
    let handle = format!("{}/{}", cluster.collection(Kind::IpamHandle), place(&tunnel).unwrap().name);
    let information = format!("{}/default", cluster.collection(Kind::ClusterInformation));
    let mut locked = cluster.api().read(&information).unwrap();
    let mut retyped = locked.clone();
    let mut noted = locked.clone();
    noted["metadata"]["annotations"]["projectcalico.org/metadata"] = "{".into();
    locked["spec"]["datastoreReady"] = false.into();
    let mut typed_again = retyped.clone();
    typed_again["spec"]["clusterType"] = "k8s,kdd,kdd".into();
    retyped["spec"]["clusterType"] = "other".into();
    let status = |name: &str| format!("{}/{name}", cluster.collection(Kind::CalicoNodeStatus));
    let of_b = cluster.api().read(&status("of-b")).unwrap();
    let mut own = cluster.api().read(&status("of-a")).unwrap();
    own["spec"]["node"] = "node-b".into();
    let mut with_status = of_b;
    with_status["status"] = json!({ "lastUpdated": "2026-01-01T00:00:00Z" });
    let mut owned = cluster.api().read(&format!("{}/net.a", cluster.collection(Kind::IpamHandle))).unwrap();
    let mut renamed = owned.clone();
    renamed["spec"]["handleID"] = "net.b".into();
    owned["metadata"]["ownerReferences"] = owner_that_is_gone();
    let handle_of_a = format!("{}/net.a", cluster.collection(Kind::IpamHandle));
    let mut own_status = cluster.api().read(&status("of-a")).unwrap();
    own_status["metadata"]["finalizers"] = json!(["somebody.example/holds"]);
    vec![
        (Act::replace("a handle with another ID", &handle_of_a, renamed), "a handle is named after its ID"),
        (Act::replace("a handle with an owner", &handle_of_a, owned), "owner references and finalizers"),
        (
            Act::replace("a record with a finalizer", &status("of-a"), own_status),
            "owner references and finalizers",
        ),
        (Act::delete("another node's tunnel handle", &handle), "another node's tunnel address"),
        (Act::replace("kdd twice", &information, typed_again), "of the cluster's record only"),
        (
            Act::replace("the cluster's metadata", &information, noted),
            "labels and annotations of the cluster's",
        ),
        (Act::delete_and("a handle, later", &handle_of_a, "Foreground"), "a record is deleted at once"),
        (Act::replace("the cluster's lock", &information, locked), "of the cluster's record only"),
        (Act::replace("the cluster's type", &information, retyped), "of the cluster's record only"),
        (
            Act::replace("another node's status", &format!("{}/status", status("of-b")), with_status),
            "the status is another node's",
        ),
        (Act::replace("the node of its status record", &status("of-a"), own), "the status is another node's"),
    ]
}
