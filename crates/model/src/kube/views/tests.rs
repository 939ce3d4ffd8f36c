use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::validate::validate;

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("not an object: {value}") };
    map
}

/// The record that an object shows, with its key.
fn shown(shown: Shown, value: Value) -> (Key, Value) {
    let decoded = view(shown, &object(value)).unwrap().expect("it shows a record");
    (decoded.key, serde_json::from_slice(&decoded.value).unwrap())
}

fn pod() -> Value {
    json!({
        "metadata": { "name": "web-0", "namespace": "default", "uid": "u", "resourceVersion": "9",
            "generateName": "web-", "labels": { "app": "web" },
            "annotations": { "cni.projectcalico.org/containerID": "0f3a", "cni.projectcalico.org/podIP": "10.0.0.7/32",
                "cni.projectcalico.org/podIPs": "10.0.0.7/32,fd00::7/128" } },
        "spec": { "nodeName": "ip-10-0-0-5", "serviceAccountName": "robot", "containers": [{ "ports": [
            { "containerPort": 80, "name": "http" }, { "containerPort": 53, "protocol": "UDP", "hostPort": 53 },
            { "containerPort": 99 }] }] },
        "status": { "phase": "Running" },
    })
}

#[test]
fn a_pod_is_an_endpoint() {
    let (key, record) = shown(Shown::Pod, pod());
    let name = "ip--10--0--0--5-k8s-web--0-eth0";
    assert_eq!(key, Key::namespaced(Kind::WorkloadEndpoint, "default", name));
    assert_eq!(
        record["metadata"],
        json!({ "name": name, "namespace": "default", "uid": "u", "generateName": "web-",
            "labels": { "app": "web", "projectcalico.org/namespace": "default",
                "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "robot" } })
    );
    assert_eq!(
        record["spec"],
        json!({ "orchestrator": "k8s", "node": "ip-10-0-0-5", "pod": "web-0", "endpoint": "eth0",
            "containerID": "0f3a", "serviceAccountName": "robot", "interfaceName": "cali0d7763386da",
            "ipNetworks": ["10.0.0.7/32", "fd00::7/128"], "profiles": ["kns.default", "ksa.default.robot"],
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80 },
                { "protocol": "UDP", "port": 53, "hostPort": 53 }] })
    );
    let behind = behind(&key).unwrap();
    assert_eq!(
        (behind.shown, behind.namespace.as_deref(), behind.name.as_str()),
        (Shown::Pod, Some("default"), "web-0")
    );
    let record = Resource::decode(&key, Kind::WorkloadEndpoint, record.to_string().as_bytes(), "9").unwrap();
    assert_eq!(validate(&record), []);
}

#[test]
fn a_pod_without_a_network_of_its_own_is_none() {
    for (field, value) in [("hostNetwork", json!(true)), ("nodeName", json!("")), ("nodeName", Value::Null)] {
        let mut pod = pod();
        pod["spec"][field] = value;
        assert_eq!(view(Shown::Pod, &object(pod)).unwrap(), None);
    }
}

#[test]
fn a_new_sandbox_counts_before_the_kubelet_has_noticed_it() {
    let mut pod = pod();
    pod["status"]["podIPs"] = json!([{ "ip": "10.0.0.1" }]);
    pod["metadata"]["annotations"]["plumbline.io/mac"] = json!("02:00:00:00:00:07");
    assert_eq!(shown(Shown::Pod, pod).1["spec"]["ipNetworks"], json!(["10.0.0.7/32", "fd00::7/128"]));
}

#[test]
fn a_static_pod_is_known_by_the_uid_that_the_runtime_has() {
    let mut pod = pod();
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash");
    let (key, record) = shown(Shown::Pod, pod);
    let record = Resource::decode(&key, Kind::WorkloadEndpoint, record.to_string().as_bytes(), "9").unwrap();
    assert_eq!(uids(&record), ["u", "hash"]);
}

#[test]
fn addresses_are_taken_from_the_first_source_that_has_any() {
    let networks = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod();
        change(&mut pod);
        shown(Shown::Pod, pod).1["spec"].get("ipNetworks").cloned().unwrap_or(json!([]))
    };
    assert_eq!(networks(&|pod| pod["status"]["podIP"] = json!("10.0.0.8")), json!(["10.0.0.8/32"]));
    let both = json!([{ "ip": "10.0.0.9" }, { "ip": "fd00::9" }]);
    assert_eq!(
        networks(&|pod| pod["status"]["podIPs"] = both.clone()),
        json!(["10.0.0.9/32", "fd00::9/128"])
    );
    let only = |name: &'static str, text: &'static str| {
        networks(&move |pod| pod["metadata"]["annotations"] = json!({ name: text }))
    };
    assert_eq!(only("cni.projectcalico.org/podIP", "10.0.0.7/32"), json!(["10.0.0.7/32"]));
    assert_eq!(only("vpc.amazonaws.com/pod-ips", "10.0.0.6"), json!(["10.0.0.6/32"]));
    assert_eq!(only("nothing", ""), json!([]));
}

