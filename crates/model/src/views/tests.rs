//! Objects as the API server sends them, and what Calico makes of them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Resource;

fn pod() -> Value {
    json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u-1", "resourceVersion": "77", "generateName": "web-",
            "creationTimestamp": "2026-08-22T06:33:20Z", "labels": {"app": "web"},
            "annotations": {
                "cni.projectcalico.org/podIP": "10.0.0.9/32",
                "cni.projectcalico.org/podIPs": "10.0.0.9/32,fd00::9/128",
                "cni.projectcalico.org/containerID": "c0ffee",
            },
        },
        "spec": {
            "nodeName": "node-a", "serviceAccountName": "seller",
            "containers": [{"ports": [
                {"name": "http", "containerPort": 80},
                {"containerPort": 81},
                {"containerPort": 82, "hostPort": 8082, "hostIP": "10.1.1.1", "protocol": "UDP"},
            ]}],
            "initContainers": [{"ports": [{"name": "early", "containerPort": 70, "protocol": "SCTP"}]}],
        },
        "status": {"phase": "Running"},
    })
}

fn endpoint(pod: &Value) -> Resource {
    endpoint_of_pod(pod).unwrap().unwrap()
}

fn networks(pod: &Value) -> Value {
    endpoint(pod).spec("ipNetworks").cloned().unwrap_or_default()
}

fn annotate(pod: &mut Value, name: &str, value: &str) {
    pod["metadata"]["annotations"][name] = value.into();
}

