//! What a pod has in the kernel of its node: devices, routes, neighbours, settings.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, FindingCode, NodeName, Sandbox};
use plan::between::tunnel_overhead;
use plan::task::{KernelChange, NextHop, PodNetwork, RepairTask, Veth};
use plan::{USUAL_INTERFACE, required_on_node};

use super::super::draft::{Draft, Target, delete_pod};
use super::super::witness::Suspect;
use super::running::Running;
use super::{Act, Area, Remedy, addresses, endpoints};
use doctor::{Host, Subject};
use evidence::kernel::{Link, Route};
use evidence::{Endpoint, PodName, same_id};

pub(super) const UNDO: &str = "restores the previous kernel state on the node (links, routes, neighbour \
                               entries, sysctls), unless it has been changed since";

pub(super) const fn remedy(code: FindingCode, does: &'static str, act: Act) -> Remedy {
    Remedy { does, undo: UNDO, ..Remedy::of(code, Area::Kernel, act) }
}

pub(super) const GIVING: &[Remedy] = &[
    Remedy {
        does: "if the runtime runs the sandbox, rebuilds its whole network in place; if two witnesses report it gone, deletes the record",
        undo: "removes the rebuilt network, or restores the deleted record, unless they have been changed since",
        ..Remedy::of(FindingCode::EndpointWithoutDevice, Area::Kernel, wire_or_delete)
    },
    remedy(FindingCode::DeviceDown, "sets the node's end up; the pod's end is left to you", set_up),
    remedy(FindingCode::DeviceSettingWrong, "writes the value that pods require", set_setting),
    remedy(FindingCode::MtuDiffers, "sets the MTU of the node's end to that of the pod's end", equal_mtus),
    remedy(
        FindingCode::MtuTooLarge,
        "reduces the tunnel's MTU to what its NIC allows; MTUs of pods are left to you",
        shrink_mtu,
    ),
    remedy(FindingCode::RouteMissing, "adds the route to the endpoint's device", put_route),
    remedy(
        FindingCode::RouteToWrongDevice,
        "replaces the route with one to the endpoint's device",
        put_route,
    ),
    remedy(
        FindingCode::NeighbourMissing,
        "adds the permanent entry that matches the endpoint record",
        put_neighbour,
    ),
    remedy(
        FindingCode::NeighbourWrong,
        "replaces the entry with the one that matches the endpoint record",
        put_neighbour,
    ),
];

pub(super) const TAKING: &[Remedy] = &[
    remedy(
        FindingCode::RouteWithoutEndpoint,
        "removes the route, if no record, no pod in Kubernetes and no running sandbox on the node has the \
         address",
        drop_route,
    ),
    remedy(
        FindingCode::NeighbourWithoutEndpoint,
        "removes the entry, if no record, no pod in Kubernetes and no running sandbox on the node has the \
         address",
        drop_neighbour,
    ),
    remedy(
        FindingCode::DeviceWithoutEndpoint,
        "removes the device if two witnesses report that no sandbox is behind it; a device with a running \
         sandbox is kept, and that sandbox's endpoint is repaired instead",
        drop_device,
    ),
];

pub(super) fn host<'d, 'e>(draft: &'d Draft<'_, 'e>, node: &NodeName) -> Option<&'d Host<'e>> {
    draft.ground.case.hosts().iter().find(|host| host.name() == node)
}

/// The one endpoint of a node that has an address, if the node's kernel is to be put right by it. A record of a sandbox that runs
/// on another node, or is gone, is itself what is wrong.
fn endpoint_at<'e>(
    draft: &mut Draft<'_, 'e>,
    target: &Target,
    node: &NodeName,
    address: IpAddr,
) -> Option<&'e Endpoint> {
    let ground = draft.ground;
    let found = ground.case.endpoints_at(address).iter().map(|endpoint| &endpoint.seen);
    let here: Vec<&Endpoint> = found.filter(|found| found.node.as_ref() == Some(node)).collect();
    let [endpoint] = here[..] else {
        let why = "exactly one endpoint on the node that has the address could not be identified";
        draft.leave(target, why);
        return None;
    };
    let runs_on = endpoint.container_id.as_deref().and_then(|id| ground.case.runs_on(id));
    let is_elsewhere = runs_on.is_some_and(|other| other.name != *node);
    (!is_elsewhere && ground.is_gone(&endpoints::suspect(endpoint)).is_err()).then_some(endpoint)
}

/// The device that leads to an endpoint's sandbox: the real one where that is known, else the recorded one.
fn device_of(draft: &Draft<'_, '_>, endpoint: &Endpoint) -> Option<String> {
    let running = Running::of(draft.ground, endpoint);
    let real = running.and_then(|running| running.device()).map(|link| link.name.clone());
    real.or_else(|| endpoint.device.clone())
}

