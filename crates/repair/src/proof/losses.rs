//! What was lost, and who says so: a block of which the records are gone, a machine of which the record is there.

use ipam::Stored;
use jiff::SignedDuration;
use model::ipam::Handle;
use model::{Cidr, FindingCode, HandleId, Key, Kind};

use super::mishaps::{Known, NODE, pod, taken_of_node, without_node};
use super::world::World;
use super::{healthy, planned, planned_for};
use crate::{Edit, Scope};
use evidence::Evidence;

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
        let codes = |evidence: &Evidence| -> Vec<FindingCode> {
            doctor::diagnose(evidence).findings.iter().map(|finding| finding.code).collect()
        };
        assert!(codes(&evidence).contains(&FindingCode::AddressLeaked), "{:?}", codes(&evidence));
        evidence.ipam.as_mut().unwrap().books.unreadable.push(unread);
        evidence.partial.endpoints = matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
        let found = codes(&evidence);
        assert!(
            found.contains(&FindingCode::RecordUnreadable) && !found.contains(&FindingCode::AddressLeaked),
            "{found:?}"
        );
        let plan = planned(&evidence);
        let taken = plan.steps.iter().flat_map(|step| &step.edits).filter(|edit| edit.takes());
        assert_eq!(taken.map(ToString::to_string).collect::<Vec<_>>(), [] as [&str; 0]);
    }
}

/// The machine is gone, and its record is there: no finding can say so, only an operator.
#[test]
fn a_node_with_a_record_is_buried_only_by_the_word_gone_and_only_if_nobody_knows_better() {
    let gone = Scope::GoneNode(NODE.into());
    let mut dead = healthy();
    dead.nodes.remove(&NODE.into());
    let kube =
        dead.kube_nodes.as_mut().unwrap().iter_mut().find(|node| node.seen.name == NODE.into()).unwrap();
    kube.seen.status = "NotReady".to_owned();
    for node in dead.records.all_mut(Kind::Node) {
        node.seen.metadata.resource_version = Some("7".to_owned());
    }
    for scope in [Scope::Everything, Scope::Node(NODE.into())] {
        assert_eq!(taken_of_node(&dead, &scope), [] as [&str; 0], "{scope:?}");
    }
    let told = planned_for(&dead, &Scope::Node(NODE.into())).left;
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
    let kube =
        ready.kube_nodes.as_mut().unwrap().iter_mut().find(|node| node.seen.name == NODE.into()).unwrap();
    kube.seen.status = "Ready,SchedulingDisabled".to_owned();
    assert_eq!(taken_of_node(&ready, &gone), [] as [&str; 0], "Kubernetes says that it is ready");
    let mut answers = dead.clone();
    answers.nodes.insert(NODE.into(), healthy().nodes[&NODE.into()].clone());
    assert_eq!(taken_of_node(&answers, &gone), [] as [&str; 0], "its agent answers");
    let mistyped = planned_for(&dead, &Scope::GoneNode("wroker-0001".into()));
    assert!(
        mistyped.steps.is_empty() && mistyped.left[0].why.starts_with("no record, block or endpoint"),
        "{mistyped:?}"
    );
}

/// `kubectl delete node` while the machine may well run: Kubernetes' list alone buries nobody, the operator's word does.
#[test]
fn a_node_that_kubernetes_deleted_is_buried_only_by_the_word_gone() {
    let gone = Scope::GoneNode(NODE.into());
    let mut deleted = healthy();
    deleted.nodes.remove(&NODE.into());
    deleted.kube_nodes.as_mut().unwrap().retain(|node| node.seen.name != NODE.into());
    deleted.pods.as_mut().unwrap().retain(|pod| pod.seen.node != Some(NODE.into()));
    for node in deleted.records.all_mut(Kind::Node) {
        node.seen.metadata.resource_version = Some("7".to_owned());
    }
    let taken = taken_of_node(&deleted, &gone);
    for part in ["10.0.0.64", "IPAMBlock(10.0.0.64/26)", "Node(worker-0001)"] {
        assert!(taken.iter().any(|taken| taken == part), "{part}: {taken:?}");
    }
    assert_eq!(taken_of_node(&deleted, &Scope::Everything), [] as [&str; 0], "nobody asked for it");
    let asked = Scope::Node(NODE.into());
    assert_eq!(taken_of_node(&deleted, &asked), [] as [&str; 0], "its agent may only not have been asked");
    let mut answers = deleted.clone();
    answers.nodes.insert(NODE.into(), healthy().nodes[&NODE.into()].clone());
    assert_eq!(taken_of_node(&answers, &gone), [] as [&str; 0], "its agent answers");
}

