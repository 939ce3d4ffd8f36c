//! Blocks: what an agent must not do to those of other nodes, nor to their bookkeeping.

use model::ipam::Block;
use model::kube::encode;
use model::{AffinityOwner, Cidr, Kind};
use serde_json::{Value, json};

use super::{Refused, owner_that_is_gone};
use crate::acts::Act;
use crate::fixture::Cluster;

/// What is changed, how, and words of the refusal.
type Change = (&'static str, fn(&mut Value), &'static str);

/// An empty block of a node, and one that is no node's.
pub(super) const EMPTY: [(&str, AffinityType); 2] =
    [("10.0.2.0/26", AffinityOwner::Host), ("10.0.1.0/26", AffinityOwner::Virtual)];
type AffinityType = fn(String) -> AffinityOwner;

const ADDRESSES: &str = "only free addresses may be allocated";
const OWNER: &str = "a block changes its owner only";
const FREE_LIST: &str = "the list of free addresses";
const NUMBERS: &str = "a write raises the block's number by one";
const NEW_NUMBERS: &str = "a new block's number is that of a clock";
const METADATA: [&str; 2] = ["the labels of a block may not change", "annotations may not change"];
const ATTRIBUTES: &str = "attributes are few and short";
const CLAIM: &str = "the time of a claim is a time";
const IDENTITY: &str = "network and size of a block may not change";

/// Of node-b's block, whose spec it is. Its number is that of the next write already.
const CHANGES: &[Change] = &[
    ("releasing another node's address", |spec| release(spec, 0), ADDRESSES),
    ("taking another node's address", |spec| known(spec, 0)["node"] = "node-a".into(), ADDRESSES),
    ("changing the pod of another node's address", |spec| known(spec, 0)["pod"] = "other".into(), ADDRESSES),
    ("allocating for another node", |spec| allocate(spec, "node-b"), ADDRESSES),
    (
        "taking another node's address beside a free one",
        |spec| {
            allocate(spec, "node-a");
            spec["allocations"][0] = 3.into();
        },
        ADDRESSES,
    ),
    (
        "a free address that cools down",
        |spec| {
            spec["allocations"][3] = 2.into();
            list(spec, "unallocated").remove(0);
        },
        ADDRESSES,
    ),
    ("stealing a block in use", |spec| spec["affinity"] = "host:node-a".into(), OWNER),
    ("a block that is nobody's", |spec| drop(spec.as_object_mut().unwrap().remove("affinity")), OWNER),
    (
        "a claim before there were clocks",
        |spec| spec["affinityClaimTime"] = "1969-12-31T23:59:59Z".into(),
        CLAIM,
    ),
    ("a claim at no time", |spec| spec["affinityClaimTime"] = "soon".into(), CLAIM),
    ("an older claim", |spec| spec["affinityClaimTime"] = "2020-01-01T00:00:00Z".into(), OWNER),
    ("an allocated address listed as free", |spec| list(spec, "unallocated").push(0.into()), FREE_LIST),
    ("a free address listed twice", |spec| spec["unallocated"][0] = 4.into(), FREE_LIST),
    ("a number of its choice", |spec| spec["sequenceNumber"] = 7.into(), NUMBERS),
    ("another allocation's number", |spec| spec["sequenceNumberForAllocation"]["0"] = 7.into(), NUMBERS),
    ("a negative number", |spec| spec["sequenceNumberForAllocation"]["9"] = (-1).into(), NUMBERS),
    ("a number of no address", |spec| spec["sequenceNumberForAllocation"]["x"] = (-1).into(), NUMBERS),
    (
        "a number under another spelling",
        |spec| {
            allocate(spec, "node-a");
            spec["sequenceNumberForAllocation"]["03"] = 101.into();
        },
        NUMBERS,
    ),
    ("a number beyond the block", |spec| spec["sequenceNumberForAllocation"]["64"] = 101.into(), NUMBERS),
    (
        "an endless handle",
        |spec| {
            allocate(spec, "node-a");
            spec["attributes"][3]["handle_id"] = "x".repeat(1025).into();
        },
        ATTRIBUTES,
    ),
    (
        "an endless attribute",
        |spec| {
            allocate(spec, "node-a");
            known(spec, 3)["pod"] = "x".repeat(513).into();
        },
        ATTRIBUTES,
    ),
    (
        "countless attributes",
        |spec| {
            allocate(spec, "node-a");
            (0..16).for_each(|number| known(spec, 3)[number.to_string()] = "".into());
        },
        ATTRIBUTES,
    ),
    (
        "a release before there were clocks",
        |spec| spec["attributes"][1] = json!({ "releasedAt": "1969-12-31T23:59:59Z" }),
        ATTRIBUTES,
    ),
    ("a release at no time", |spec| spec["attributes"][1] = json!({ "releasedAt": "soon" }), ATTRIBUTES),
    (
        "an attribute of no address",
        |spec| list(spec, "attributes").push(json!({ "handle_id": "x" })),
        "every attribute must be that of an address",
    ),
    ("another network", |spec| spec["cidr"] = "10.0.0.64/26".into(), IDENTITY),
    ("a block marked as deleted", |spec| spec["deleted"] = true.into(), IDENTITY),
];

