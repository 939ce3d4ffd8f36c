//! Affinities: what an agent must not do to those of others, nor to what its own say.

use model::Kind;
use model::ipam::{Affinity, AffinityState};
use model::kube::{HOSTNAME_HASH_LABEL, encode};
use serde_json::{Value, json};

use super::{Refused, affinity, owner_that_is_gone};
use crate::acts::Act;
use crate::fixture::Cluster;

/// What is changed, of which affinity, how, and words of the refusal.
type Change = (&'static str, &'static str, fn(&mut Value), &'static str);

/// What is created, what of it is changed, and words of the refusal.
type Creation = (&'static str, fn(&mut Value), &'static str);

const OTHERS: &str = "the affinity is another node's";
const IDENTITY: &str = "an affinity stays with its node and its block";
const LABELS: &str = "an affinity gets only the labels";
const AT_ONCE: &str = "a record is deleted at once";
const OF_B: &str = "node-b-10-0-0-0-26";
const OWN: &str = "node-a-10-0-0-64-26";
const OF_NOBODY: [&str; 2] = ["load-balancer-10-0-1-0-26", "load-balancer-10-0-1-64-26"];

const CHANGES: &[Change] = &[
    (
        "another node's affinity, pending again",
        OF_B,
        |object| object["spec"]["state"] = "pending".into(),
        OTHERS,
    ),
    ("another node's affinity as its own", OF_B, |object| object["spec"]["node"] = "node-a".into(), OTHERS),
    (
        "hiding another node's affinity",
        OF_B,
        |object| {
            end(object);
            object["metadata"]["labels"][HOSTNAME_HASH_LABEL] = "X".into();
        },
        LABELS,
    ),
    (
        "a label on another node's affinity",
        OF_B,
        |object| {
            end(object);
            object["metadata"]["labels"]["a"] = "b".into();
        },
        LABELS,
    ),
    (
        "an annotation on another node's affinity",
        OF_B,
        |object| {
            end(object);
            object["metadata"]["annotations"] = json!({ "a": "b" });
        },
        "annotations may not change",
    ),
    ("ending the affinity of no node", OF_NOBODY[0], end, OTHERS),
    ("giving its affinity away", OWN, |object| object["spec"]["node"] = "node-b".into(), IDENTITY),
    ("moving its affinity", OWN, |object| object["spec"]["cidr"] = "10.0.0.0/26".into(), IDENTITY),
    (
        "an affinity marked as deleted",
        OWN,
        |object| {
            let is_text = object["spec"]["deleted"].is_string();
            object["spec"]["deleted"] = if is_text { "true".into() } else { true.into() };
        },
        "an affinity is removed in one step",
    ),
];

/// Of a new affinity of node-a.
const CREATIONS: &[Creation] = &[
    (
        "an affinity of no network",
        |document| {
            document["spec"]["cidr"] = "10.0.0.130/26".into();
            document["metadata"]["name"] = "node-a-10-0-0-130-26".into();
        },
        "a block is a network",
    ),
    (
        "an affinity under another node's name",
        |document| document["metadata"]["name"] = "node-b-10-0-0-128-26".into(),
        "an affinity is named after its node",
    ),
    (
        "an affinity that somebody else removes",
        |document| document["metadata"]["ownerReferences"] = owner_that_is_gone(),
        "owner references and finalizers",
    ),
];

fn end(object: &mut Value) {
    object["spec"]["state"] = "pendingDeletion".into();
}

pub(super) fn acts(cluster: &Cluster) -> Vec<Refused> {
    let collection = cluster.collection(Kind::BlockAffinity);
    let path = |name: &str| format!("{collection}/{name}");
    let created = |what: &str, node: &str, change: fn(&mut Value)| {
        let (key, pending) = (affinity(node, "10.0.0.128/26"), Affinity::new(AffinityState::Pending));
        let mut document = Value::Object(encode(cluster.layout, &key, &pending.encode()).unwrap());
        change(&mut document);
        Act::create(what, &collection, document)
    };
    let mut acts = vec![
        (Act::delete("removing another node's affinity", &path(OF_B)), OTHERS),
        (Act::delete("removing the affinity of no node", &path(OF_NOBODY[1])), OTHERS),
        (Act::delete_and("its affinity, later", &path(OWN), "Foreground"), AT_ONCE),
        (Act::delete_and("its affinity alone", &path(OWN), "Orphan"), AT_ONCE),
        (created("an affinity of another node", "node-b", |_| {}), OTHERS),
    ];
    for (what, name, change, words) in CHANGES {
        let mut object = cluster.api().read(&path(name)).unwrap();
        change(&mut object);
        acts.push((Act::replace(what, &path(name), object), words));
    }
    acts.extend(CREATIONS.iter().map(|(what, change, words)| (created(what, "node-a", *change), *words)));
    acts
}
