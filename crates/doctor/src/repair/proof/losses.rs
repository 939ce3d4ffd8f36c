//! What was lost, and who says so: a block of which the records are gone, a machine of which the record is there.

use model::{Cidr, Key, Kind};

use super::mishaps::{Known, NODE, pod, taken_of_node};
use super::world::World;
use super::{healthy, planned, planned_for};
use crate::Evidence;
use crate::repair::{Edit, Scope};

/// What a lost block is made from must be all that is in use: an address that it has as free is given out.
#[test]
fn a_lost_block_is_not_made_while_a_pod_may_have_one_of_its_addresses_besides() {
    let made = |change: fn(&mut Evidence, &Known)| {
        let mut evidence = healthy();
        let known = pod(&evidence);
        evidence
            .ipam
            .as_mut()
            .unwrap()
            .books
            .blocks
            .remove(&"10.0.0.64/26".parse::<Cidr>().unwrap())
            .unwrap();
        change(&mut evidence, &known);
        let steps = planned(&evidence).steps;
        steps.iter().flat_map(|step| &step.edits).any(|edit| matches!(edit, Edit::NewBlock { .. }))
    };
    assert!(made(|_, _| ()));
    // Its status shows another address of the block than its endpoint has, and nobody looked inside.
    assert!(!made(|evidence, pod| {
        let shown = evidence.pods.as_mut().unwrap().iter_mut().find(|shown| shown.seen.name == pod.name);
        shown.unwrap().seen.addresses = vec!["10.0.0.90".parse().unwrap()];
        evidence.node_mut(NODE).pod_views = None;
    }));
    // It has one inside that no record has.
    assert!(!made(|evidence, pod| {
        let views = evidence.node_mut(NODE).pod_views.as_mut().unwrap();
        let view = views.iter_mut().find(|view| view.container_id.as_ref() == Some(&pod.id)).unwrap();
        let held = view.kernel.addresses.as_mut().unwrap();
        let mut another = held.last().unwrap().clone();
        another.seen.net = "10.0.0.91/32".parse().unwrap();
        held.push(another);
    }));
}

/// Whatever record cannot be read, nothing is planned that takes anything away but what it holds: the block is rebuilt as it was.
#[test]
fn what_cannot_be_read_takes_nothing_with_it() {
    let healthy = healthy();
    let books = &healthy.ipam.as_ref().unwrap().books;
    let blocks = books.blocks.keys().map(|cidr| Key::Block(*cidr));
    let handles = books.handles.keys().map(|id| Key::Handle(id.clone()));
    let affinities =
        books.affinities.keys().map(|(owner, block)| Key::Affinity { owner: owner.clone(), block: *block });
    for key in blocks.chain(handles).chain(affinities).collect::<Vec<_>>() {
        let mut world = World::new(&healthy);
        let before = world.content();
        world.spoil(&key);
        let plan = planned(&world.look());
        for edit in plan.steps.iter().flat_map(|step| &step.edits) {
            assert_eq!(edit.key(), key, "{edit}");
        }
        world.carry_out(&plan).unwrap();
        let after = world.content();
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{key}");
        for (name, value) in &before {
            assert_eq!(owners(&after[name]), owners(value), "{key}: {name}");
        }
    }
}

/// Of a block, who has what; all of any other record.
fn owners(record: &serde_json::Value) -> serde_json::Value {
    let Some(allocations) = record["allocations"].as_array() else { return record.clone() };
    let handle = |held: &serde_json::Value| match held.as_u64() {
        Some(index) => record["attributes"][index as usize]["handle_id"].clone(),
        None => serde_json::Value::Null,
    };
    serde_json::json!([record["affinity"], allocations.iter().map(handle).collect::<Vec<_>>()])
}

/// Endpoints, nodes and pools that cannot be read may use any address, or be any node.
#[test]
fn users_that_cannot_be_read_vouch_for_everything() {
    let spoilt = [
        Key::namespaced(Kind::WorkloadEndpoint, "shop", "worker--0001-k8s-lost-eth0"),
        Key::cluster(Kind::Node, "worker-9999"),
    ];
    for key in spoilt {
        let mut evidence = healthy();
        // One pod is gone without a trace, and a node whose record is gone with it.
        evidence.endpoints.as_mut().unwrap().remove(0);
        evidence.pods.as_mut().unwrap().remove(0);
        evidence.nodes.values_mut().for_each(|node| node.sandboxes = Some(Vec::new()));
        let unread = ipam::Corrupt { key: key.clone(), contradictions: vec!["no JSON".to_owned()] };
        let codes = |evidence: &Evidence| -> Vec<&'static str> {
            crate::diagnose(evidence).findings.iter().map(|finding| finding.code).collect()
        };
        assert!(codes(&evidence).contains(&"address-leaked"), "{:?}", codes(&evidence));
        evidence.ipam.as_mut().unwrap().books.unreadable.push(unread);
        evidence.partial.endpoints = matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
        let found = codes(&evidence);
        assert!(found.contains(&"record-unreadable") && !found.contains(&"address-leaked"), "{found:?}");
        let plan = planned(&evidence);
        let taken = plan.steps.iter().flat_map(|step| &step.edits).filter(|edit| edit.takes());
        assert_eq!(taken.map(ToString::to_string).collect::<Vec<_>>(), [] as [&str; 0]);
    }
}