/// Of a new block of node-a.
const CREATIONS: &[Change] = &[
    (
        "a block for another node",
        |document| document["spec"]["affinity"] = "host:node-b".into(),
        "a new block is the creating node's",
    ),
    (
        "a block with an address listed twice",
        |document| document["spec"]["unallocated"][1] = 0.into(),
        "a new block is the creating node's",
    ),
    (
        "a block with a negative number",
        |document| document["spec"]["sequenceNumber"] = (-1).into(),
        NEW_NUMBERS,
    ),
    (
        "a block whose number cannot grow",
        |document| document["spec"]["sequenceNumber"] = i64::MAX.into(),
        NEW_NUMBERS,
    ),
    (
        "a block with numbers of no address",
        |document| document["spec"]["sequenceNumberForAllocation"] = json!({ "x": -1 }),
        NEW_NUMBERS,
    ),
    (
        "a block that is no network",
        |document| {
            document["spec"]["cidr"] = "10.0.0.70/26".into();
            document["metadata"]["name"] = "10-0-0-70-26".into();
        },
        "a block is a network",
    ),
    ("a block with a label", |document| document["metadata"]["labels"] = json!({ "a": "b" }), METADATA[0]),
    (
        "a block with an annotation",
        |document| document["metadata"]["annotations"] = json!({ "a": "b" }),
        METADATA[1],
    ),
    (
        "a block named like another",
        |document| document["metadata"]["name"] = "10-0-0-128-26".into(),
        "a block is named after its network",
    ),
    (
        "a block with too few addresses",
        |document| {
            for field in ["allocations", "unallocated"] {
                list(&mut document["spec"], field).pop();
            }
        },
        "a block is named after its network",
    ),
];

pub(super) fn acts(cluster: &Cluster) -> Vec<Refused> {
    let collection = cluster.collection(Kind::IpamBlock);
    let path = format!("{collection}/10-0-0-0-26");
    let mut stored = cluster.api().read(&path).unwrap();
    stored["spec"]["sequenceNumber"] = 102.into();
    let mut owned = stored.clone();
    owned["metadata"]["ownerReferences"] = owner_that_is_gone();
    let mut acts = vec![
        (
            Act::replace("an owner whose absence removes the block", &path, owned),
            "owner references and finalizers",
        ),
        (Act::delete("removing another node's block", &path), "the block is in use, or another node's"),
    ];
    for (field, words) in ["labels", "annotations"].into_iter().zip(METADATA) {
        let mut object = stored.clone();
        object["metadata"][field] = json!({ "a": "b" });
        acts.push((Act::replace(&format!("{field} of another node's block"), &path, object), words));
    }
    let [own, of_nobody] = EMPTY.map(|(cidr, _)| format!("{collection}/{}", cidr.replace(['.', '/'], "-")));
    acts.push((Act::delete("an empty block that is no node's", &of_nobody), "the block is in use"));
    acts.push((Act::delete_and("a block, later", &own, "Foreground"), "a record is deleted at once"));
    for (what, change, words) in CHANGES {
        let mut object = stored.clone();
        change(&mut object["spec"]);
        acts.push((Act::replace(what, &path, object), words));
    }
    let owner = AffinityOwner::Host("node-a".to_owned());
    let block = Block::new("10.0.0.64/26".parse::<Cidr>().unwrap(), Some(&owner), 1);
    for (what, change, words) in CREATIONS {
        let mut document = Value::Object(encode(cluster.layout, &block.key(), &block.encode()).unwrap());
        change(&mut document);
        acts.push((Act::create(what, &collection, document), words));
    }
    acts
}

fn list<'a>(spec: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    spec[field].as_array_mut().unwrap()
}

/// What the block says of an address's owner.
fn known(spec: &mut Value, index: usize) -> &mut Value {
    &mut spec["attributes"][index]["secondary"]
}

/// As it should be done, but for any node.
fn allocate(spec: &mut Value, node: &str) {
    list(spec, "attributes").push(json!({ "handle_id": "net.x", "secondary": { "node": node } }));
    spec["allocations"][3] = 3.into();
    list(spec, "unallocated").remove(0);
    spec["sequenceNumberForAllocation"]["3"] = 101.into();
}

/// As it should be done, but for any node's address.
fn release(spec: &mut Value, offset: usize) {
    spec["allocations"][offset] = Value::Null;
    list(spec, "unallocated").push(offset.into());
    spec["sequenceNumberForAllocation"].as_object_mut().unwrap().remove(&offset.to_string());
}