#[test]
fn a_pod_that_has_ended_has_no_address() {
    let networks = |phase: &str, deleted: bool, annotation: &str| {
        let mut pod = pod();
        pod["status"] = json!({ "phase": phase, "podIP": "10.0.0.7" });
        pod["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = json!(annotation);
        if deleted {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        shown(Shown::Pod, pod).1["spec"].get("ipNetworks").is_some()
    };
    for (phase, deleted, annotation, has_address) in [
        ("Running", false, "10.0.0.7/32", true),
        ("Running", true, "10.0.0.7/32", true),
        // Between two sandboxes, or emptied by somebody while the pod runs.
        ("Running", false, "", true),
        // The plugin has taken it back, whatever the kubelet still shows.
        ("Running", true, "", false),
        ("Succeeded", false, "10.0.0.7/32", false),
        ("Failed", false, "10.0.0.7/32", false),
    ] {
        assert_eq!(networks(phase, deleted, annotation), has_address, "{phase} {deleted} {annotation:?}");
    }
}

#[test]
fn a_pod_whose_addresses_were_taken_back_has_no_sandbox() {
    let mut pod = pod();
    for name in ["podIP", "podIPs"] {
        pod["metadata"]["annotations"][format!("cni.projectcalico.org/{name}")] = json!("");
    }
    let (_, without) = shown(Shown::Pod, pod.clone());
    assert_eq!((without["spec"].get("ipNetworks"), without["spec"].get("containerID")), (None, None));
    pod["status"]["podIP"] = json!("10.0.0.7");
    let (_, reported) = shown(Shown::Pod, pod);
    assert_eq!(reported["spec"]["ipNetworks"], json!(["10.0.0.7/32"]));
    for record in [without, reported] {
        assert!(crate::is_detached(record.to_string().as_bytes()), "{record}");
    }
}

#[test]
fn a_pod_with_an_annotation_that_cannot_be_read_has_its_addresses_all_the_same() {
    for (annotation, text, field) in [
        ("allowedSourcePrefixes", "no list", "allowSpoofedSourcePrefixes"),
        ("floatingIPs", "[\"x\"]", "ipNATs"),
        ("podIPs", "ten", "ipNetworks"),
        ("podIPs", "10.0.0.0/24", "ipNetworks"),
    ] {
        let mut pod = pod();
        pod["metadata"]["annotations"][format!("cni.projectcalico.org/{annotation}")] = json!(text);
        let undecodable = view(Shown::Pod, &object(pod.clone())).unwrap_err();
        let stand_in = undecodable.stand_in.unwrap();
        assert_eq!(stand_in.key, shown(Shown::Pod, self::pod()).0);
        let record: Value = serde_json::from_slice(&stand_in.value).unwrap();
        match field {
            "ipNetworks" => {
                assert_eq!(record["spec"][field], json!([format!("unreadable: {text}")]), "{annotation}");
            }
            _ => {
                assert_eq!(record["spec"][field], json!(text));
                assert_eq!(record["spec"]["ipNetworks"], json!(["10.0.0.7/32", "fd00::7/128"]));
            }
        }
    }
}

#[test]
fn floating_addresses_and_prefixes_are_shown() {
    let mut with = pod();
    with["metadata"]["annotations"]["cni.projectcalico.org/floatingIPs"] =
        json!("[\"192.0.2.1\", \"2001:db8::1\"]");
    with["metadata"]["annotations"]["cni.projectcalico.org/allowedSourcePrefixes"] =
        json!("[\"10.9.0.0/16\"]");
    let (_, record) = shown(Shown::Pod, with.clone());
    let nats = json!([{ "internalIP": "10.0.0.7", "externalIP": "192.0.2.1" },
        { "internalIP": "fd00::7", "externalIP": "2001:db8::1" }]);
    assert_eq!(record["spec"]["ipNATs"], nats);
    assert_eq!(record["spec"]["allowSpoofedSourcePrefixes"], json!(["10.9.0.0/16"]));
    with["metadata"]["annotations"]["cni.projectcalico.org/allowedSourcePrefixes"] = json!("no list");
    assert!(view(Shown::Pod, &object(with)).is_err());
}

#[test]
fn a_node_has_calicos_fields_in_annotations() {
    let node = json!({
        "metadata": { "name": "n1", "uid": "u", "labels": { "zone": "a", "both": "kubernetes" },
            "annotations": { "projectcalico.org/IPv4Address": "172.30.0.1/24", "projectcalico.org/ASNumber": "64512",
                "projectcalico.org/IPv4VXLANTunnelAddr": "10.0.0.1", "projectcalico.org/IPv6VXLANTunnelAddr": "nonsense",
                "projectcalico.org/WireguardPublicKey": "short", "projectcalico.org/labels": "{\"mine\":\"x\",\"both\":\"calico\"}",
                "projectcalico.org/annotations": "{\"note\":\"n\"}",
                "projectcalico.org/Interfaces": "[{\"name\":\"eth0\",\"addresses\":[\"172.30.0.1\"]}]" } },
        "spec": { "podCIDRs": ["10.244.0.0/24"] },
        "status": { "addresses": [{ "type": "InternalIP", "address": "172.30.0.1" }, { "type": "Hostname", "address": "n1" }] },
    });
    let (key, record) = shown(Shown::Node, node);
    assert_eq!(key, Key::cluster(Kind::Node, "n1"));
    assert_eq!(record["metadata"]["labels"], json!({ "zone": "a", "both": "kubernetes", "mine": "x" }));
    assert_eq!(
        record["metadata"]["annotations"],
        json!({ "note": "n", "projectcalico.org/kube-labels": "{\"both\":\"kubernetes\",\"zone\":\"a\"}" })
    );
    assert_eq!(
        record["spec"],
        json!({ "bgp": { "ipv4Address": "172.30.0.1/24", "asNumber": 64512 }, "ipv4VXLANTunnelAddr": "10.0.0.1",
            "orchRefs": [{ "nodeName": "n1", "orchestrator": "k8s" }],
            "interfaces": [{ "name": "eth0", "addresses": ["172.30.0.1"] }],
            "addresses": [{ "address": "172.30.0.1/24", "type": "CalicoNodeIP" },
                { "address": "172.30.0.1", "type": "InternalIP" }] })
    );
    assert_eq!(record["status"], json!({ "podCIDRs": ["10.244.0.0/24"] }));
}

#[test]
fn namespaces_and_accounts_are_profiles() {
    let uid = "01234567-89ab-4def-8123-456789abcdef";
    let annotations = json!({ "cni.projectcalico.org/ipv4pools": "[\"a\"]", "other": "x" });
    let namespace = json!({ "metadata": { "name": "blue", "uid": uid, "labels": { "team": "x" },
        "annotations": annotations } });
    let (key, record) = shown(Shown::Namespace, namespace);
    assert_eq!(key, Key::cluster(Kind::Profile, "kns.blue"));
    assert_eq!(record["metadata"]["uid"], "80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7");
    let asked = json!({ "cni.projectcalico.org/ipv4pools": "[\"a\"]" });
    assert_eq!(record["metadata"]["annotations"], asked);
    let allow = json!([{ "action": "Allow" }]);
    let labels = json!({ "pcns.team": "x", "pcns.projectcalico.org/name": "blue" });
    assert_eq!(record["spec"], json!({ "ingress": allow, "egress": allow, "labelsToApply": labels }));

    let account = json!({ "metadata": { "name": "ro.bot", "namespace": "blue" } });
    let (key, record) = shown(Shown::ServiceAccount, account);
    assert_eq!(key, Key::cluster(Kind::Profile, "ksa.blue.ro.bot"));
    assert_eq!(record["spec"], json!({ "labelsToApply": { "pcsa.projectcalico.org/name": "ro.bot" } }));
    let behind = behind(&key).unwrap();
    assert_eq!((behind.namespace.as_deref(), behind.name.as_str()), (Some("blue"), "ro.bot"));
}

#[test]
fn names_that_no_object_has_have_none_behind() {
    for key in [
        Key::cluster(Kind::Profile, "projectcalico-default-allow"),
        Key::cluster(Kind::Profile, "kxx.a"),
        Key::namespaced(Kind::WorkloadEndpoint, "default", "n-cni-0f3a-eth0"),
        Key::namespaced(Kind::WorkloadEndpoint, "default", "n-k8s-pod-eth1"),
        Key::namespaced(Kind::WorkloadEndpoint, "default", "nonsense"),
        Key::cluster(Kind::IpPool, "p"),
    ] {
        assert_eq!(behind(&key), None, "{key}");
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(
                "metadata|spec|status|name|labels|annotations|podIPs|ports|[a-z]{1,4}",
                inner,
                0..4
            )
            .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_is_survived(value in anything(), name in "\\PC{0,8}") {
        let mut map = Map::new();
        map.insert("spec".into(), value.clone());
        map.insert("status".into(), value.clone());
        map.insert("metadata".into(), json!({ "name": name, "namespace": name, "annotations": value }));
        for shown in [Shown::Pod, Shown::Node, Shown::Namespace, Shown::ServiceAccount] {
            let _ = view(shown, &map);
        }
    }
}
