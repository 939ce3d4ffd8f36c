//! `plumb doctor` and `collect` ask Kubernetes itself: as the store, or beside another one.

use model::kube::{Layout, definitions};
use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;
use testkit::process::wait_until;

use crate::cluster::{Cluster, JOE, SHOP};
use crate::harness::{Desk, PLUMB, Ran, finish, pool};

const DOCTOR: [&str; 7] = ["doctor", "-o", "json", "--settle", "0", "--grace", "0"];

fn report(ran: &Ran) -> Value {
    assert!(matches!(ran.code, Some(0..=2)), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

/// Findings by code and subject.
fn found(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    let mut found: Vec<_> =
        findings.map(|finding| (text(&finding["code"]), text(&finding["subject"]))).collect();
    found.sort();
    found
}

fn unseen(report: &Value) -> Vec<&str> {
    report["unseen"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

fn pair(code: &str, subject: &str) -> (String, String) {
    (code.to_owned(), subject.to_owned())
}

/// A node that Kubernetes calls not ready, and a pod whose address is in no pool.
fn troubled(cluster: &Cluster, desk: &Desk) {
    desk.apply(&pool("pods", "10.64.0.0/16"));
    cluster.node("node-a", &json!({ "projectcalico.org/IPv4Address": "172.30.0.1/24" }));
    let ready =
        json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent" });
    let internal = json!({ "type": "InternalIP", "address": "172.30.0.1" });
    let status = json!({ "status": { "conditions": [ready], "addresses": [internal] } });
    let answer = cluster.api.patch("strategic-merge", "/api/v1/nodes/node-a/status", &status).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    cluster.pod("web-0", "node-a", "10.244.0.1");
}

#[test]
fn pods_and_nodes_are_witnesses_without_any_text() {
    let Some(cluster) = Cluster::for_test("pods_and_nodes_are_witnesses_without_any_text") else { return };
    let desk = cluster.desk();
    troubled(&cluster, &desk);
    let expected = [pair("address-outside-pools", "10.244.0.1"), pair("node-not-ready", "node node-a")];
    let ran = desk.plumb(&DOCTOR);
    let live = report(&ran);
    assert_eq!((found(&live), ran.code), (expected.to_vec(), Some(1)), "{live:#}");
    for list in ["pods", "Kubernetes nodes"] {
        let gap = format!("{list} were not collected");
        assert!(unseen(&live).iter().all(|unseen| !unseen.starts_with(&gap)), "{live:#}");
    }

    desk.plumb(&["collect", "--settle", "0", "--out", "all.bundle"]);
    let from = desk.plumb(&["doctor", "-o", "json", "--grace", "0", "--from", "all.bundle"]);
    assert_eq!(found(&report(&from)), expected, "{from:?}");
    // What is read live is believed, and counts once.
    let both = desk.plumb(&[&DOCTOR[..], &["--live", "--from", "all.bundle"]].concat());
    let lines = |report: &Value| report["findings"].to_string();
    assert!(lines(&report(&both)).contains("node-not-ready"), "{both:?}");
}

/// An annotation that makes no endpoint of a pod.
#[test]
fn a_pod_that_makes_no_endpoint_is_named() {
    let Some(cluster) = Cluster::for_test("a_pod_that_makes_no_endpoint_is_named") else { return };
    cluster.node("node-a", &json!({}));
    cluster.pod("web-0", "node-a", "10.244.0.1");
    let odd = json!({ "metadata": { "annotations": { "cni.projectcalico.org/floatingIPs": "no list" } } });
    let path = format!("/api/v1/namespaces/{SHOP}/pods/web-0");
    assert_eq!(cluster.api.patch("merge", &path, &odd).unwrap().status, 200);
    let ran = cluster.desk().plumb(&DOCTOR);
    let subject = "WorkloadEndpoint(shop/node--a-k8s-web--0-eth0)";
    let report = report(&ran);
    assert!(found(&report).contains(&pair("record-unreadable", subject)), "{report:#}");
}

fn allow(cluster: &Cluster, name: &str, rules: Value) {
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    let group = "rbac.authorization.k8s.io";
    let binding = json!({ "metadata": { "name": name }, "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": JOE }] });
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        cluster.api.create(&format!("/apis/{group}/v1/{plural}"), &object).unwrap();
    }
}

fn withdraw(cluster: &Cluster, names: &[&str]) {
    for (name, plural) in
        names.iter().flat_map(|name| ["clusterroles", "clusterrolebindings"].map(|plural| (name, plural)))
    {
        cluster.api.delete(&format!("/apis/rbac.authorization.k8s.io/v1/{plural}/{name}")).unwrap();
    }
}

#[test]
fn rights_that_are_too_narrow_are_never_called_healthy() {
    let Some(cluster) = Cluster::for_test("rights_that_are_too_narrow_are_never_called_healthy") else {
        return;
    };
    let read = ["get", "list", "watch"];
    let of_calico = || {
        json!([{ "apiGroups": ["crd.projectcalico.org"], "resources": ["*"], "verbs": read },
        { "apiGroups": [""], "resources": ["nodes", "namespaces", "serviceaccounts"], "verbs": read }])
    };
    allow(&cluster, "joe-records", of_calico());
    let desk = cluster.desk_of_joe();
    let told = [
        "User \"joe\" cannot list resource \"pods\"",
        "kubectl create clusterrole plumb-list-pods-joe --verb=list --resource=pods",
        "plumb-reader",
    ];
    let patiently = |what: &str, is_so: &dyn Fn(&Ran) -> bool| {
        // The server takes a moment to heed a role.
        wait_until(what, || is_so(&desk.plumb(&DOCTOR))).unwrap_or_else(|error| {
            panic!("{error}: {:?}", desk.plumb(&DOCTOR));
        });
    };
    patiently("the records to be readable", &|ran| ran.stderr.contains("\"pods\""));
    desk.plumb(&DOCTOR).refused(2, &told);
    for (words, code) in [(&["collect", "--settle", "0"][..], 1), (&["repair"][..], 2)] {
        desk.plumb(words).refused(code, &told[..1]);
    }

    // What may be read is judged, and what may not is named.
    withdraw(&cluster, &["joe-records"]);
    let some =
        ["ippools", "ipamblocks", "ipamhandles", "blockaffinities", "ipamconfigs", "clusterinformations"];
    allow(
        &cluster,
        "joe-some",
        json!([{ "apiGroups": ["crd.projectcalico.org"], "resources": some, "verbs": read },
        { "apiGroups": [""], "resources": ["nodes", "pods", "namespaces", "serviceaccounts"], "verbs": read }]),
    );
    let has_code = |ran: &Ran, code| unseen(&report(ran)).iter().any(|unseen| unseen.contains(code));
    patiently("some of the records to be readable", &|ran| {
        ran.code == Some(2) && !has_code(ran, "address-allocated-twice") && has_code(ran, "bgp-record-unfit")
    });
    let told = report(&desk.plumb(&DOCTOR));
    let named = unseen(&told);
    assert!(
        named.iter().any(|unseen| unseen.contains("BGPPeer") && unseen.contains("plumb-reader")),
        "{named:#?}"
    );
    desk.plumb(&["repair"]).refused(2, &["records could not be read (", "plumb-reader"]);
    withdraw(&cluster, &["joe-some"]);
    allow(&cluster, "joe-records", of_calico());

    allow(&cluster, "joe-pods", json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": read }]));
    patiently("the pods to be readable", &|ran| ran.code == Some(0));
    let ran = desk.plumb(&DOCTOR);
    let report = report(&ran);
    let leases: Vec<_> = unseen(&report).into_iter().filter(|unseen| unseen.contains("leases")).collect();
    assert_eq!(leases.len(), 1, "{report:#}");
    for words in [
        "the leases of kubelets could not be read",
        "cannot list resource \"leases\"",
        "--namespace=kube-node-lease",
    ] {
        assert!(leases[0].contains(words), "{leases:?}");
    }
    withdraw(&cluster, &["joe-records", "joe-pods"]);
}

#[test]
fn credentials_that_do_not_count_are_no_verdict() {
    let Some(cluster) = Cluster::for_test("credentials_that_do_not_count_are_no_verdict") else { return };
    let server = &cluster.server;
    let expired = server.write_kubeconfig("expired", &server.url(), json!({ "token": "expired" })).unwrap();
    let told =
        ["it does not accept the credentials (401)", "hint: renew the token or the client certificate"];
    cluster.desk_with(expired).plumb(&DOCTOR).refused(2, &told);

    let untrusted = server.write_kubeconfig("untrusted", &server.url(), json!({ "token": "x" })).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(&untrusted).unwrap()).unwrap();
    config["clusters"][0]["cluster"].as_object_mut().unwrap().remove("certificate-authority");
    std::fs::write(&untrusted, config.to_string()).unwrap();
    let told = ["certificate", "hint: the kubeconfig must name the authority"];
    cluster.desk_with(untrusted).plumb(&DOCTOR).refused(2, &told);

    let gone = cluster.desk_with("/nowhere/kubeconfig".into());
    gone.plumb(&DOCTOR).refused(2, &["/nowhere/kubeconfig does not exist"]);
}

fn with_group(desk: &Desk, group: &str) -> Ran {
    finish(desk.command(PLUMB).args(DOCTOR).env("CALICO_API_GROUP", group))
}

fn path_of(definition: &Value) -> String {
    let name = definition["metadata"]["name"].as_str().unwrap();
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
}

fn remove(cluster: &Cluster, removed: &[Value]) {
    for definition in removed {
        cluster.api.delete(&path_of(definition)).unwrap();
    }
    for definition in removed {
        let is_gone = || cluster.api.get(&path_of(definition)).is_ok_and(|answer| answer.status == 404);
        wait_until("a definition to go", is_gone).unwrap();
    }
}

/// An older Calico has fewer kinds, and one that was never installed has none.
#[test]
fn kinds_that_are_not_served_are_named() {
    let Some(cluster) = Cluster::for_test("kinds_that_are_not_served_are_named") else { return };
    let desk = cluster.desk();
    let told = ["the cluster does not serve that kind", "plumb install --crds --apply", "CALICO_API_GROUP"];
    with_group(&desk, "projectcalico.org/v3").refused(2, &told);

    let newer: Vec<Value> = definitions(Layout::V1)
        .into_iter()
        .filter(|definition| {
            let name = definition["metadata"]["name"].as_str().unwrap();
            name.starts_with("bgpfilters.") || name.starts_with("tiers.")
        })
        .collect();
    remove(&cluster, &newer);
    let is_named = |ran: &Ran| ran.stdout.contains("the cluster does not serve BGPFilter, Tier");
    let looked = wait_until("the kinds to be gone", || is_named(&desk.plumb(&DOCTOR)));
    let ran = desk.plumb(&DOCTOR);
    cluster.api.define(&newer).unwrap();
    looked.unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    assert_eq!(ran.code, Some(0), "the rest is judged: {ran:?}");
    assert!(!is_named(&desk.plumb(&DOCTOR)));
}

#[test]
fn a_migration_between_the_api_groups_is_named() {
    let Some(cluster) = Cluster::for_test("a_migration_between_the_api_groups_is_named") else { return };
    let desk = cluster.desk();
    let pools: Vec<Value> = definitions(Layout::V3)
        .into_iter()
        .filter(|definition| definition["metadata"]["name"].as_str().unwrap().starts_with("ippools."))
        .collect();
    cluster.api.define(&pools).unwrap();
    let quiet = desk.plumb(&DOCTOR);
    let moved = json!({ "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "pods" },
        "spec": { "cidr": "10.244.0.0/16" } });
    cluster.api.create("/apis/projectcalico.org/v3/ippools", &moved).unwrap();
    let divided = desk.plumb(&DOCTOR);
    let chosen = with_group(&desk, "crd.projectcalico.org/v1");
    remove(&cluster, &pools);

    assert_eq!(quiet.code, Some(0), "no record is there: {quiet:?}");
    assert_eq!(divided.code, Some(2), "{divided:?}");
    let told = "Calico's records are in two API groups, crd.projectcalico.org/v1 and projectcalico.org/v3";
    assert!(divided.stderr.contains(told) && divided.stderr.contains("set CALICO_API_GROUP"), "{divided:?}");
    assert!(divided.stdout.contains(told), "{divided:?}");
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
}

const NODE: &str = "apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: node-a}
spec: {bgp: {ipv4Address: 172.30.0.1/24}, orchRefs: [{nodeName: node-a, orchestrator: k8s}]}
";

/// The store is another one. Only a cluster that is named is asked, and only the cluster of these records is believed.
#[test]
fn a_cluster_is_asked_beside_another_store() {
    let Some(cluster) = Cluster::for_test("a_cluster_is_asked_beside_another_store") else { return };
    let desk = Desk::on_sqlite();
    desk.apply(NODE);
    // Not young: it does not say when it was made.
    let spec = json!({ "node": "node-a", "orchestrator": "k8s", "pod": "ghost", "endpoint": "eth0",
        "containerID": "5e7a90c1", "interfaceName": "cali1", "ipNetworks": ["10.244.0.9/32"] });
    let key = Key::namespaced(Kind::WorkloadEndpoint, SHOP, "node--a-k8s-ghost-eth0");
    desk.write(vec![Change::create(key, json!({ "spec": spec }).to_string())]);
    let kubeconfig = cluster.server.kubeconfig().unwrap();
    let named = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let ghost = pair("endpoint-without-pod", "endpoint shop/node--a-k8s-ghost-eth0");
    let asked = || desk.plumb(&[&DOCTOR[..], &named].concat());

    cluster.node("node-z", &json!({}));
    let other = asked();
    assert!(!found(&report(&other)).contains(&ghost), "{other:?}");
    assert!(other.stdout.contains("so it is another cluster"), "{other:?}");
    cluster.node("node-a", &json!({}));
    let same = asked();
    assert!(found(&report(&same)).contains(&ghost), "{same:?}");
    let in_environment = finish(desk.command(PLUMB).args(DOCTOR).env("KUBECONFIG", &kubeconfig));
    assert!(!found(&report(&in_environment)).contains(&ghost), "{in_environment:?}");

    desk.plumb(&[&["collect", "--settle", "0", "--out", "all.bundle"][..], &named].concat());
    let from = desk.plumb(&["doctor", "-o", "json", "--grace", "0", "--from", "all.bundle"]);
    assert!(found(&report(&from)).contains(&ghost), "{from:?}");

    let as_joe =
        cluster.server.write_kubeconfig("beside", &cluster.server.url(), json!({ "token": "none" })).unwrap();
    let refused = desk.plumb(&[&DOCTOR[..], &["--kubeconfig", as_joe.to_str().unwrap()]].concat());
    assert!(refused.stdout.contains("the pods of Kubernetes could not be read"), "{refused:?}");
    let store_is_asked = cluster.desk().plumb(&[&DOCTOR[..], &named].concat());
    store_is_asked.refused(2, &["this one is Kubernetes, which is asked anyway"]);
}