/// Whether a node has a device, as far as its devices were looked at. Where one is missing, nothing can lead to it: it is made
/// together with what leads to it, or its record goes.
fn may_be_there(draft: &Draft<'_, '_>, node: &NodeName, device: &str) -> bool {
    let kernel = draft.ground.case.node(node).map(|node| &node.kernel);
    let links = kernel.filter(|kernel| !kernel.partial.links).and_then(|kernel| kernel.links.as_deref());
    links.is_none_or(|links| links.iter().any(|link| link.seen.name == device))
}

pub(super) fn wire_of(draft: &Draft<'_, '_>, endpoint: &Endpoint) -> Option<PodNetwork> {
    let running = Running::of(draft.ground, endpoint)?;
    Some(PodNetwork {
        network: addresses::network_name(draft.ground),
        container_id: running.sandbox.id.clone(),
        interface: endpoint.interface.clone().unwrap_or_else(|| USUAL_INTERFACE.to_owned()),
        device: endpoint.device.clone()?,
        addresses: endpoint.addresses.clone(),
        mac: endpoint.mac,
        mtu: running.interface().and_then(|link| link.mtu),
    })
}

fn wire_or_delete(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some(endpoint) = endpoints::find(draft, &target.subject) else { return };
    let Some(node) = endpoint.node.as_ref() else { return };
    match wire_of(draft, endpoint) {
        Some(wire) if draft.ground.case.is_namespace_lost(&wire.container_id) => {
            leave_without_namespace(draft, target, endpoint.pod_name());
        }
        Some(wire) => {
            let running = Running::by_id(draft.ground, &wire.container_id);
            if running.is_none_or(|running| running.node.name != *node) {
                return;
            }
            let title = format!("rebuild the network of endpoint {endpoint}");
            let because = format!("{node} runs its sandbox");
            if let Some(step) = draft.change(target, title, node, KernelChange::Wire(wire)) {
                step.because(because);
            }
        }
        None => endpoints::delete(draft, target, endpoint),
    }
}

/// Nothing can be put back into a namespace that is gone; and only the runtime makes one.
pub(super) fn leave_without_namespace(draft: &mut Draft<'_, '_>, target: &Target, pod: Option<PodName>) {
    let why = "the runtime runs its sandbox, but the sandbox's network namespace is gone, and only the \
               runtime can create one; delete the pod so that it creates a new sandbox (for a static pod: \
               crictl stopp, then crictl rmp)";
    draft.leave_with(target, why, pod.iter().map(delete_pod).collect());
}

fn set_up(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let host = host(draft, node);
    let is_up = host.and_then(|host| host.link(device)).is_some_and(|link| link.seen.is_up == Some(true));
    if is_up {
        let endpoint = host.and_then(|host| host.endpoints_at_device(device).first().copied());
        let id = endpoint.and_then(|endpoint| endpoint.seen.container_id.clone());
        return leave_pods_end(draft, target, id.as_deref());
    }
    let change = KernelChange::Up { device: device.clone(), from: false, to: true };
    draft.change(target, format!("set {device} up"), node, change);
}

/// Whoever may set a pod's interface down has their reasons, and what the kernel took with it is not put back while it is down.
pub(super) fn leave_pods_end(draft: &mut Draft<'_, '_>, target: &Target, container_id: Option<&str>) {
    let why = "the pod's own end is down: a process inside the pod set it down. Set it up inside the pod and \
               run the repair again, which restores its routes; or recreate the pod";
    let up = |id: &str| {
        RepairTask::inside(id, KernelChange::Up { device: USUAL_INTERFACE.to_owned(), from: false, to: true })
    };
    let commands = container_id.map(|id| up(id).commands()).unwrap_or_default();
    draft.leave_with(target, why, commands);
}

pub(super) fn set_setting(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Sysctl { node, path } = &target.subject else { return };
    let found = draft.ground.case.node(node).and_then(|node| node.kernel.sysctl(path));
    let from = found.map(|found| found.seen.trim().to_owned());
    let Some(to) = required_on_node(path) else {
        return draft.leave(target, "the required value of the setting is not known");
    };
    let Some(from) = from else { return };
    let change = KernelChange::Sysctl { path: path.clone(), from, to: to.to_string() };
    draft.change(target, format!("set {path} to {to}"), node, change);
}

