//! What was lost, and who says so: a block of which the records are gone, a machine of which the record is there.

use model::{Cidr, Kind};

use super::mishaps::{Known, NODE, pod, taken_of_node};
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
        told.iter().any(|left| left.commands == [format!("plumb repair node {NODE} gone --apply")]),
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
