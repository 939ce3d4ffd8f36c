//! Records as Calico's etcd layout has them: `tests/golden/*/{key,value.json}`, one folder per record.
//!
//! `rewritten.json` stands beside a value that an old release wrote in a form that is read but no longer written.
#![expect(clippy::disallowed_methods, reason = "the records are files of this test")]

use std::path::Path;

use model::ipam::{Affinity, Block, Handle, IpamConfig};
use model::{Key, Kind, Resource, manifest, validate, yaml};
use serde_json::{Map, Value, json};

struct Golden {
    name: String,
    key: Key,
    value: Vec<u8>,
    rewritten: Option<Value>,
}

fn golden_records() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut records = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the folder of golden records can be read") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(path.join("key")).expect("each folder has a key");
        let key = Key::from_etcd_text(text.trim_end()).expect("each key is one of ours");
        assert_eq!(key.etcd_text(), text.trim_end());
        let value = std::fs::read(path.join("value.json")).expect("each folder has a value");
        let rewritten = std::fs::read(path.join("rewritten.json")).ok();
        let rewritten = rewritten.map(|bytes| serde_json::from_slice(&bytes).expect("valid JSON"));
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        records.push(Golden { name, key, value, rewritten });
    }
    records.sort_by(|left, right| left.name.cmp(&right.name));
    assert!(records.len() >= 35, "only {} golden records were found", records.len());
    records
}

/// Reads a value as what its key names, and writes it again.
fn rewrite(key: &Key, value: &[u8]) -> Value {
    let written = match key {
        Key::Resource { kind, .. } => Resource::decode(key, *kind, value, "7").expect("a resource").encode(),
        Key::Block(cidr) => Block::decode(cidr, value).expect("a block").encode(),
        Key::Affinity { owner, block } => {
            Affinity::decode(owner, block, value).expect("an affinity").encode()
        }
        Key::Handle(id) => Handle::decode(id, value).expect("a handle").encode(),
        Key::IpamConfig => IpamConfig::decode(value).expect("settings").encode(),
    };
    serde_json::from_slice(&written).expect("what is written is JSON")
}

fn resources() -> Vec<(Golden, Resource)> {
    let decode = |golden: Golden| match golden.key {
        Key::Resource { kind, .. } => {
            let resource = Resource::decode(&golden.key, kind, &golden.value, "7").expect("a resource");
            Some((golden, resource))
        }
        _ => None,
    };
    golden_records().into_iter().filter_map(decode).collect()
}

#[test]
fn every_kind_has_a_golden_record() {
    let records = golden_records();
    for kind in Kind::all() {
        let is_of_kind = |record: &Golden| match (&record.key, kind) {
            (Key::Block(_), Kind::IpamBlock)
            | (Key::Affinity { .. }, Kind::BlockAffinity)
            | (Key::Handle(_), Kind::IpamHandle) => true,
            (Key::Resource { kind: found, .. }, _) => *found == kind,
            _ => false,
        };
        assert!(records.iter().any(is_of_kind), "no golden record of {kind}");
    }
}

#[test]
fn records_are_written_as_they_were_read() {
    for golden in golden_records() {
        let expected = match &golden.rewritten {
            Some(rewritten) => rewritten.clone(),
            None => serde_json::from_slice(&golden.value).expect("valid JSON"),
        };
        assert_eq!(rewrite(&golden.key, &golden.value), expected, "{}", golden.name);
    }
}

/// Maps whose keys are data: a field from the future would be taken for an entry.
const MAPS: [&str; 9] = [
    "labels",
    "annotations",
    "secondary",
    "alternateOwnerAttrs",
    "sequenceNumberForAllocation",
    "block",
    "labelsToApply",
    "matchLabels",
    "environmentVars",
];

/// Adds a field that nobody knows to every object that is not such a map.
fn add_unknown_fields(value: &mut Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(add_unknown_fields).sum(),
        Value::Object(values) => {
            let inner = values.iter_mut().filter(|(field, _)| !MAPS.contains(&field.as_str()));
            let added: usize = inner.map(|(_, value)| add_unknown_fields(value)).sum();
            values.insert("fromTheFuture".to_owned(), json!({ "n": u64::MAX, "list": [null, 1.5, "x"] }));
            added + 1
        }
        _ => 0,
    }
}

#[test]
fn fields_that_nobody_knows_survive_at_every_level() {
    for golden in golden_records().into_iter().filter(|golden| golden.rewritten.is_none()) {
        let mut value: Value = serde_json::from_slice(&golden.value).expect("valid JSON");
        let added = add_unknown_fields(&mut value);
        assert!(added > 0);
        let bytes = serde_json::to_vec(&value).expect("JSON");
        assert_eq!(rewrite(&golden.key, &bytes), value, "{} lost one of {added} fields", golden.name);
    }
}

#[test]
fn what_calico_writes_is_valid_and_complete() {
    for (golden, resource) in resources().into_iter().filter(|(golden, _)| golden.rewritten.is_none()) {
        assert_eq!(validate::validate(&resource), [], "{}", golden.name);
        assert_eq!(resource.key(), golden.key);
        let mut filled = resource.clone();
        filled.fill_defaults();
        assert_eq!(filled, resource, "{}: a default is missing in the record", golden.name);
    }
}