/// The machine is gone, and its record is there: no finding can say so, only an operator.
#[test]
fn a_node_with_a_record_is_buried_only_by_the_word_gone_and_only_if_nobody_knows_better() {
    let gone = Scope::GoneNode(NODE.to_owned());
    let mut dead = healthy();
    dead.nodes.remove(NODE);
    let kube = dead.kube_nodes.as_mut().unwrap().iter_mut().find(|node| node.seen.name == NODE).unwrap();
    kube.seen.status = "NotReady".to_owned();
    for node in dead.records.all_mut(Kind::Node) {
        node.seen.metadata.resource_version = Some("7".to_owned());
    }
    for scope in [Scope::Everything, Scope::Node(NODE.to_owned())] {
        assert_eq!(taken_of_node(&dead, &scope), [] as [&str; 0], "{scope:?}");
    }
    let told = planned_for(&dead, &Scope::Node(NODE.to_owned())).left;
    assert!(
        told.iter().any(|left| left
            .commands
            .iter()
            .any(|it| it.to_string() == format!("plumb repair node {NODE} gone --apply"))),
        "{told:?}"
    );
    let taken = taken_of_node(&dead, &gone);
    for part in ["10.0.0.64", "IPAMBlock(10.0.0.64/26)", "Node(worker-0001)"] {
        assert!(taken.iter().any(|taken| taken == part), "{part}: {taken:?}");
    }
    let mut ready = dead.clone();
    let kube = ready.kube_nodes.as_mut().unwrap().iter_mut().find(|node| node.seen.name == NODE).unwrap();
    kube.seen.status = "Ready,SchedulingDisabled".to_owned();
    assert_eq!(taken_of_node(&ready, &gone), [] as [&str; 0], "Kubernetes says that it is ready");
    let mut answers = dead.clone();
    answers.nodes.insert(NODE.to_owned(), healthy().nodes[NODE].clone());
    assert_eq!(taken_of_node(&answers, &gone), [] as [&str; 0], "its agent answers");
    let mistyped = planned_for(&dead, &Scope::GoneNode("wroker-0001".to_owned()));
    assert!(
        mistyped.steps.is_empty() && mistyped.left[0].why.starts_with("there is no record"),
        "{mistyped:?}"
    );
}

/// `kubectl delete node`: the operator asks about the node, and Kubernetes' list does not have it in either look.
#[test]
fn a_node_that_kubernetes_deleted_is_buried_when_the_operator_asks_and_its_agent_does_not_answer() {
    let asked = Scope::Node(NODE.to_owned());
    let mut deleted = healthy();
    deleted.nodes.remove(NODE);
    deleted.kube_nodes.as_mut().unwrap().retain(|node| node.seen.name != NODE);
    deleted.pods.as_mut().unwrap().retain(|pod| pod.seen.node.as_deref() != Some(NODE));
    for node in deleted.records.all_mut(Kind::Node) {
        node.seen.metadata.resource_version = Some("7".to_owned());
    }
    let taken = taken_of_node(&deleted, &asked);
    for part in ["10.0.0.64", "IPAMBlock(10.0.0.64/26)", "Node(worker-0001)"] {
        assert!(taken.iter().any(|taken| taken == part), "{part}: {taken:?}");
    }
    assert_eq!(taken_of_node(&deleted, &Scope::Everything), [] as [&str; 0], "nobody asked for it");
    let mut answers = deleted.clone();
    answers.nodes.insert(NODE.to_owned(), healthy().nodes[NODE].clone());
    assert_eq!(taken_of_node(&answers, &asked), [] as [&str; 0], "its agent answers");
    // By these alone the record stays; that its pods are gone is another matter.
    let keeps_record =
        |evidence: &Evidence| !taken_of_node(evidence, &asked).contains(&"Node(worker-0001)".to_owned());
    let mut some = deleted.clone();
    some.partial.kube_nodes = true;
    assert!(keeps_record(&some), "only some nodes were listed");
    let mut listed_before = deleted.clone();
    listed_before.earlier = Some(Box::new(healthy()));
    assert!(keeps_record(&listed_before), "it was listed a moment ago");
}
