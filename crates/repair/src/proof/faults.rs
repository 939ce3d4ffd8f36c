//! Each fault alone, and several at once.

use std::collections::{BTreeMap, BTreeSet};

use model::{DeviceName, FindingCode, Kind, Mac};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::world::World;
use super::{Named, healthy, mended, planned, told, with_agents};
use crate::find;
use doctor::checks::faults::{Fault, all, healthy_for};
use doctor::diagnose;
use evidence::kernel::{Link, Vxlan};
use evidence::sample::{kernel_route, record};
use evidence::{Evidence, Origin, Sighted};
use plan::task::{KernelChange, NextHop};
use serde_json::json;

/// What a repair of these faults does and leaves; or what is wrong with it.
fn repaired(injected: &[(&Fault, usize)]) -> Result<(BTreeSet<Named>, BTreeMap<Named, String>), String> {
    let mut evidence = with_agents(healthy_for(injected.iter().map(|(fault, _)| *fault)));
    for (fault, node) in injected {
        (fault.inject)(&mut evidence, *node);
    }
    // As a store would tell it.
    let mut world = World::new(&evidence);
    let evidence = world.look();
    let before = told(&diagnose(&evidence));
    let mut plan = planned(&evidence);
    let not_injected: Vec<_> = mended(&plan).difference(&before).cloned().collect();
    if !not_injected.is_empty() {
        return Err(format!("mends what was not found: {not_injected:?}"));
    }
    world.carry_out(&plan)?;
    // Routes follow from blocks and addresses that were repaired just now. On a node its agent makes them; here the next repair does.
    for _ in 0..2 {
        let next = planned(&world.look());
        world.carry_out(&next)?;
        plan.steps.extend(next.steps);
        plan.left = next.left;
    }
    judge(&before, &plan, &world.look())
}

fn judge(
    before: &BTreeSet<Named>,
    plan: &crate::Plan,
    after: &Evidence,
) -> Result<(BTreeSet<Named>, BTreeMap<Named, String>), String> {
    let report = diagnose(after);
    let (done, after) = (mended(plan), told(&report));
    let reasons: BTreeMap<Named, String> =
        plan.left.iter().map(|left| ((left.code, left.subject.clone()), left.why.clone())).collect();
    let new: Vec<_> = after.difference(before).collect();
    if !new.is_empty() {
        return Err(format!("new afterwards: {new:?}"));
    }
    let still: Vec<_> = after.intersection(&done).filter(|named| !reasons.contains_key(*named)).collect();
    if !still.is_empty() {
        return Err(format!("mended and still there: {still:?}"));
    }
    let findings: BTreeSet<Named> =
        report.findings.iter().map(|finding| (finding.code, finding.subject.to_string())).collect();
    let forgotten: Vec<_> =
        findings.iter().filter(|named| !done.contains(*named) && !reasons.contains_key(*named)).collect();
    if !forgotten.is_empty() {
        return Err(format!("neither mended nor left with a reason: {forgotten:?}"));
    }
    Ok((done, reasons))
}

/// Which codes the sample's faults leave to people although repair knows a remedy, because what would be needed is not there.
const LEFT: &[FindingCode] = &[
    // Kubernetes itself shows something else than everybody.
    FindingCode::EndpointAddressDiffers,
    // Its pod is listed with the address: the kubelet makes a new sandbox, and its ADD settles it.
    FindingCode::EndpointWithoutSandbox,
    // The second sandbox runs, too, and has to be recreated.
    FindingCode::AddressShared,
    // Its agent answers.
    FindingCode::NodeLeftBehind,
    // Nobody looked at the new node.
    FindingCode::NodeAddressMissing,
    // The wrong address stands in an annotation of Kubernetes.
    FindingCode::NodeAddressUnfit,
    FindingCode::TunnelAddressShared,
];