#[test]
fn resources_survive_the_way_through_text() {
    for (golden, resource) in resources() {
        let document = Value::Object(resource.to_document());
        let texts = [yaml::to_yaml(&document), document.to_string(), format!("{document:#}")];
        for text in texts {
            let parsed =
                manifest::parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", golden.name));
            assert_eq!(parsed, std::slice::from_ref(&resource), "{}:\n{text}", golden.name);
        }
    }
}

#[test]
fn a_policy_of_an_old_release_has_its_short_name() {
    let (_, policy) =
        resources().into_iter().find(|(golden, _)| golden.name == "networkpolicy-of-an-old-release").unwrap();
    assert_eq!(policy.metadata.name, "allow-old");
    assert!(policy.metadata.annotations.is_empty());
    let key = Key::cluster(Kind::GlobalNetworkPolicy, "security.a");
    let stored =
        br#"{"kind":"GlobalNetworkPolicy","metadata":{"name":"default.a"},"spec":{"tier":"security"}}"#;
    let policy = Resource::decode(&key, Kind::GlobalNetworkPolicy, stored, "7").unwrap();
    assert_eq!(policy.metadata.name, "default.a", "the prefix is only that of the default tier");
    let stored = br#"{"metadata":{"name":"x","annotations":{"projectcalico.org/metadata":"{"}}}"#;
    let error = Resource::decode(&key, Kind::GlobalNetworkPolicy, stored, "7").unwrap_err();
    assert_eq!(
        error.to_string(),
        "GlobalNetworkPolicy(security.a): the annotation projectcalico.org/metadata cannot be read"
    );
}

#[test]
fn old_ipam_records_mean_what_they_meant() {
    let find = |name: &str| golden_records().into_iter().find(|golden| golden.name == name).unwrap();
    let golden = find("block-of-an-old-release");
    let Key::Block(cidr) = golden.key else { panic!("not a block") };
    let block = Block::decode(&cidr, &golden.value).unwrap();
    assert_eq!(block.owner().unwrap().name(), "node-a");
    assert_eq!(block.attribute(0).unwrap().handle().unwrap(), "k8s-pod-network.77");
    assert_eq!(block.contradictions(), Vec::<String>::new());
    let config = IpamConfig::decode(b"{}").unwrap();
    assert!(!config.auto_allocate_blocks, "absent means false in a record");
    assert!(IpamConfig::default().auto_allocate_blocks, "no record means true");
}

#[test]
fn ipam_records_are_shown_as_resources() {
    for golden in golden_records() {
        let resource = match &golden.key {
            Key::Block(cidr) => Block::decode(cidr, &golden.value).unwrap().to_resource("7"),
            Key::Affinity { owner, block } => {
                Affinity::decode(owner, block, &golden.value).unwrap().to_resource(owner, block, "7")
            }
            Key::Handle(id) => Handle::decode(id, &golden.value).unwrap().to_resource(id, "7"),
            Key::IpamConfig => IpamConfig::decode(&golden.value).unwrap().to_resource("7"),
            Key::Resource { .. } => continue,
        };
        // The names of IPv6 blocks have runs of dashes, as Calico's own have; no rule speaks against them.
        assert_eq!(validate::validate(&resource), [], "{}", golden.name);
        assert_eq!(resource.metadata.resource_version.as_deref(), Some("7"));
        let text = yaml::to_yaml(&Value::Object(resource.to_document()));
        assert_eq!(manifest::parse(&text).unwrap(), [resource], "{}", golden.name);
    }
}

#[test]
fn settings_survive_the_way_through_the_resource() {
    let mut stored: Map<String, Value> = Map::new();
    stored.insert("strict_affinity".into(), true.into());
    stored.insert("auto_allocate_blocks".into(), true.into());
    stored.insert("maxBlocksPerHost".into(), 4.into());
    stored.insert("fromTheFuture".into(), json!({ "n": u64::MAX }));
    let config = IpamConfig::decode(&serde_json::to_vec(&stored).unwrap()).unwrap();
    assert_eq!(IpamConfig::from_resource(&config.to_resource("7")), Ok(config.clone()));
    let fresh = IpamConfig { strict_affinity: true, ..IpamConfig::default() };
    assert_eq!(fresh.keep_unknown(&config).extra, config.extra);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refused = |spec: Value| {
        let mut resource = Resource::new(Kind::IpamConfiguration, "default");
        resource.body.insert("spec".into(), spec);
        let violations = IpamConfig::from_resource(&resource).expect_err("refused");
        violations.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        refused(json!({ "strictAffinity": false, "autoAllocateBlocks": false })),
        ["spec.autoAllocateBlocks: false: must be true unless strictAffinity is true"]
    );
    assert_eq!(
        refused(json!({ "maxBlocksPerHost": 5 })),
        ["spec.maxBlocksPerHost: 5: must be 0 unless strictAffinity is true"]
    );
    assert_eq!(
        refused(json!({ "ipCooldownSeconds": 1201 })),
        ["spec.ipCooldownSeconds: 1201: must be between 0 and 1200"]
    );
}
