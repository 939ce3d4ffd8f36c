//! `plumb get`, `apply`, `create`, `replace`, `delete`, `patch`, `label`.

use serde_json::{Value, json};

use crate::cluster::{Cluster, SHOP};
use crate::harness::{Desk, one_of_many_pools_wins, pool};

fn document(desk: &Desk, words: &[&str]) -> Value {
    serde_json::from_str(desk.plumb(&[words, &["-o", "json"]].concat()).succeeded()).unwrap()
}

#[test]
fn calicos_records_are_custom_resources() {
    let Some(cluster) = Cluster::for_test("calicos_records_are_custom_resources") else { return };
    let desk = cluster.desk();
    desk.file("pool.yaml", pool("pods", "10.244.0.0/16"));
    desk.plumb(&["create", "-f", "pool.yaml"]).succeeded();
    desk.plumb(&["create", "-f", "pool.yaml"]).refused(1, &["resource already exists: IPPool(pods)"]);
    desk.plumb(&["apply", "-f", "pool.yaml"]).succeeded();
    assert_eq!(
        desk.plumb(&["get", "ippools"]).succeeded().lines().nth(1).unwrap(),
        "pods   10.244.0.0/16   all()"
    );
    let stored = cluster.api.read("/apis/crd.projectcalico.org/v1/ippools/pods").unwrap();
    assert_eq!(stored["spec"]["disabled"], Value::Null, "it is in service: {stored}");
    desk.file("other.yaml", pool("other", "10.244.128.0/17"));
    desk.plumb(&["create", "-f", "other.yaml"]).refused(1, &["overlaps pool pods (10.244.0.0/16)"]);
    desk.plumb(&["patch", "ippool", "pods", "-p", "{spec: {natOutgoing: true}}"]).succeeded();
    desk.plumb(&["label", "ippool", "pods", "team=net"]).succeeded();
    let pool = document(&desk, &["get", "ippool", "pods"]);
    assert_eq!(
        (&pool["spec"]["natOutgoing"], &pool["metadata"]["labels"]["team"]),
        (&json!(true), &json!("net"))
    );
    desk.plumb(&["delete", "ippool", "pods"]).succeeded();
    assert_eq!(desk.plumb(&["get", "ippools", "-o", "name"]).succeeded(), "");
}

#[test]
fn namespaced_records_need_their_namespace() {
    let Some(cluster) = Cluster::for_test("namespaced_records_need_their_namespace") else { return };
    let desk = cluster.desk();
    desk.file("set.yaml", "{apiVersion: projectcalico.org/v3, kind: NetworkSet, metadata: {name: nets}, spec: {nets: [10.0.0.0/8]}}");
    desk.plumb(&["apply", "-f", "set.yaml", "-n", "nowhere"])
        .refused(1, &["namespaces \"nowhere\" not found"]);
    desk.plumb(&["apply", "-f", "set.yaml", "-n", SHOP]).succeeded();
    assert_eq!(desk.plumb(&["get", "networksets", "-A"]).succeeded(), "NAMESPACE   NAME\nshop        nets\n");
    desk.plumb(&["delete", "networkset", "nets", "-n", SHOP]).succeeded();
}