#[test]
fn every_fault_alone_is_mended_or_left_with_a_reason() {
    let mut wrong = Vec::new();
    for fault in all() {
        let remedy = find(fault.code);
        let is_left = remedy.is_by_hand() || LEFT.contains(&fault.code);
        match repaired(&[(&fault, 1)]) {
            Err(said) => wrong.push(format!("{}: {said}", fault.code)),
            Ok((done, reasons)) => {
                let is_in = |(code, _): &Named| *code == fault.code;
                let (is_mended, reason) = (done.iter().any(is_in), reasons.keys().any(is_in));
                if reason != is_left || (is_mended && remedy.is_by_hand()) || (!is_mended && !reason) {
                    wrong.push(format!("{}: mended {is_mended}, left {reasons:?}", fault.code));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_an_agent_there_are_commands_instead() {
    let mut told = BTreeSet::new();
    for fault in all() {
        let mut evidence = healthy_for([&fault]);
        (fault.inject)(&mut evidence, 1);
        let plan = planned(&evidence);
        assert!(plan.steps.iter().all(|step| step.on_node.is_none()), "{}", fault.code);
        told.extend(plan.left.iter().filter(|left| !left.commands.is_empty()).map(|left| left.code));
    }
    for code in [
        FindingCode::RouteMissing,
        FindingCode::NeighbourWrong,
        FindingCode::DeviceDown,
        FindingCode::PodDefaultRouteMissing,
        FindingCode::ForwardingOff,
    ] {
        assert!(told.contains(&code), "{code}");
    }
}

#[test]
fn a_healthy_cluster_needs_no_repair() {
    let plan = planned(&healthy());
    assert!(plan.steps.is_empty() && plan.left.is_empty(), "{plan:#?}");
}

/// Two plans must agree on a step before it is done: it may not depend on when it was made.
#[test]
fn a_later_look_at_the_same_things_gives_the_same_steps() {
    for fault in all() {
        let mut evidence = with_agents(healthy_for([&fault]));
        (fault.inject)(&mut evidence, 1);
        let first = planned(&evidence);
        let mut later = evidence.clone();
        later.earlier = Some(Box::new(evidence));
        later.taken_at = later.taken_at.map(|at| at + jiff::SignedDuration::from_mins(10));
        let mut second = planned(&later);
        let count = second.steps.len();
        assert_eq!(second.keep_agreed(&first), [], "{}", fault.code);
        assert_eq!((second.steps.len(), count), (first.steps.len(), count), "{}", fault.code);
    }
}

#[test]
fn whatever_was_edited_can_be_taken_back() {
    for fault in all() {
        let mut evidence = with_agents(healthy_for([&fault]));
        (fault.inject)(&mut evidence, 1);
        let mut world = World::new(&evidence);
        let before = world.content();
        let plan = planned(&world.look());
        let undo = world.carry_out(&plan).unwrap_or_else(|said| panic!("{}: {said}", fault.code));
        for edits in &undo {
            world.edit(edits).unwrap_or_else(|said| panic!("{}: undo: {said}", fault.code));
        }
        assert_eq!(world.content(), before, "{}", fault.code);
    }
}

/// Nothing of a plan is done twice, however often it is carried out.
#[test]
fn a_plan_that_is_carried_out_again_changes_nothing() {
    for fault in all() {
        let mut evidence = with_agents(healthy_for([&fault]));
        (fault.inject)(&mut evidence, 1);
        let mut world = World::new(&evidence);
        let plan = planned(&world.look());
        world.carry_out(&plan).unwrap_or_else(|said| panic!("{}: {said}", fault.code));
        let once = world.content();
        for step in &plan.steps {
            // A record that was deleted by its revision is a surprise the second time, and stays as it is.
            let undo = world.edit(&step.edits).unwrap_or_default();
            assert_eq!(undo, [], "{}", fault.code);
        }
        assert_eq!(world.content(), once, "{}", fault.code);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::count(64, 1000) as u32))]

    #[test]
    fn several_at_once_are_mended_or_left(faults in subsequence((0..all().len()).collect::<Vec<_>>(), 2..=5).prop_shuffle()) {
        let all = all();
        let injected: Vec<(&Fault, usize)> =
            faults.iter().enumerate().map(|(node, fault)| (&all[*fault], node)).collect();
        let codes: Vec<FindingCode> = injected.iter().map(|(fault, _)| fault.code).collect();
        if let Err(said) = repaired(&injected) {
            return Err(TestCaseError::fail(format!("{codes:?}: {said}")));
        }
    }
}

/// The header of VXLAN over IPv6 is larger than over IPv4.
#[test]
fn a_tunnels_mtu_leaves_room_for_its_own_header() {
    for (device, expected) in [("vxlan.calico", 1450), ("vxlan-v6.calico", 1430)] {
        let mut evidence = with_agents(healthy_for([]));
        evidence.records.add(record(
            Kind::IpPool,
            "tunnelled",
            json!({"cidr": "10.64.0.0/16", "vxlanMode": "Always"}),
        ));
        let links = evidence.node_mut("worker-0001").kernel.links.as_mut().unwrap();
        links.iter_mut().filter(|link| link.seen.is_workload()).for_each(|link| link.seen.mtu = Some(1400));
        let vxlan = Some(Vxlan { parent: Some("eth0".to_owned()), ..Vxlan::default() });
        let link = Link { name: device.to_owned(), mtu: Some(1500), vxlan, ..Link::default() };
        links.push(Sighted::new(link, Origin::probe("worker-0001", "links")));
        let mtus: Vec<u32> = planned(&evidence)
            .steps
            .iter()
            .flat_map(|step| step.on_node.iter().flat_map(|on_node| &on_node.works))
            .filter_map(|work| match &work.change {
                KernelChange::Mtu { device: of, to, .. } if of == device => Some(*to),
                _ => None,
            })
            .collect();
        assert_eq!(mtus, [expected], "{device}");
    }
}

/// What plans change inside pods.
fn changes_inside(evidence: &Evidence) -> BTreeSet<KernelChange> {
    let steps = planned(evidence).steps;
    let tasks = steps.iter().flat_map(|step| step.on_node.iter().flat_map(|on_node| &on_node.works));
    tasks.filter(|task| task.inside.is_some()).map(|task| task.change.clone()).collect()
}

/// A pod with both IP versions gets back what it lost of either.
#[test]
fn a_pods_gateway_is_restored_for_its_own_ip_version() {
    let mut evidence = with_agents(healthy_for([]));
    let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
    let addresses = [endpoint.addresses[0], "fd00::7".parse().unwrap()];
    endpoint.addresses = addresses.to_vec();
    let (id, device) = (endpoint.container_id.clone(), DeviceName::new("eth0").unwrap());
    let wanted = plan::End::in_pod(device, Mac::HOST_END, 1500, &addresses, false);
    let node = evidence.node_mut("worker-0000");
    node.attachments.as_mut().unwrap()[0].seen.addresses = addresses.to_vec();
    let view = node.pod_views.as_mut().unwrap().iter_mut().find(|view| view.container_id == id).unwrap();
    let kernel = &mut view.kernel;
    let origin = Origin::probe("worker-0000", "pods");
    // The route that the kernel makes shows that both versions were listed.
    let link_local = kernel_route("fe80::/64".parse().unwrap(), None, Some("eth0"), "kernel");
    kernel.routes.as_mut().unwrap().push(Sighted::new(link_local, origin));
    let [_, default_v4, default_v6] = &wanted.routes[..] else { panic!("{:?}", wanted.routes) };
    let route = |route: &plan::Route| KernelChange::Route {
        destination: route.destination,
        from: None,
        to: Some(NextHop::of(route, &wanted.device)),
    };
    let neighbour = KernelChange::Neighbour {
        address: plan::V6_GATEWAY.into(),
        device: "eth0".to_owned(),
        from: None,
        to: Some(Mac::HOST_END),
    };
    let (v4, v6) = (route(default_v4), route(default_v6));
    assert!(changes_inside(&evidence).is_superset(&[v6.clone(), neighbour.clone()].into()));
    assert!(!changes_inside(&evidence).contains(&v4));
    let kernel = &mut evidence.node_mut("worker-0000").pod_views.as_mut().unwrap()[0].kernel;
    kernel.routes.as_mut().unwrap().retain(|route| route.seen.destination.prefix_len() > 0);
    assert!(changes_inside(&evidence).is_superset(&[v4, v6, neighbour].into()));
}

/// A stranger's route may lead to a pod that has no endpoint: while one was not observed from inside, nobody removes it.
#[test]
fn a_diverting_route_stays_while_a_pod_was_not_observed() {
    let all = all();
    let fault = all.iter().find(|fault| fault.code == FindingCode::RouteDiverted).expect("it is among them");
    let mut evidence = with_agents(healthy_for([fault]));
    let subject = (fault.inject)(&mut evidence, 1);
    let named = (FindingCode::RouteDiverted, subject);
    assert!(mended(&planned(&evidence)).contains(&named));
    evidence.nodes.values_mut().for_each(|node| node.pod_views = Some(Vec::new()));
    assert!(!mended(&planned(&evidence)).contains(&named));
}