#[test]
fn a_pod_is_an_endpoint() {
    let endpoint = endpoint(&pod());
    assert_eq!(endpoint.metadata.name, "node--a-k8s-web--0-eth0");
    assert_eq!(endpoint.metadata.namespace.as_deref(), Some("shop"));
    assert_eq!(endpoint.metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(endpoint.metadata.resource_version.as_deref(), Some("77"));
    assert_eq!(endpoint.metadata.extra["generateName"], "web-");
    let labels = json!({
        "app": "web", "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "k8s",
        "projectcalico.org/serviceaccount": "seller",
    });
    assert_eq!(json!(endpoint.metadata.labels), labels);
    let device = crate::names::host_interface_name("shop", "web-0").unwrap();
    let spec = json!({
        "orchestrator": "k8s", "node": "node-a", "containerID": "c0ffee", "pod": "web-0", "endpoint": "eth0",
        "serviceAccountName": "seller", "ipNetworks": ["10.0.0.9/32", "fd00::9/128"],
        "profiles": ["kns.shop", "ksa.shop.seller"], "interfaceName": device.as_str(),
        "ports": [
            {"name": "early", "protocol": "SCTP", "port": 70},
            {"name": "http", "protocol": "TCP", "port": 80},
            {"protocol": "UDP", "port": 82, "hostPort": 8082, "hostIP": "10.1.1.1"},
        ],
    });
    assert_eq!(endpoint.body["spec"], spec);
}

#[test]
fn pods_in_the_nodes_network_and_pods_without_a_node_are_none() {
    let mut on_host = pod();
    on_host["spec"]["hostNetwork"] = true.into();
    assert!(endpoint_of_pod(&on_host).unwrap().is_none());
    let mut pending = pod();
    pending["spec"]["nodeName"] = "".into();
    assert!(endpoint_of_pod(&pending).unwrap().is_none());
}

#[test]
fn the_first_source_of_addresses_that_has_any_counts() {
    let mut pod = pod();
    annotate(&mut pod, "vpc.amazonaws.com/pod-ips", "10.0.0.1");
    pod["status"]["podIPs"] = json!([{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]);
    pod["status"]["podIP"] = "10.0.0.4".into();
    assert_eq!(networks(&pod), json!(["10.0.0.5/32", "fd00::5/128"]));
    pod["status"]["podIPs"] = json!([]);
    assert_eq!(networks(&pod), json!(["10.0.0.4/32"]));
    pod["status"]["podIP"] = "".into();
    assert_eq!(networks(&pod), json!(["10.0.0.9/32", "fd00::9/128"]));
    annotate(&mut pod, "cni.projectcalico.org/podIPs", "");
    assert_eq!(networks(&pod), json!(["10.0.0.9/32"]));
    annotate(&mut pod, "cni.projectcalico.org/podIP", "");
    assert_eq!(networks(&pod), json!(["10.0.0.1/32"]));
}

#[test]
fn an_address_that_is_none_is_named() {
    for wrong in ["nonsense", "10.0.0.0/24", "10.0.0.300"] {
        let mut pod = pod();
        annotate(&mut pod, "cni.projectcalico.org/podIPs", wrong);
        let error = endpoint_of_pod(&pod).unwrap_err().to_string();
        assert!(error.contains("shop/web-0") && error.contains(wrong), "{error}");
    }
}

#[test]
fn finished_pods_keep_their_endpoint_and_lose_its_addresses() {
    for phase in ["Failed", "Succeeded", "Completed"] {
        let mut pod = pod();
        pod["status"]["phase"] = phase.into();
        assert_eq!(networks(&pod), Value::Null, "{phase}");
    }
    let mut pod = pod();
    pod["metadata"]["deletionTimestamp"] = "2026-08-22T06:33:20Z".into();
    pod["status"]["podIP"] = "10.0.0.9".into();
    assert_eq!(networks(&pod), json!(["10.0.0.9/32"]), "it is going, but its network is there");
    annotate(&mut pod, "cni.projectcalico.org/podIP", "");
    assert_eq!(networks(&pod), Value::Null);
    pod["metadata"]["deletionTimestamp"] = Value::Null;
    assert_eq!(networks(&pod), json!(["10.0.0.9/32"]), "it stays");
}

#[test]
fn floating_addresses_and_prefixes_come_from_annotations() {
    let mut pod = pod();
    annotate(&mut pod, "cni.projectcalico.org/floatingIPs", r#"["192.0.2.1","2001:db8::1"]"#);
    annotate(&mut pod, "cni.projectcalico.org/allowedSourcePrefixes", r#"["192.0.2.0/24"]"#);
    let found = endpoint(&pod);
    let pairs = json!([
        {"internalIP": "10.0.0.9", "externalIP": "192.0.2.1"},
        {"internalIP": "fd00::9", "externalIP": "2001:db8::1"},
    ]);
    assert_eq!(found.spec("ipNATs"), Some(&pairs));
    assert_eq!(found.spec("allowSpoofedSourcePrefixes"), Some(&json!(["192.0.2.0/24"])));
    for name in ["cni.projectcalico.org/floatingIPs", "cni.projectcalico.org/allowedSourcePrefixes"] {
        let mut wrong = pod.clone();
        annotate(&mut wrong, name, "[\"x\"]");
        assert!(endpoint_of_pod(&wrong).unwrap_err().to_string().contains(name));
    }
}

#[test]
fn a_noted_device_counts_only_if_it_can_be_a_pods() {
    for (noted, counts) in [("cali0123456789a", true), ("eth0", false), ("cali/../../x", false), ("", false)]
    {
        let mut pod = pod();
        annotate(&mut pod, "plumbline.io/interface-name", noted);
        let found = endpoint(&pod);
        assert_eq!(found.spec("interfaceName").unwrap() == noted, counts, "{noted}");
    }
}

/// What a strategic merge patch does to a map of annotations.
fn patched(pod: &Value, patch: &Value) -> Value {
    let mut pod = pod.clone();
    for (name, value) in patch["metadata"]["annotations"].as_object().unwrap() {
        let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
        match value {
            Value::Null => drop(annotations.remove(name)),
            value => drop(annotations.insert(name.clone(), value.clone())),
        }
    }
    pod
}

#[test]
fn a_written_endpoint_reads_the_same() {
    let mut written = endpoint(&pod());
    written.spec_mut().insert("mac".to_owned(), "02:00:00:00:00:09".into());
    written.spec_mut().insert("interfaceName".to_owned(), "cali0123456789a".into());
    written.spec_mut().insert("containerID".to_owned(), "beef".into());
    written.spec_mut().insert("ipNetworks".to_owned(), json!(["10.0.0.8/32"]));
    let patch = endpoint_patch(&written);
    assert_eq!(patch["metadata"]["uid"], "u-1");
    assert_eq!(patch["metadata"].get("resourceVersion"), None, "no read is spent on it");
    assert_eq!(endpoint(&patched(&pod(), &patch)).body, written.body);
    let removed = patched(&patched(&pod(), &patch), &endpoint_removal_patch("u-1", "78"));
    let read = endpoint(&removed);
    assert_eq!(read.spec("ipNetworks"), None);
    assert_eq!(read.spec("containerID"), Some(&json!("beef")));
    assert_eq!(read.spec("mac"), None);
}

fn kubernetes_node() -> Value {
    json!({
        "metadata": {
            "name": "node-a", "uid": "u-2", "resourceVersion": "5", "labels": {"rack": "a", "zone": "z"},
            "annotations": {
                "projectcalico.org/IPv4Address": "172.30.0.1/24",
                "projectcalico.org/IPv6Address": "not an address",
                "projectcalico.org/ASNumber": "64513",
                "projectcalico.org/IPv4VXLANTunnelAddr": "10.0.0.1",
                "projectcalico.org/VXLANTunnelMACAddr": "66:00:00:00:00:01",
                "projectcalico.org/labels": r#"{"own":"yes","rack":"old"}"#,
                "projectcalico.org/annotations": r#"{"note":"kept"}"#,
                "projectcalico.org/Interfaces": r#"[{"name":"eth0","addresses":["172.30.0.1"]}]"#,
                "somebody.example/else": "stays",
            },
        },
        "spec": {"podCIDRs": ["10.0.0.0/24"]},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "172.30.0.1"}, {"type": "Hostname", "address": "node-a"},
        ]},
    })
}

#[test]
fn a_kubernetes_node_is_a_node() {
    let node = node_of_kubernetes(&kubernetes_node());
    let labels = json!({"own": "yes", "rack": "a", "zone": "z"});
    assert_eq!(json!(node.metadata.labels), labels);
    assert_eq!(node.metadata.annotations["note"], "kept");
    let spec = json!({
        "bgp": {"ipv4Address": "172.30.0.1/24", "asNumber": 64513},
        "ipv4VXLANTunnelAddr": "10.0.0.1", "vxlanTunnelMACAddr": "66:00:00:00:00:01",
        "interfaces": [{"name": "eth0", "addresses": ["172.30.0.1"]}],
        "orchRefs": [{"nodeName": "node-a", "orchestrator": "k8s"}],
        "addresses": [
            {"address": "172.30.0.1/24", "type": "CalicoNodeIP"}, {"address": "172.30.0.1", "type": "InternalIP"},
        ],
    });
    assert_eq!(node.body["spec"], spec);
    assert_eq!(node.body["status"], json!({"podCIDRs": ["10.0.0.0/24"]}));
}

#[test]
fn a_written_node_changes_calicos_annotations_and_reads_the_same() {
    let object = kubernetes_node();
    let mut node = node_of_kubernetes(&object);
    node.spec_mut().remove("ipv4VXLANTunnelAddr");
    node.spec_mut().insert("ipv6VXLANTunnelAddr".to_owned(), "fd00::1".into());
    node.metadata.labels.insert("own".to_owned(), "changed".to_owned());
    let patch = node_patch(&node);
    assert_eq!(patch["metadata"]["resourceVersion"], "5");
    let after = patched(&object, &patch);
    let annotations = after["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations["somebody.example/else"], "stays");
    assert_eq!(annotations.get("projectcalico.org/IPv4VXLANTunnelAddr"), None);
    assert_eq!(annotations["projectcalico.org/labels"], r#"{"own":"changed"}"#);
    let read = node_of_kubernetes(&after);
    assert_eq!((&read.body, &read.metadata), (&node.body, &node.metadata));
}

#[test]
fn namespaces_and_accounts_are_profiles() {
    let uid = "01234567-89ab-4def-8123-456789abcdef";
    let namespace =
        json!({"metadata": {"name": "shop", "uid": uid, "resourceVersion": "3", "labels": {"team": "a"}}});
    let profile = profile_of_namespace(&namespace);
    assert_eq!(profile.metadata.name, "kns.shop");
    assert_eq!(profile.metadata.uid.as_deref(), Some("80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7"));
    assert_eq!(profile.metadata.resource_version.as_deref(), Some("3/"));
    let spec = json!({
        "ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
        "labelsToApply": {"pcns.team": "a", "pcns.projectcalico.org/name": "shop"},
    });
    assert_eq!(profile.body["spec"], spec);
    let account = json!({"metadata": {"name": "seller", "namespace": "shop", "resourceVersion": "4"}});
    let profile = profile_of_service_account(&account);
    assert_eq!(profile.metadata.name, "ksa.shop.seller");
    assert_eq!(profile.metadata.resource_version.as_deref(), Some("/4"));
    assert_eq!(profile.body["spec"], json!({"labelsToApply": {"pcsa.projectcalico.org/name": "seller"}}));
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é]{0,12}".prop_map(Value::from),
        Just(json!("10.0.0.1")),
        Just(json!("[\"10.0.0.1\"]")),
    ];
    let field = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("annotations"),
        Just("labels"),
        Just("name"),
        Just("nodeName"),
        Just("podIPs"),
        Just("ip"),
        Just("containers"),
        Just("ports"),
        Just("containerPort"),
        Just("cni.projectcalico.org/podIPs"),
        Just("projectcalico.org/labels"),
        Just("qos.projectcalico.org/dscp"),
        Just("kubernetes.io/ingress-bandwidth"),
        Just("namespace"),
        Just("addresses"),
        Just("podCIDRs"),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(field.clone(), inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_can_be_tried(object in anything()) {
        let _ = endpoint_of_pod(&object);
        let _ = profile_of_namespace(&object);
        let _ = profile_of_service_account(&object);
        let node = node_of_kubernetes(&object);
        let _ = node_patch(&node);
    }
}
