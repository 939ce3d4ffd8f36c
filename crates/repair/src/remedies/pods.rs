//! What is missing inside a pod. What a pod has in its place is left: whoever may change a pod's network from inside has their reasons.

use model::FindingCode;
use plan::task::{KernelChange, RepairTask};
use plan::{Difference, DifferenceKind};

use super::super::draft::{Draft, Target};
use super::running::Running;
use super::{Act, Remedy, kernel};
use doctor::Subject;
use evidence::Endpoint;

const UNDO: &str = "removes what was added inside the pod, unless it has been changed since";

const fn remedy(code: FindingCode, does: &'static str, act: Act) -> Remedy {
    Remedy { undo: UNDO, ..kernel::remedy(code, does, act) }
}

pub(super) const ALL: &[Remedy] = &[
    remedy(FindingCode::PodInterfaceMissing, "rebuilds the network of the running sandbox", make_interface),
    remedy(FindingCode::PodAddressMissing, "adds the address in the endpoint record", add_address),
    remedy(FindingCode::PodDefaultRouteMissing, "adds the default route through the node", add_default_route),
    remedy(
        FindingCode::PodGatewayUnresolved,
        "adds a neighbour entry for the gateway inside the pod, with the MAC \
                                      address of the node's end of the veth pair",
        resolve_gateway,
    ),
];

/// The one endpoint of a pod, and its sandbox if that runs.
fn pod<'e>(draft: &mut Draft<'_, 'e>, target: &Target) -> Option<(&'e Endpoint, Running<'e>)> {
    let Subject::Pod(name) = &target.subject else { return None };
    let endpoints: Vec<&Endpoint> =
        draft.ground.case.endpoints_of(name).map(|endpoint| &endpoint.seen).collect();
    let running = Running::of_pod(draft.ground, name);
    match (&endpoints[..], running) {
        (&[endpoint], Some(running)) => Some((endpoint, running)),
        _ => {
            let why = "exactly one running sandbox of the pod and its record could not be identified";
            draft.leave_pod(target, why, name);
            None
        }
    }
}

fn make_interface(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    let Some(wire) = kernel::wire_of(draft, endpoint) else { return };
    if draft.ground.case.is_namespace_lost(&wire.container_id) {
        return kernel::leave_without_namespace(draft, target, endpoint.pod_name());
    }
    draft.change(
        target,
        format!("rebuild the network of endpoint {endpoint}"),
        &running.node.name,
        KernelChange::Wire(wire),
    );
}

/// Whether there is an interface at all: without one everything else comes with it.
fn has_interface(running: &Running<'_>) -> bool {
    running.interface().is_some()
}

/// Nothing leads through an interface that is down: the kernel takes no route, and what it takes goes with the next.
fn is_left_down(draft: &mut Draft<'_, '_>, target: &Target, running: &Running<'_>) -> bool {
    let is_down = running.interface().is_some_and(|link| link.is_up == Some(false));
    if is_down {
        kernel::leave_pods_end(draft, target, Some(&running.sandbox.id));
    }
    is_down
}

/// What restores those of the pod's differences, inside its sandbox.
fn restored(
    draft: &Draft<'_, '_>,
    running: &Running<'_>,
    is_meant: impl Fn(&Difference) -> bool,
) -> Vec<RepairTask> {
    let Some(view) = running.inside else { return Vec::new() };
    let found = draft.ground.case.differences_inside(running.node, view);
    let changes = found.iter().filter(|found| is_meant(found)).filter_map(Difference::change);
    changes.map(|change| RepairTask::inside(&running.sandbox.id, change)).collect()
}

fn add_address(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    if !has_interface(&running) {
        return;
    }
    let tasks =
        restored(draft, &running, |found| matches!(found.kind, DifferenceKind::AddressMissing { .. }));
    draft.work(target, format!("restore the address of {endpoint}"), &running.node.name, tasks);
}

fn add_default_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    if !has_interface(&running) || is_left_down(draft, target, &running) {
        return;
    }
    // With the route to the gateway, if that is missing, too.
    let tasks = restored(draft, &running, |found| matches!(found.kind, DifferenceKind::RouteMissing { .. }));
    draft.work(target, format!("restore the default route of {endpoint}"), &running.node.name, tasks);
}

fn resolve_gateway(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    if is_left_down(draft, target, &running) {
        return;
    }
    let (Some(mac), Some(view), true) =
        (running.device().and_then(|device| device.mac), running.inside, has_interface(&running))
    else {
        return draft.leave(target, "no device of the node leads to the pod");
    };
    let resolve = |found: &Difference| {
        let address = match &found.kind {
            DifferenceKind::NeighbourUnresolved { address } => *address,
            DifferenceKind::NeighbourMissing { neighbour, .. } => neighbour.address,
            _ => return None,
        };
        let device = &found.device;
        let mut known = view.kernel.neighbours.iter().flatten().map(|known| &known.seen);
        let known = known.find(|known| known.address == address && known.device == device.as_str());
        let (device, from) = (device.to_string(), known.and_then(|known| known.mac));
        Some(KernelChange::Neighbour { address, device, from, to: Some(mac) })
    };
    let found = draft.ground.case.differences_inside(running.node, view);
    let tasks =
        found.iter().filter_map(resolve).map(|change| RepairTask::inside(&running.sandbox.id, change));
    draft.work(
        target,
        format!("add the neighbour entry for the gateway in {endpoint}"),
        &running.node.name,
        tasks.collect(),
    );
}