/// Its record is gone, Kubernetes does not list it, and nobody asked its agent. What it wrote within the grace says that it runs.
#[test]
fn a_node_that_showed_a_sign_of_life_within_the_grace_is_not_buried() {
    let gone = without_node();
    let ago = |seconds| gone.taken_at.map(|now| now - SignedDuration::from_secs(seconds));
    let endpoint = |seconds| {
        let mut evidence = gone.clone();
        let mut endpoints = evidence.endpoints.iter_mut().flatten();
        endpoints.find(|endpoint| endpoint.seen.node == Some(NODE.into())).unwrap().seen.created_at =
            ago(seconds);
        evidence
    };
    let allocation = |seconds| {
        let mut evidence = gone.clone();
        let blocks = &mut evidence.ipam.as_mut().unwrap().books.blocks;
        let block = &mut blocks.get_mut(&"10.0.0.64/26".parse::<Cidr>().unwrap()).unwrap().value;
        let held = &mut block.attributes[0].secondary;
        let at = ago(seconds).unwrap().strftime("%Y-%m-%d %H:%M:%S.000 +0000 UTC").to_string();
        held.insert(ipam::TIMESTAMP_ATTRIBUTE, at);
        evidence
    };
    let claim = |seconds| {
        let mut evidence = gone.clone();
        let blocks = &mut evidence.ipam.as_mut().unwrap().books.blocks;
        let block = &mut blocks.get_mut(&"10.0.0.64/26".parse::<Cidr>().unwrap()).unwrap().value;
        block.affinity_claim_time = ago(seconds).map(|at| at.to_string());
        evidence
    };
    let word = [Scope::Node(NODE.into()), Scope::GoneNode(NODE.into())];
    for sign in [&endpoint as &dyn Fn(i64) -> Evidence, &allocation, &claim] {
        for scope in [&[Scope::Everything][..], &word].concat() {
            assert_eq!(taken_of_node(&sign(5), &scope), [] as [&str; 0], "{scope:?}");
            assert!(taken_of_node(&sign(61), &scope).contains(&"10.0.0.64".to_owned()), "{scope:?}");
        }
    }
    let told = planned_for(&endpoint(5), &word[0]).left;
    assert!(told.iter().any(|left| left.why.contains("showed 5 s ago that it runs")), "{told:?}");
}

/// Not ready, but its kubelet says so itself.
#[test]
fn a_node_whose_kubelet_reports_within_the_grace_is_not_buried() {
    let taken = |seconds: i64| {
        let mut evidence = healthy();
        evidence.nodes.remove(&NODE.into());
        let at = evidence.taken_at.map(|now| now - SignedDuration::from_secs(seconds));
        let kube =
            evidence.kube_nodes.iter_mut().flatten().find(|node| node.seen.name == NODE.into()).unwrap();
        kube.seen.status = "NotReady".to_owned();
        kube.seen.conditions[0].heartbeat_at = at;
        taken_of_node(&evidence, &Scope::GoneNode(NODE.into()))
    };
    assert_eq!(taken(5), [] as [&str; 0]);
    assert!(taken(61).contains(&"10.0.0.64".to_owned()));
}

/// What stands behind the last dot of a handle is a container ID only if the handle is a sandbox's. That no runtime runs a part of a name
/// says nothing about the address.
#[test]
fn a_block_is_rebuilt_without_an_address_only_if_a_sandbox_had_it() {
    let is_rebuilt = |handle: HandleId| {
        let mut evidence = healthy();
        let cidr = Cidr::containing(pod(&evidence).address, 26).unwrap();
        let record = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
        evidence.ipam.as_mut().unwrap().books.handles.insert(handle, Stored::new(record, "1"));
        let mut world = World::new(&evidence);
        world.spoil(&Key::Block(cidr));
        let plan = planned(&world.look());
        plan.steps.iter().flat_map(|step| &step.edits).any(|edit| matches!(edit, Edit::NewBlock { .. }))
    };
    assert!(is_rebuilt(HandleId::of_sandbox("k8s-pod-network", &"0e".repeat(32))));
    assert!(!is_rebuilt("shop.database-0".into()), "a pod of 2017");
    assert!(!is_rebuilt(HandleId::of_tunnel("vxlan", "worker-0001.example-domain")), "a tunnel");
}