#[test]
fn pods_are_endpoints_that_only_kubectl_changes() {
    let Some(cluster) = Cluster::for_test("pods_are_endpoints_that_only_kubectl_changes") else { return };
    cluster.node("node-a", &json!({}));
    cluster.pod("web-0", "node-a", "10.244.0.1");
    let desk = cluster.desk();
    let table = desk.plumb(&["get", "wep", "-A"]);
    assert_eq!(
        table.succeeded(),
        "NAMESPACE   WORKLOAD   NODE     NETWORKS        INTERFACE\n\
         shop        web-0      node-a   10.244.0.1/32   calia4fc3c48bd8\n"
    );
    let name = "node--a-k8s-web--0-eth0";
    let endpoint = document(&desk, &["get", "wep", name, "-n", SHOP]);
    assert_eq!(endpoint["spec"]["containerID"], "web-0-sandbox");
    assert_eq!(endpoint["metadata"]["labels"]["app"], "web-0");
    assert_eq!(
        desk.plumb(&["get", "wep", "-A", "--selector", "app == 'other'", "-o", "name"]).succeeded(),
        ""
    );

    desk.file(
        "exported.yaml",
        desk.plumb(&["get", "wep", name, "-n", SHOP, "-o", "yaml", "--export"]).succeeded(),
    );
    let before = cluster.api.read("/api/v1/namespaces/shop/pods/web-0").unwrap();
    let told = "is not supported on WorkloadEndpoint(shop/node--a-k8s-web--0-eth0): in the Kubernetes datastore it is a view of a Pod";
    for verb in ["apply", "create", "replace", "delete"] {
        let words = [verb, "-f", "exported.yaml", "-n", SHOP];
        desk.plumb(&words).refused(
            1,
            &[&format!("operation {verb} {told}"), "hint: change or delete the Pod with kubectl"],
        );
    }
    desk.plumb(&["delete", "wep", name, "-n", SHOP]).refused(1, &[&format!("operation delete {told}")]);
    desk.plumb(&["label", "wep", name, "-n", SHOP, "a=b"]).refused(1, &[&format!("operation label {told}")]);
    desk.plumb(&["patch", "wep", name, "-n", SHOP, "-p", "{}"])
        .refused(1, &[&format!("operation patch {told}")]);
    assert_eq!(cluster.api.read("/api/v1/namespaces/shop/pods/web-0").unwrap(), before);
}

/// A file with one record that cannot be written changes nothing.
#[test]
fn a_file_with_an_endpoint_is_refused_as_a_whole() {
    let Some(cluster) = Cluster::for_test("a_file_with_an_endpoint_is_refused_as_a_whole") else { return };
    let desk = cluster.desk();
    let endpoint = "{apiVersion: projectcalico.org/v3, kind: WorkloadEndpoint, metadata: {namespace: shop}, \
                    spec: {orchestrator: k8s, node: node-a, pod: web-0, endpoint: eth0, interfaceName: cali1}}";
    desk.file("both.yaml", format!("{}---\n{endpoint}\n", pool("pods", "10.244.0.0/16")));
    desk.plumb(&["apply", "-f", "both.yaml"]).refused(1, &["both.yaml: document 2", "it is a view of a Pod"]);
    desk.plumb(&["apply", "-f", "both.yaml", "--dry-run"]).refused(1, &["it is a view of a Pod"]);
    assert_eq!(desk.plumb(&["get", "ippools", "-o", "name"]).succeeded(), "");
}

#[test]
fn of_a_node_calicos_part_can_be_changed() {
    let Some(cluster) = Cluster::for_test("of_a_node_calicos_part_can_be_changed") else { return };
    cluster.node("node-a", &json!({ "projectcalico.org/IPv4Address": "172.30.0.1/24" }));
    let mut node = cluster.api.read("/api/v1/nodes/node-a").unwrap();
    node["metadata"]["labels"] = json!({ "rack": "r1" });
    cluster.api.replace("/api/v1/nodes/node-a", &node).unwrap();
    let desk = cluster.desk();
    assert_eq!(
        desk.plumb(&["get", "nodes", "-o", "wide"]).succeeded(),
        "NAME     ASN       IPV4            IPV6\nnode-a   (64512)   172.30.0.1/24\n"
    );
    // What was exported can be applied, and changes nothing.
    desk.file("node.yaml", desk.plumb(&["get", "node", "node-a", "-o", "yaml"]).succeeded());
    desk.plumb(&["apply", "-f", "node.yaml"]).succeeded();
    assert_eq!(
        document(&desk, &["get", "node", "node-a"])["metadata"]["resourceVersion"],
        cluster.api.read("/api/v1/nodes/node-a").unwrap()["metadata"]["resourceVersion"]
    );
    let short = "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: node-a, labels: {rack: r2, own: yes}}, \
                 spec: {bgp: {ipv4Address: 172.30.0.9/24}, addresses: [{address: 10.0.0.9}]}}";
    desk.file("short.yaml", short.replace("yes", "'yes'"));
    let applied = desk.plumb(&["apply", "-f", "short.yaml"]);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert_eq!(
        applied.stderr,
        "warning: Node(node-a): label rack was not changed: it is that of the Kubernetes Node\n\
         warning: Node(node-a): spec.addresses was not changed: it is that of the Kubernetes Node\n"
    );
    assert_eq!(cluster.annotation("node-a", "projectcalico.org/IPv4Address"), "172.30.0.9/24");
    assert_eq!(cluster.annotation("node-a", "projectcalico.org/labels"), "{\"own\":\"yes\"}");
    let shown = document(&desk, &["get", "node", "node-a"]);
    assert_eq!(shown["metadata"]["labels"], json!({ "rack": "r1", "own": "yes" }));

    desk.plumb(&["patch", "node", "node-a", "-p", "{spec: {bgp: {asNumber: 64513}}}"]).succeeded();
    assert_eq!(cluster.annotation("node-a", "projectcalico.org/ASNumber"), "64513");
    desk.plumb(&["label", "node", "node-a", "own", "--remove"]).succeeded();
    assert_eq!(cluster.annotation("node-a", "projectcalico.org/labels"), Value::Null);
}

