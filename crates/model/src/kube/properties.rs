//! What holds of every record: it comes back as it was, whatever else stands in it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::{AffinityOwner, Cidr, Resource};

const LAYOUTS: [Layout; 2] = [Layout::V1, Layout::V3];

fn words() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,8}[a-z0-9]"
}

/// JSON as others may have put it there; no null, which a server removes.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Fields that no release knows yet.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x[A-Z][a-zA-Z]{0,5}", anything(), 0..4)
        .prop_map(|map| map.into_iter().collect())
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    let name = prop_oneof![words(), words().prop_map(|word| format!("projectcalico.org/{word}"))];
    prop::collection::btree_map(name, "[a-z]{0,6}", 0..4)
}

fn kinds() -> impl Strategy<Value = Kind> {
    let kept: Vec<Kind> =
        Kind::all().filter(|kind| is_custom_resource(*kind) && !super::is_of_ipam(*kind)).collect();
    prop::sample::select(kept)
}

prop_compose! {
    pub(crate) fn resource()(
        kind in kinds(), name in words(), namespace in words(), labels in texts(), annotations in texts(),
        uid in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
        of_metadata in unknown(), of_spec in unknown(), of_body in unknown(), owned in any::<bool>(),
    ) -> Resource {
        let mut resource = Resource::new(kind, name);
        resource.metadata.namespace = kind.is_namespaced().then_some(namespace);
        resource.metadata.labels = labels;
        resource.metadata.annotations = annotations;
        resource.metadata.uid = Some(uid.clone());
        resource.metadata.extra = of_metadata;
        if owned {
            let owner = json!([{ "apiVersion": "projectcalico.org/v3", "kind": "Tier", "name": "t", "uid": uid },
                { "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid }]);
            resource.metadata.extra.insert("ownerReferences".into(), owner);
            resource.metadata.extra.insert("finalizers".into(), json!(["example.org/mine"]));
        }
        resource.body = of_body;
        resource.body.insert("spec".into(), Value::Object(of_spec));
        resource
    }
}

fn cidrs() -> impl Strategy<Value = Cidr> {
    prop_oneof![
        (any::<u32>(), 20_u8..=32)
            .prop_map(|(bits, length)| format!("{}/{length}", std::net::Ipv4Addr::from(bits))),
        (any::<u128>(), 116_u8..=128)
            .prop_map(|(bits, length)| format!("{}/{length}", std::net::Ipv6Addr::from(bits))),
    ]
    .prop_map(|text| masked(&text))
}

fn masked(text: &str) -> Cidr {
    let network: ipnet::IpNet = text.parse().expect("an address and a length");
    network.trunc().to_string().parse().expect("a masked network")
}

fn owners() -> impl Strategy<Value = AffinityOwner> {
    prop_oneof!["[a-z0-9.-]{1,260}".prop_map(AffinityOwner::Host), words().prop_map(AffinityOwner::Virtual)]
}

/// A record of IPAM, with what its value must at least hold to come back the same.
pub(crate) fn of_ipam() -> impl Strategy<Value = (Key, Map<String, Value>)> {
    let block = (cidrs(), prop::option::of("(host|virtual):[a-z]{1,5}"), any::<u64>()).prop_map(|(cidr, affinity, number)| {
        let value = json!({ "cidr": cidr.to_string(), "affinity": affinity, "allocations": [0, null], "unallocated": [1],
            "attributes": [{ "handle_id": "h", "secondary": { "pod": "p" } }], "affinity_claim_time": "2026-08-22T06:33:20Z",
            "sequenceNumber": number, "sequenceNumberForAllocation": { "0": number }, "deleted": false });
        (Key::Block(cidr), value)
    });
    let affinity =
        (owners(), cidrs(), "pending|confirmed|pendingDeletion").prop_map(|(owner, block, state)| {
            (Key::Affinity { owner, block }, json!({ "state": state, "deleted": false }))
        });
    let handle = ("[A-Za-z0-9.-]{1,40}", cidrs(), any::<i32>()).prop_map(|(id, cidr, count)| {
        (Key::Handle(id.into()), json!({ "block": { cidr.to_string(): count }, "deleted": false }))
    });
    let config = (any::<bool>(), any::<bool>()).prop_map(|(strict, auto)| {
        let value = json!({ "strict_affinity": strict, "auto_allocate_blocks": auto, "maxBlocksPerHost": 3 });
        (Key::IpamConfig, value)
    });
    let record = prop_oneof![block, affinity, handle, config];
    (record, unknown(), texts(), any::<bool>()).prop_map(|((key, value), more, annotations, finalized)| {
        let Value::Object(mut value) = value else { unreachable!("made as an object") };
        value.extend(more);
        let mut own = Map::new();
        if finalized {
            own.insert("finalizers".into(), json!(["example.org/mine"]));
        }
        let annotations = annotations.into_iter().map(|(name, text)| (name, text.into())).collect();
        insert_unless_empty(&mut own, "annotations", annotations);
        insert_unless_empty(&mut value, OF_CUSTOM_RESOURCE, own);
        (key, value)
    })
}

/// What the API server does to a document that it stores.
pub(crate) fn stored(mut document: Map<String, Value>) -> Map<String, Value> {
    let metadata = document.get_mut("metadata").and_then(Value::as_object_mut).expect("metadata");
    metadata.insert("resourceVersion".into(), "7".into());
    metadata.insert("generation".into(), 2.into());
    metadata.insert("managedFields".into(), json!([{ "manager": "x" }]));
    document
}

fn parsed(value: &[u8]) -> Value {
    serde_json::from_slice(value).expect("a value is JSON")
}

proptest! {
    #[test]
    fn resources_come_back_as_they_were(resource in resource()) {
        let key = resource.key();
        for layout in LAYOUTS {
            let document = encode(layout, &key, &resource.encode()).unwrap();
            prop_assert_eq!(&document["apiVersion"], &json!(layout.api_version()));
            let decoded = decode(layout, resource.kind, stored(document)).unwrap();
            prop_assert_eq!(&decoded.key, &key);
            prop_assert_eq!(decoded.revision, "7");
            prop_assert!(!decoded.is_tombstone);
            let mut back = Resource::decode(&key, resource.kind, &decoded.value, "7").unwrap();
            back.metadata.resource_version = None;
            prop_assert_eq!(back, resource.clone());
        }
    }

    #[test]
    fn what_is_on_the_custom_resource_itself_survives_a_rewrite(
        resource in resource(), labels in texts(), finalizer in words(),
    ) {
        for layout in LAYOUTS {
            let mut document = encode(layout, &resource.key(), &resource.encode()).unwrap();
            let metadata = document["metadata"].as_object_mut().unwrap();
            metadata.insert("finalizers".into(), json!([finalizer]));
            metadata.insert("labels".into(), json!(labels));
            let decoded = decode(layout, resource.kind, stored(document.clone())).unwrap();
            let again = encode(layout, &decoded.key, &decoded.value).unwrap();
            prop_assert_eq!(&again["metadata"]["finalizers"], &json!([finalizer]));
            let value = parsed(&decoded.value);
            for (name, text) in labels.iter().filter(|(name, _)| !resource.metadata.labels.contains_key(*name)) {
                prop_assert_eq!(&value["metadata"]["labels"][name], &json!(text));
            }
        }
    }

    #[test]
    fn records_of_ipam_come_back_as_they_were((key, value) in of_ipam()) {
        let place = place(&key).unwrap();
        for layout in LAYOUTS {
            let bytes = serde_json::to_vec(&value).unwrap();
            let document = encode(layout, &key, &bytes).unwrap();
            let decoded = decode(layout, place.kind, stored(document)).unwrap();
            prop_assert_eq!(&decoded.key, &key);
            prop_assert_eq!(parsed(&decoded.value), Value::Object(value.clone()));
        }
    }

    #[test]
    fn any_document_is_survived(kind in prop::sample::select(Kind::all().collect::<Vec<_>>()), document in unknown(),
        metadata in unknown(), spec in anything(), name in words(),
    ) {
        let mut document = document;
        document.insert("metadata".into(), Value::Object(metadata));
        document.insert("spec".into(), spec);
        for layout in LAYOUTS {
            let _ = decode(layout, kind, document.clone());
            document["metadata"]["name"] = json!(name);
            if let Err(Undecodable { stand_in: Some(stand_in), .. }) = decode(layout, kind, document.clone()) {
                prop_assert_eq!(place(&stand_in.key).map(|place| place.name), Some(name.clone()));
                prop_assert!(serde_json::from_slice::<Value>(&stand_in.value).is_err());
            }
        }
    }

    #[test]
    fn any_value_is_survived((key, _) in of_ipam(), resource in resource(), value in anything(), bytes in any::<Vec<u8>>()) {
        for layout in LAYOUTS {
            for key in [&key, &resource.key()] {
                let _ = encode(layout, key, &serde_json::to_vec(&value).unwrap());
                let _ = encode(layout, key, &bytes);
            }
        }
    }
}
