//! IPAM's records as custom resources of Kubernetes, put into the form they have in etcd.

use model::{AffinityOwner, Cidr, Key};
use serde_json::Value;

use crate::draft::Draft;
use evidence::{FileGap, Origin, Sighted};

const AFFINITY_LABELS: [&str; 3] =
    ["projectcalico.org/hostname-hash", "projectcalico.org/affinity-type", "projectcalico.org/ip-version"];

/// Takes in a record of IPAM. `false`: it is another kind.
pub(super) fn record(kind: &str, value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let spec = &value["spec"];
    match kind {
        "IPAMBlock" => add(block_key(spec), spec.clone(), origin, draft),
        "IPAMHandle" => {
            let metadata = &value["metadata"];
            let id = spec["handleID"].as_str().or_else(|| metadata["name"].as_str());
            let mut record = spec.clone();
            remove(&mut record, "handleID");
            add(id.map(|id| Key::Handle(id.into())), record, origin, draft)
        }
        "BlockAffinity" => {
            let mut record = spec.clone();
            for field in ["node", "cidr", "type"] {
                remove(&mut record, field);
            }
            // A text here, a truth value in etcd.
            let is_deleted = spec["deleted"] == "true" || spec["deleted"] == true;
            if let Some(record) = record.as_object_mut() {
                record.insert("deleted".to_owned(), Value::Bool(is_deleted));
            }
            let key = affinity_key(spec);
            note_labels(key.as_ref(), value, origin, draft);
            add(key, record, origin, draft)
        }
        "IPAMConfig" | "IPAMConfiguration" => {
            if let Ok(config) = serde_json::from_value(spec.clone()) {
                draft.ipam().config = Some(Sighted::new(config, origin.clone()));
            }
            true
        }
        _ => false,
    }
}

fn add(key: Option<Key>, record: Value, origin: &Origin, draft: &mut Draft) -> bool {
    let Some(key) = key else {
        let record = origin.exhibit("an IPAM record").text;
        draft.unseen(FileGap::UnidentifiedRecord { record });
        return true;
    };
    draft.ipam().add(key, record.to_string().as_bytes(), origin.clone());
    true
}

/// Whether a list of its node's affinities has it. Of what is only shown in part, or going, nothing is concluded.
fn note_labels(key: Option<&Key>, value: &Value, origin: &Origin, draft: &mut Draft) {
    let (Some(Key::Affinity { owner, block }), Value::Object(metadata)) = (key, &value["metadata"]) else {
        return;
    };
    let labels = metadata.get("labels").and_then(Value::as_object);
    let has = |label: &str| labels.is_some_and(|labels| labels.contains_key(label));
    let known = &mut draft.ipam().labels;
    match AFFINITY_LABELS.iter().all(|label| has(label)) {
        true => known.present += 1,
        false => known.missing.push(Sighted::new((owner.clone(), *block), origin.clone())),
    }
}

fn block_key(spec: &Value) -> Option<Key> {
    Some(Key::Block(Cidr::parse_masked(spec["cidr"].as_str()?).ok()?))
}

fn affinity_key(spec: &Value) -> Option<Key> {
    let owner = spec["node"].as_str()?.to_owned();
    let owner =
        if spec["type"] == "virtual" { AffinityOwner::Virtual(owner) } else { AffinityOwner::Host(owner) };
    Some(Key::Affinity { owner, block: Cidr::parse_masked(spec["cidr"].as_str()?).ok()? })
}

fn remove(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(field);
    }
}