#[test]
fn of_a_node_kubernetes_part_is_left_to_kubectl() {
    let Some(cluster) = Cluster::for_test("of_a_node_kubernetes_part_is_left_to_kubectl") else { return };
    cluster.node("node-a", &json!({}));
    let mut node = cluster.api.read("/api/v1/nodes/node-a").unwrap();
    node["metadata"]["labels"] = json!({ "rack": "r1" });
    let node = cluster.api.replace("/api/v1/nodes/node-a", &node).unwrap();
    let desk = cluster.desk();
    let label = [
        "label rack is that of the Kubernetes Node and cannot be changed here",
        "hint: use kubectl label node",
    ];
    desk.plumb(&["label", "node", "node-a", "rack=r2", "--overwrite"]).refused(1, &label);
    desk.plumb(&["label", "node", "node-a", "rack", "--remove"]).refused(1, &label);
    desk.plumb(&["patch", "node", "node-a", "-p", "{spec: {orchRefs: null}}"])
        .refused(1, &["spec.orchRefs is that of the Kubernetes Node"]);
    let removed = ["operation delete is not supported on Node(node-a)", "kubectl delete node"];
    desk.plumb(&["delete", "node", "node-a"]).refused(1, &removed);
    desk.file(
        "new.yaml",
        "{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: node-z}, spec: {}}",
    );
    for verb in ["apply", "create"] {
        let told = format!("operation {verb} is not supported on Node(node-z)");
        desk.plumb(&[verb, "-f", "new.yaml"]).refused(1, &[&told, "the kubelet registers the node"]);
    }
    desk.plumb(&["replace", "-f", "new.yaml"]).refused(1, &["resource does not exist: Node(node-z)"]);
    assert_eq!(cluster.api.read("/api/v1/nodes/node-a").unwrap(), node);
}

#[test]
fn namespaces_are_profiles_that_are_only_shown() {
    let Some(cluster) = Cluster::for_test("namespaces_are_profiles_that_are_only_shown") else { return };
    let desk = cluster.desk();
    let names = desk.plumb(&["get", "profiles", "-o", "name"]);
    assert!(names.succeeded().contains("profile/kns.shop\n"), "{names:?}");
    assert!(names.succeeded().ends_with("profile/projectcalico-default-allow\n"), "{names:?}");
    let told = ["is not supported on Profile(kns.shop)", "hint: change the labels of the namespace"];
    desk.plumb(&["delete", "profile", "kns.shop"]).refused(1, &told);
    desk.plumb(&["label", "profile", "kns.shop", "a=b"]).refused(1, &told);
    desk.file(
        "profile.yaml",
        desk.plumb(&["get", "profile", "kns.shop", "-o", "yaml", "--export"]).succeeded(),
    );
    desk.plumb(&["apply", "-f", "profile.yaml"]).refused(1, &told);
}

#[test]
fn two_overlapping_pools_cannot_both_be_created_on_kubernetes() {
    let Some(cluster) = Cluster::for_test("two_overlapping_pools_cannot_both_be_created_on_kubernetes")
    else {
        return;
    };
    one_of_many_pools_wins(&cluster.desk(), testkit::count(3, 30));
    let pools = cluster.api.read("/apis/crd.projectcalico.org/v1/ippools").unwrap();
    let is_disabled = |pool: &Value| pool["spec"]["disabled"] == true;
    assert!(!pools["items"].as_array().unwrap().iter().any(is_disabled), "{pools}");
}
