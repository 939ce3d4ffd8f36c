//! What holds without strict mode as well: how names are matched, values spelt, and records refused.

use serde_json::{Value, json};

use crate::harness::{Desk, machine_has_own_config};

fn spec(desk: &Desk, kind: &str, name: &str) -> Value {
    let shown = desk.plumb(&["get", kind, name, "-o", "json"]);
    serde_json::from_str::<Value>(shown.succeeded()).unwrap()["spec"].clone()
}

fn version(desk: &Desk) -> u64 {
    let shown = desk.plumb(&["get", "ippool", "a", "-o", "jsonpath={.metadata.resourceVersion}"]);
    shown.succeeded().trim().parse().unwrap()
}

#[test]
fn names_of_fields_are_matched_in_any_case_and_stored_as_they_are_called() {
    if machine_has_own_config("names_of_fields_are_matched_in_any_case_and_stored_as_they_are_called") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nMetadata: {Name: a, LABELS: {Team: x}}\n\
         SPEC: {CIDR: 10.0.0.0/16, natoutgoing: true, blocksize: 27}\n",
    );
    let spec = spec(&desk, "ippool", "a");
    assert_eq!(
        (&spec["cidr"], &spec["natOutgoing"], &spec["blockSize"]),
        (&json!("10.0.0.0/16"), &json!(true), &json!(27))
    );
    assert!(spec.get("CIDR").is_none() && spec.get("natoutgoing").is_none(), "{spec}");
    let labels = desk.plumb(&["get", "ippool", "a", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels.succeeded(), "{\"Team\":\"x\"}\n");
    let twice = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: b}\nspec: {CIDR: 10.1.0.0/16, cidr: 10.2.0.0/16}\n";
    desk.plumb_with_stdin(&["apply", "-f", "-"], twice.as_bytes()).refused(1, &["spec.cidr is given twice"]);
}

#[test]
fn values_are_spelt_as_calico_stores_them() {
    if machine_has_own_config("values_are_spelt_as_calico_stores_them") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply(
        "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: node.n}\n\
         spec: {reportingInterval: 5400s, logPrefix: '', failsafeOutboundHostPorts: [], istioDSCPMark: '23'}\n---\n\
         apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: g}\n\
         spec: {preDNAT: false, ingress: [{action: Allow, protocol: '17', source: {selector: ''}}]}\n",
    );
    let felix = spec(&desk, "felixconfig", "node.n");
    assert_eq!((&felix["reportingInterval"], &felix["istioDSCPMark"]), (&json!("1h30m0s"), &json!(23)));
    // No failsafe port at all is something else than the usual ones; an empty text is none.
    assert_eq!(felix["failsafeOutboundHostPorts"], json!([]));
    assert!(felix.get("logPrefix").is_none(), "{felix}");
    let policy = spec(&desk, "gnp", "g");
    assert_eq!(policy["ingress"], json!([{"action": "Allow", "protocol": 17, "source": {}}]));
    assert!(policy.get("preDNAT").is_none(), "{policy}");
}

#[test]
fn empty_words_and_wrong_keys_are_refused_where_calico_refuses_them() {
    if machine_has_own_config("empty_words_and_wrong_keys_are_refused_where_calico_refuses_them") {
        return;
    }
    let desk = Desk::on_sqlite();
    for (kind, spec, problem) in [
        (
            "BGPPeer",
            "{peerIP: 10.0.0.1, nextHopMode: ''}",
            "spec.nextHopMode: \"\": must be Auto, Self or Keep",
        ),
        ("FelixConfiguration", "{floatingIPs: ''}", "spec.floatingIPs"),
        ("FelixConfiguration", "{reportingInterval: ''}", "spec.reportingInterval: \"\": must be a duration"),
        (
            "GlobalNetworkPolicy",
            "{ingress: [{action: Allow, metadata: {annotations: {'a b': x}}}]}",
            "spec.ingress[0].metadata.annotations",
        ),
        (
            "GlobalNetworkPolicy",
            "{egress: [{action: Deny, destination: {notNets: [10.0.0.1]}}]}",
            "write 10.0.0.1/32",
        ),
    ] {
        let manifest = format!(
            "{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{name: x}}, spec: {spec}}}"
        );
        desk.plumb_with_stdin(&["apply", "-f", "-"], manifest.as_bytes()).refused(1, &[problem]);
    }
    let peer = "{apiVersion: projectcalico.org/v3, kind: BGPPeer, metadata: {name: p}, spec: {peerIP: 10.0.0.1, sourceAddress: ''}}";
    desk.apply(peer);
    assert_eq!(spec(&desk, "bgppeer", "p"), json!({"peerIP": "10.0.0.1"}));
}

#[test]
fn what_kubernetes_or_every_cluster_has_is_not_deleted() {
    if machine_has_own_config("what_kubernetes_or_every_cluster_has_is_not_deleted") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply(
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.0.0.0/16}\n",
    );
    let before = desk.dump();
    for (kind, name) in
        [("clusterinfo", "default"), ("tier", "kube-admin"), ("profile", "projectcalico-default-allow")]
    {
        desk.plumb(&["delete", kind, name]).refused(1, &["is built in and cannot be deleted"]);
    }
    desk.plumb(&["delete", "np", "knp.default.x"]).refused(1, &["managed through the kubernetes API"]);
    let policy =
        "{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: knp.default.x}, spec: {}}";
    for verb in ["apply", "create", "replace"] {
        desk.plumb_with_stdin(&[verb, "-f", "-"], policy.as_bytes())
            .refused(1, &["managed through the kubernetes API"]);
    }
    assert_eq!(desk.dump(), before);
}

#[test]
fn an_apply_without_a_change_raises_the_version() {
    if machine_has_own_config("an_apply_without_a_change_raises_the_version") {
        return;
    }
    let desk = Desk::on_sqlite();
    let pool =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.0.0.0/16}\n";
    desk.apply(pool);
    let first = version(&desk);
    let tried = desk.plumb_with_stdin(&["apply", "-f", "-", "--dry-run"], pool.as_bytes());
    assert!(tried.stdout.starts_with("ippool/a unchanged (dry run)\n"), "{tried:?}");
    assert_eq!(version(&desk), first);
    desk.apply(pool);
    assert!(version(&desk) > first);
}