fn equal_mtus(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let Some(host) = host(draft, node) else { return };
    let outer = host.link(device).and_then(|link| link.seen.mtu);
    let endpoint = host.endpoints_at_device(device).first().map(|endpoint| &endpoint.seen);
    let running = endpoint.and_then(|endpoint| Running::of(draft.ground, endpoint));
    let inner = running.and_then(|running| running.interface()?.mtu);
    let (Some(from), Some(to)) = (outer, inner) else {
        return draft.leave(target, "the MTU of the pod's end is not known");
    };
    // What does not fit through the tunnel would only be lost later.
    let tunnels = host.links().filter(|link| link.seen.vxlan.is_some()).filter_map(|link| link.seen.mtu);
    if let Some(tunnel) = tunnels.filter(|mtu| *mtu < to).min() {
        let why = format!("the pod has MTU {to}, but the tunnel has only {tunnel}; recreate the pod");
        return draft.leave(target, why);
    }
    let change = KernelChange::Mtu { device: device.clone(), from, to };
    draft.change(target, format!("set the MTU of {device} to {to}"), node, change);
}

fn shrink_mtu(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else {
        let why = "pods get their MTU when they are created; set the MTU of the network, then recreate them";
        return draft.leave(target, why);
    };
    let Some(host) = host(draft, node) else { return };
    let link = host.link(device).map(|link| &link.seen);
    let parent =
        link.and_then(|link| link.vxlan.as_ref()?.parent.as_deref()).and_then(|parent| host.link(parent));
    let (Some(from), Some(card), Some(header)) =
        (link.and_then(|link| link.mtu), parent.and_then(|parent| parent.seen.mtu), tunnel_overhead(device))
    else {
        return draft.leave(target, "the NIC of the tunnel is not known");
    };
    let to = card.saturating_sub(header);
    if host.links().any(|link| link.seen.is_workload() && link.seen.mtu.is_some_and(|pods| pods > to)) {
        let why = "pods on the node have a larger MTU than the tunnel would have; set the MTU of the network, then \
             recreate them";
        return draft.leave(target, why);
    }
    let change = KernelChange::Mtu { device: device.clone(), from, to };
    draft.change(target, format!("reduce the MTU of {device} to what its NIC allows"), node, change);
}

/// Where a route that was seen leads.
pub(super) fn next_hop(route: &Route) -> NextHop {
    NextHop {
        device: route.device.clone(),
        via: route.via,
        protocol: route.protocol.clone(),
        scope: route.scope.clone(),
        source: route.source,
        metric: route.metric,
        is_onlink: route.is_onlink,
        is_blackhole: route.kind == evidence::kernel::RouteKind::Blackhole,
        is_beside_others: false,
    }
}

/// Where the route that packets take leads.
fn first_hop(draft: &Draft<'_, '_>, node: &NodeName, destination: IpNet) -> Option<NextHop> {
    host(draft, node)?.routes_to(destination).first().map(|route| next_hop(&route.seen))
}

fn put_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    let Some(endpoint) = endpoint_at(draft, target, node, destination.addr()) else { return };
    let Some(device) = device_of(draft, endpoint).filter(|device| may_be_there(draft, node, device)) else {
        return;
    };
    let Ok(name) = DeviceName::new(&device) else { return };
    let to = NextHop::of(&plan::Route::to_neighbour(destination.addr()), &name);
    let from = first_hop(draft, node, *destination);
    if from.as_ref().is_some_and(|from| from.device == to.device && from.via.is_none()) {
        // It leads to the sandbox: the record is what is wrong.
        return;
    }
    let change = KernelChange::Route { destination: *destination, from, to: Some(to) };
    draft.change(target, format!("route {destination} to {device}"), node, change);
}

fn put_neighbour(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Neighbour { node, address, device } = &target.subject else { return };
    let Some(endpoint) = endpoint_at(draft, target, node, *address) else { return };
    if device_of(draft, endpoint).as_ref() != Some(device) || !may_be_there(draft, node, device) {
        // Another device leads to the sandbox, or none: the record is what is wrong.
        return;
    }
    // What is inside the pod counts; its record may be the one that is wrong.
    let running = Running::of(draft.ground, endpoint);
    let inside = running.and_then(|running| running.mac());
    let Some(to) = inside.or(endpoint.mac) else {
        return draft.leave(target, "the MAC address of the pod is not known");
    };
    let known = host(draft, node).and_then(|host| host.neighbour(*address, device));
    let from = known.and_then(|known| known.seen.mac);
    let change = KernelChange::Neighbour { address: *address, device: device.clone(), from, to: Some(to) };
    draft.change(
        target,
        format!("set the neighbour entry for {address} on {device} of {node} to {to}"),
        node,
        change,
    );
}

/// Why nobody can have an address that a node's kernel knows: every sandbox that runs there was looked into.
fn nobody_has(draft: &Draft<'_, '_>, node: &NodeName, address: IpAddr) -> Result<(), String> {
    let ground = draft.ground;
    ground.is_unused(address).map_err(|who| format!("{who}; repair its records first"))?;
    all_were_observed(draft, node)
}

