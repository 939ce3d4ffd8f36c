//! Custom resources as Calico writes them, read and written by us.

use model::kube::{self, Layout, decode, encode};
use model::{AffinityOwner, Cidr, Key, Kind, Resource};
use serde_json::{Map, Value, json};

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("not an object: {value}") };
    map
}

fn value(decoded: &kube::Decoded) -> Value {
    serde_json::from_slice(&decoded.value).unwrap()
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

#[test]
fn a_pool_of_the_v1_group_keeps_its_metadata_in_an_annotation() {
    let kept = json!({ "labels": { "team": "blue" }, "annotations": { "note": "n" },
        "creationTimestamp": "2026-08-22T06:33:20Z",
        "ownerReferences": [{ "apiVersion": "crd.projectcalico.org/v1", "kind": "Tier", "name": "t",
            "uid": "80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7" }] });
    let document = json!({ "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
        "metadata": { "name": "p", "resourceVersion": "12", "uid": "01234567-89ab-4def-8123-456789abcdef",
            "creationTimestamp": "2026-09-01T00:00:00Z", "generation": 3, "finalizers": ["example.org/direct"],
            "labels": { "projectcalico.org/x": "y", "old": "label" },
            "annotations": { "projectcalico.org/metadata": kept.to_string() } },
        "spec": { "cidr": "10.0.0.0/16", "fromTheFuture": 18446744073709551615_u64 } });
    let decoded = decode(Layout::V1, Kind::IpPool, map(document)).unwrap();
    assert_eq!(decoded.key, Key::cluster(Kind::IpPool, "p"));
    let shown = value(&decoded);
    assert_eq!(shown["apiVersion"], "projectcalico.org/v3");
    assert_eq!(shown["metadata"]["uid"], "80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7");
    assert_eq!(shown["metadata"]["creationTimestamp"], "2026-08-22T06:33:20Z");
    assert_eq!(
        shown["metadata"]["labels"],
        json!({ "team": "blue", "projectcalico.org/x": "y", "old": "label" })
    );
    let owner = &shown["metadata"]["ownerReferences"][0];
    assert_eq!(owner["apiVersion"], "projectcalico.org/v3");
    assert_eq!(owner["uid"], "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(shown["spec"]["fromTheFuture"], json!(18446744073709551615_u64));

    let written = encode(Layout::V1, &decoded.key, &decoded.value).unwrap();
    let metadata = &written["metadata"];
    assert_eq!(metadata["uid"], "01234567-89ab-4def-8123-456789abcdef");
    assert_eq!(metadata["labels"], json!({ "projectcalico.org/x": "y" }));
    assert_eq!(metadata["finalizers"], json!(["example.org/direct"]));
    let again: Value =
        serde_json::from_str(metadata["annotations"]["projectcalico.org/metadata"].as_str().unwrap())
            .unwrap();
    assert_eq!(again["ownerReferences"], kept["ownerReferences"]);
    assert_eq!(again.get("name"), None);
    assert_eq!(metadata.get("creationTimestamp"), None, "the server's own");
}

#[test]
fn policies_keep_their_names() {
    let old = json!({ "metadata": { "name": "default.web", "resourceVersion": "1" }, "spec": { "tier": "default" } });
    let named = json!({ "metadata": { "name": "default.web", "resourceVersion": "1",
        "annotations": { "projectcalico.org/metadata": "{\"name\":\"default.web\"}" } }, "spec": {} });
    for (layout, document, name) in
        [(Layout::V1, &old, "web"), (Layout::V1, &named, "default.web"), (Layout::V3, &old, "default.web")]
    {
        let decoded = decode(layout, Kind::GlobalNetworkPolicy, map(document.clone())).unwrap();
        assert_eq!(decoded.key, Key::cluster(Kind::GlobalNetworkPolicy, "default.web"));
        let policy = Resource::decode(&decoded.key, Kind::GlobalNetworkPolicy, &decoded.value, "1").unwrap();
        assert_eq!(policy.metadata.name, name);
        let written = encode(layout, &decoded.key, &policy.encode()).unwrap();
        assert_eq!(written["metadata"]["name"], "default.web", "the object's own name does not change");
    }
}

#[test]
fn affinities_are_written_as_calico_finds_them() {
    let key = Key::Affinity { owner: AffinityOwner::Host("node-a".into()), block: cidr("10.244.7.64/26") };
    let labels = json!({
        "projectcalico.org/hostname-hash": "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA",
        "projectcalico.org/affinity-type": "host", "projectcalico.org/ip-version": "4" });
    for (layout, deleted) in [(Layout::V1, json!("false")), (Layout::V3, json!(false))] {
        let written = encode(layout, &key, br#"{"state":"confirmed","deleted":false}"#).unwrap();
        let expected = json!({ "apiVersion": layout.api_version(), "kind": "BlockAffinity",
            "metadata": { "name": "node-a-10-244-7-64-26", "labels": labels },
            "spec": { "state": "confirmed", "node": "node-a", "type": "host", "cidr": "10.244.7.64/26",
                "deleted": deleted } });
        assert_eq!(Value::Object(written), expected);
        assert_eq!(
            encode(layout, &key, b"").unwrap()["spec"]["state"],
            "confirmed",
            "no value at all, as of old"
        );
    }
    let old = json!({ "metadata": { "name": "node-a-10-244-7-64-26", "resourceVersion": "3" },
        "spec": { "state": "pending", "node": "node-a", "cidr": "10.244.7.64/26", "deleted": "" } });
    let decoded = decode(Layout::V1, Kind::BlockAffinity, map(old)).unwrap();
    assert_eq!((&decoded.key, decoded.is_tombstone), (&key, false));
    assert_eq!(value(&decoded), json!({ "state": "pending", "deleted": false }));
}

#[test]
fn what_calico_is_about_to_remove_is_seen() {
    for (layout, kind, name, spec) in [
        (Layout::V1, Kind::IpamBlock, "10-0-0-0-30", json!({ "cidr": "10.0.0.0/30", "deleted": true })),
        (Layout::V1, Kind::IpamHandle, "h", json!({ "handleID": "H", "block": {}, "deleted": true })),
        (
            Layout::V1,
            Kind::BlockAffinity,
            "n-10-0-0-0-30",
            json!({ "node": "n", "cidr": "10.0.0.0/30", "deleted": "true" }),
        ),
        (
            Layout::V3,
            Kind::BlockAffinity,
            "n-10-0-0-0-30",
            json!({ "node": "n", "cidr": "10.0.0.0/30", "deleted": true }),
        ),
    ] {
        let document = json!({ "metadata": { "name": name, "resourceVersion": "3" }, "spec": spec });
        assert!(decode(layout, kind, map(document)).unwrap().is_tombstone, "{kind}");
    }
}

#[test]
fn handles_are_named_in_lower_case_and_keep_their_own() {
    let key = Key::Handle("lb-AbC".into());
    let written = encode(Layout::V1, &key, br#"{"block":{"10.0.0.0/26":1},"deleted":false}"#).unwrap();
    assert_eq!(written["metadata"]["name"], "lb-abc");
    assert_eq!(written["spec"]["handleID"], "lb-AbC");
}

#[test]
fn settings_have_other_names_in_each_place() {
    let key = Key::IpamConfig;
    for (layout, kind) in [(Layout::V1, "IPAMConfig"), (Layout::V3, "IPAMConfiguration")] {
        let written = encode(layout, &key, br#"{"strict_affinity":true,"maxBlocksPerHost":3}"#).unwrap();
        assert_eq!(written["kind"], kind);
        let spec = json!({ "strictAffinity": true, "autoAllocateBlocks": false, "maxBlocksPerHost": 3 });
        assert_eq!(written["spec"], spec);
    }
}

#[test]
fn what_cannot_be_read_has_its_key_and_a_value_that_nobody_reads() {
    let broken = json!({ "projectcalico.org/metadata": "{" });
    let affinity = |node: &str, block: &str| Key::Affinity {
        owner: AffinityOwner::Host(node.to_owned()),
        block: block.parse().unwrap(),
    };
    let block = |cidr: &str| Key::Block(cidr.parse().unwrap());
    for (kind, name, annotations, spec, key) in [
        (
            Kind::ClusterInformation,
            "default",
            broken,
            json!({ "datastoreReady": false }),
            Key::cluster(Kind::ClusterInformation, "default"),
        ),
        (Kind::IpamBlock, "10-0-0-0-26", json!({}), json!({ "cidr": "ten" }), block("10.0.0.0/26")),
        (Kind::IpamBlock, "fd00---122", json!({}), json!({ "cidr": "10.0.0.0/26" }), block("fd00::/122")),
        (Kind::IpamHandle, "h", json!({}), json!({ "handleID": "other" }), Key::Handle("h".into())),
        (
            Kind::BlockAffinity,
            "node-a-10-0-0-0-26",
            json!({}),
            json!({ "node": "node-a", "cidr": "" }),
            affinity("node-a", "10.0.0.0/26"),
        ),
        (
            Kind::BlockAffinity,
            "node-a-fd00---122",
            json!({}),
            json!({ "node": "", "cidr": "fd00::/122" }),
            affinity("node-a", "fd00::/122"),
        ),
        (
            Kind::BlockAffinity,
            "n-10-0-0-0-26",
            json!({}),
            json!({ "node": "n", "cidr": "10.0.0.0/26", "type": "later" }),
            affinity("n", "10.0.0.0/26"),
        ),
    ] {
        let metadata = json!({ "name": name, "resourceVersion": "3", "annotations": annotations });
        let document = json!({ "metadata": metadata, "spec": spec });
        let stand_in = *decode(Layout::V1, kind, map(document)).unwrap_err().stand_in.expect(name);
        assert_eq!((stand_in.key, stand_in.revision.as_str(), stand_in.is_tombstone), (key, "3", false));
        assert!(serde_json::from_slice::<Value>(&stand_in.value).is_err());
        let text = String::from_utf8(stand_in.value).unwrap();
        assert!(text.contains(&spec.to_string()), "whoever repairs it needs all of it: {text}");
    }
}

#[test]
fn what_lies_under_a_wrong_name_is_no_record() {
    let block = json!({ "metadata": { "name": "10-0-0-0-26", "resourceVersion": "3" },
        "spec": { "cidr": "10.0.1.0/26" } });
    let error = decode(Layout::V1, Kind::IpamBlock, map(block)).unwrap_err();
    assert!(error.to_string().contains("another name"), "{error}");
    let stray = json!({ "metadata": { "name": "stray" }, "spec": { "cidr": "10.0.1.0/26" } });
    assert_eq!(decode(Layout::V1, Kind::IpamBlock, map(stray)).unwrap_err().stand_in, None);
    assert_eq!(kube::place(&Key::cluster(Kind::Node, "n")), None);
    assert_eq!(kube::place(&Key::cluster(Kind::IpamBlock, "10-0-0-0-26")), None);
}
