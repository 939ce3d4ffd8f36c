//! Whether a record is as a change left it.
//!
//! Values do not come back byte by byte from every store. Kubernetes writes documents anew, fills in defaults and keeps what only
//! the custom resource has, and a view of a pod shows more than was written. So what matters is compared.

use model::ipam::{Affinity, Block, Handle, IpamConfig};
use model::{Key, Kind, Resource, is_detached, is_same_attachment};
use store::Record;

/// Whether a record says what was written.
pub(crate) fn is_as_written(value: &[u8], record: &Record) -> bool {
    record.value == value || says_the_same(&record.key, value, &record.value).unwrap_or(false)
}

/// Whether a record was removed. A view of a pod stays while the pod does.
pub(crate) fn is_gone(found: Option<&Record>) -> bool {
    found.is_none_or(|record| is_endpoint(&record.key) && is_detached(&record.value))
}

fn is_endpoint(key: &Key) -> bool {
    matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. })
}

/// `None` if one of them cannot be read.
fn says_the_same(key: &Key, one: &[u8], other: &[u8]) -> Option<bool> {
    Some(match key {
        Key::Block(cidr) => {
            let read = |value| Some(Block { extra: Default::default(), ..Block::decode(cidr, value).ok()? });
            read(one)? == read(other)?
        }
        Key::Handle(id) => {
            let read = |value| Some(Handle { extra: Default::default(), ..Handle::decode(id, value).ok()? });
            read(one)? == read(other)?
        }
        Key::Affinity { owner, block } => {
            let read = |value| Affinity::decode(owner, block, value).ok();
            let (one, other) = (read(one)?, read(other)?);
            (one.state, one.deleted) == (other.state, other.deleted)
        }
        Key::IpamConfig => {
            let read =
                |value| Some(IpamConfig { extra: Default::default(), ..IpamConfig::decode(value).ok()? });
            read(one)? == read(other)?
        }
        Key::Resource { .. } if is_endpoint(key) => is_same_attachment(one, other),
        Key::Resource { kind, .. } => {
            let read = |value| Resource::decode(key, *kind, value, "").ok();
            let (one, other) = (read(one)?, read(other)?);
            one.body.get("spec") == other.body.get("spec") && one.metadata.labels == other.metadata.labels
        }
    })
}

#[cfg(test)]
mod tests {
    use model::kube::{Layout, decode, encode, place};
    use model::{AffinityOwner, Cidr};
    use serde_json::{Map, Value, json};
    use store::Revision;

    use super::*;

    /// What the API server gives back for a value, with a label and an annotation that somebody has put on it.
    fn read_back(layout: Layout, key: &Key, value: &[u8]) -> Record {
        let mut document = encode(layout, key, value).unwrap();
        let metadata = document["metadata"].as_object_mut().unwrap();
        metadata.insert("resourceVersion".into(), "7".into());
        metadata.insert("annotations".into(), json!({"example.org/note": "mine"}));
        metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()))["example.org/team"] =
            "blue".into();
        let decoded = decode(layout, place(key).unwrap().kind, document).unwrap();
        assert_eq!(decoded.key, *key);
        Record { key: key.clone(), value: decoded.value.into(), revision: Revision::new("7") }
    }

    fn cidr() -> Cidr {
        "10.0.0.0/30".parse().unwrap()
    }

    #[test]
    fn what_kubernetes_gives_back_is_recognised_and_what_another_wrote_is_not() {
        let owner = AffinityOwner::Host("node-a".to_owned());
        let block = Block::new(cidr(), Some(&owner), 7);
        let other_block = Block { sequence_number: 8, ..block.clone() };
        let handle =
            |count: i64| json!({"block": {"10.0.0.0/30": count}, "deleted": false}).to_string().into_bytes();
        let affinity = |state| Affinity::new(state).encode();
        let config = |strict: bool| IpamConfig { strict_affinity: strict, ..IpamConfig::default() }.encode();
        use model::ipam::AffinityState::{Confirmed, Pending};
        let cases = [
            (block.key(), block.encode(), other_block.encode()),
            (Key::Handle("net.Abc".into()), handle(1), handle(2)),
            (Key::Affinity { owner, block: cidr() }, affinity(Pending), affinity(Confirmed)),
            (Key::IpamConfig, config(true), config(false)),
        ];
        for (key, written, other) in cases {
            for layout in [Layout::V1, Layout::V3] {
                let record = read_back(layout, &key, &written);
                assert_ne!(&record.value[..], &written[..], "{key}: nothing to recognise");
                assert!(is_as_written(&written, &record), "{key} in {layout:?}: {:?}", record.value);
                assert!(!is_as_written(&other, &record), "{key} in {layout:?}");
                assert!(!is_as_written(b"no json", &record), "{key}");
            }
        }
    }

    #[test]
    fn a_resource_is_compared_by_what_it_says() {
        let key = Key::cluster(Kind::Node, "a");
        let node = |asn: u32, status: &str| {
            json!({"kind": "Node", "metadata": {"name": "a", "labels": {"rack": "1"}},
                "spec": {"bgp": {"asNumber": asn}}, "status": {"podCIDRs": [status]}})
            .to_string()
        };
        let record = Record { key, value: node(1, "new").into(), revision: Revision::new("1") };
        assert!(is_as_written(node(1, "old").as_bytes(), &record), "its status is the server's");
        assert!(!is_as_written(node(2, "old").as_bytes(), &record));
    }
}