/// Every sandbox that runs on a node was observed from inside; else which one was not.
pub(super) fn all_were_observed(draft: &Draft<'_, '_>, node: &NodeName) -> Result<(), String> {
    let ground = draft.ground;
    let Some(evidence) = ground.case.node(node) else { return Err(format!("{node} was not observed")) };
    let Some(sandboxes) = evidence.sandboxes.as_deref() else {
        return Err(format!("the runtime of {node} was not asked"));
    };
    let on_host =
        |pod: &PodName| ground.case.pods_named(pod).any(|pod| ground.case.is_on_host_network(&pod.seen));
    let unseen = sandboxes.iter().map(|sandbox| &sandbox.seen).find(|sandbox| {
        sandbox.is_ready != Some(false)
            && ground.case.view_of(&sandbox.id).is_none()
            && !on_host(&sandbox.pod)
    });
    match unseen {
        Some(sandbox) => Err(format!("{} was not observed from inside and may have it", sandbox.pod)),
        None => Ok(()),
    }
}

fn drop_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    if let Err(why) = nobody_has(draft, node, destination.addr()) {
        return draft.leave(target, why);
    }
    let Some(from) = first_hop(draft, node, *destination) else { return };
    drop(
        draft,
        target,
        node,
        format!("remove the route to {destination}"),
        KernelChange::Route { destination: *destination, from: Some(from), to: None },
    );
}

fn drop_neighbour(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Neighbour { node, address, device } = &target.subject else { return };
    if let Err(why) = nobody_has(draft, node, *address) {
        return draft.leave(target, why);
    }
    let from =
        host(draft, node).and_then(|host| host.neighbour(*address, device)).and_then(|known| known.seen.mac);
    let change = KernelChange::Neighbour { address: *address, device: device.clone(), from, to: None };
    drop(draft, target, node, format!("remove the neighbour entry for {address} on {device}"), change);
}

fn drop(draft: &mut Draft<'_, '_>, target: &Target, node: &NodeName, title: String, change: KernelChange) {
    if let Some(step) = draft.change(target, title, node, change) {
        step.needs_second_look = true;
        step.because("no endpoint has the address, and no pod that was observed from inside");
    }
}

fn drop_device(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let Some(link) = host(draft, node).and_then(|host| host.link(device)).map(|link| &link.seen) else {
        return;
    };
    match nobody_behind(draft, node, link) {
        Err(why) => draft.leave(target, why),
        Ok(because) => {
            let from = Veth {
                index: link.index,
                alias: link.alias.clone(),
                mac: link.mac,
                mtu: link.mtu,
                is_up: link.is_up.unwrap_or_default(),
            };
            let change = KernelChange::Device { device: device.clone(), from: Some(from), to: None };
            if let Some(step) = draft.change(target, format!("remove {device}"), node, change) {
                step.needs_second_look = true;
                step.because.extend(because);
            }
        }
    }
}

/// Why no sandbox can be behind a device; or why one may be.
fn nobody_behind(draft: &Draft<'_, '_>, node: &NodeName, link: &Link) -> Result<Vec<String>, String> {
    if let Some(sandbox) = link.alias.as_deref().and_then(Sandbox::from_alias) {
        let suspect = Suspect {
            container_id: Some(sandbox.container_id()),
            node: Some(node.clone()),
            device: Some(&link.name),
            ..Suspect::default()
        };
        let (testimony, is_gone) = draft.ground.testimony(&suspect);
        return match is_gone {
            true => Ok(testimony.lines()),
            false => Err(testimony.lines().join("; ")),
        };
    }
    if link.has_peer_elsewhere != Some(false) {
        return Err("it leads into a network namespace whose owner is not known; check that namespace first"
            .to_owned());
    }
    let Some(ready) = draft.ground.case.node(node).and_then(|node| node.sandboxes.as_deref()) else {
        return Err(format!("the runtime of {node} was not asked"));
    };
    for sandbox in ready.iter().filter(|sandbox| sandbox.seen.is_ready != Some(false)) {
        let other = Running::by_id(draft.ground, &sandbox.seen.id).and_then(|running| running.device());
        if other.is_some_and(|other| other.name == link.name) {
            return Err(format!("it leads to sandbox {}", sandbox.seen.id));
        }
    }
    let runs = |id: &str| ready.iter().any(|sandbox| same_id(id, &sandbox.seen.id));
    let endpoints = draft.ground.case.all_endpoints().iter().map(|endpoint| &endpoint.seen);
    let mut known = endpoints.filter(|endpoint| endpoint.device.as_deref() == Some(&link.name));
    if known.any(|endpoint| endpoint.container_id.as_deref().is_some_and(runs)) {
        return Err("the record of a running sandbox names it".to_owned());
    }
    Ok(vec![
        "kernel reports it gone: both of its ends are on the node, so it leads into no network namespace"
            .to_owned(),
        "runtime reports it gone: no running sandbox is behind it".to_owned(),
    ])
}
