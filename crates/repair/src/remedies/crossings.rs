//! The ways to other nodes: routes to their blocks, the tunnel's device, and its ends.
//!
//! What must be there is [`plan::between`]'s to say, as for the agent: a route past a tunnel is no repair.

use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;
use model::{FindingCode, NodeName, ShellCommand};
use plan::between::{Between, Trouble, VxlanDevice, Way as Wanted};
use plan::task::{KernelChange, RepairTask, Tunnel};

use super::super::draft::{Draft, Target};
use super::Remedy;
use super::kernel::{all_were_observed, host, next_hop, remedy};
use doctor::{EndKind, Host, Subject};
use evidence::kernel::{Link, Route, RouteKind};

pub(super) const TUNNEL_DEVICE: FindingCode = FindingCode::TunnelDeviceWrong;

/// The tunnel comes before what leads through it.
pub(super) const GIVING: &[Remedy] = &[
    remedy(
        TUNNEL_DEVICE,
        "reconfigures the VXLAN device to match the records, in place where the kernel allows it; otherwise \
         recreates it with all entries and routes through it",
        make_tunnel,
    ),
    remedy(
        FindingCode::TunnelEndUnknown,
        "writes the permanent entry that matches the other node's record",
        put_end,
    ),
    remedy(
        FindingCode::BlockRouteMissing,
        "adds the route that the pool's mode requires: through the tunnel, or directly to the node if both \
         share a network",
        put_route,
    ),
    remedy(
        FindingCode::BlockRouteWrong,
        "replaces it with the route that the pool's mode requires; if the correct route already exists with \
         lower precedence, only removes the wrong one",
        put_route,
    ),
    remedy(
        FindingCode::RouteViaWrongNode,
        "replaces the route with the one that the pool's mode requires, to the node that owns the block",
        put_route,
    ),
];

pub(super) const TAKING: &[Remedy] = &[remedy(
    FindingCode::RouteDiverted,
    "removes the route, unless a pod on this node has an address in its range",
    drop_diversion,
)];

/// Whether this is about a way between nodes.
pub(super) fn is_way(code: FindingCode) -> bool {
    GIVING.iter().any(|remedy| remedy.code == code)
}

fn wanted<'d, 'e>(draft: &'d Draft<'_, 'e>, node: &NodeName) -> Option<(&'d Host<'e>, Rc<Between>)> {
    let host = host(draft, node)?;
    Some((host, draft.ground.case.wanted_on(host)?))
}

fn put_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    let Some((host, wanted)) = wanted(draft, node) else {
        return draft.leave(target, format!("no record defines the routes of {node}"));
    };
    let route = match wanted.route_to(destination) {
        Some(route) if !wanted.is_makeshift(&route) => route,
        _ => return draft.leave(target, why_no_route(&wanted, destination)),
    };
    let (Some(to), Wanted::Via { gateway, .. }) = (wanted.way_of(&route), route.way) else {
        return draft.leave(target, format!("the NIC by which {node} reaches other nodes is not known"));
    };
    let found: Vec<&Route> = host.routes_to(*destination).into_iter().map(|route| &route.seen).collect();
    let is_right = |found: &&Route| wanted.fault_of(found, &route).is_none();
    let (from, to) = match found.first() {
        Some(first) if !can_be_put_back(first) => return leave_it(draft, target, first),
        // Ours is there, and a stranger's stands in front.
        Some(first) if found[1..].iter().any(is_right) => (Some(next_hop(first)), None),
        Some(first) => (Some(next_hop(first)), Some(to)),
        None => (None, Some(to)),
    };
    let is_removal = to.is_none();
    let title = match is_removal {
        true => format!("remove the route to {destination} that takes precedence over the correct one"),
        false => format!("route {destination} via {gateway}"),
    };
    let change = KernelChange::Route { destination: *destination, from, to };
    if let Some(step) = draft.change(target, title, node, change) {
        step.because(format!("the records require {route}"));
        step.needs_second_look = is_removal;
    }
}

/// Why the records ask for no route, or for none that would do.
fn why_no_route(wanted: &Between, destination: &IpNet) -> String {
    let is_of_it = |cidr: &model::Cidr| cidr.contains(destination.addr());
    let trouble = wanted.troubles().find(|(cidr, _, _)| is_of_it(cidr));
    match trouble {
        Some((_, node, Trouble::Apart)) => format!(
            "it shares no network with {node}, and the pool has no tunnel; a router between them needs the \
             route, or BGP must announce it"
        ),
        Some((_, node, trouble)) => format!(
            "{node} cannot be reached in the mode that its pool requires: \
                                             {trouble}"
        ),
        None => "BIRD writes the routes of this pool; fix its sessions".to_owned(),
    }
}

/// Only these can be put back as they were.
fn can_be_put_back(route: &Route) -> bool {
    matches!(route.kind, RouteKind::Unicast | RouteKind::Blackhole)
        && route.protocol.as_deref() != Some("kernel")
}

fn leave_it(draft: &mut Draft<'_, '_>, target: &Target, route: &Route) {
    let why = match route.protocol.as_deref() {
        Some("kernel") => {
            let device = route.device.as_deref().unwrap_or("a device");
            format!("the kernel created the route for an address on {device}; remove that address")
        }
        _ => {
            "undo could not restore a route of this kind; if it is not intended, remove it by hand".to_owned()
        }
    };
    let words = route.to_string();
    let command = words.split_whitespace().fold(ShellCommand::new("ip route del"), ShellCommand::value);
    let commands = if route.protocol.as_deref() == Some("kernel") { Vec::new() } else { vec![command] };
    draft.leave_with(target, why, commands);
}

fn drop_diversion(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    let case = &draft.ground.case;
    let Some(crossings) = case.crossings_of(node) else { return };
    let Some(diverted) = crossings.diverted.iter().find(|found| found.found.seen.destination == *destination)
    else {
        return;
    };
    let (route, owner) = (&diverted.found.seen, diverted.owner.clone());
    let inside = case.node(node).into_iter().flat_map(|node| node.pod_views.iter().flatten());
    let mut held = inside.flat_map(|view| view.kernel.addresses.iter().flatten());
    if let Some(held) = held.find(|held| destination.contains(&held.seen.net.addr())) {
        let why = format!("a pod on {node} has {} inside; check that pod first", held.seen.net.addr());
        return draft.leave(target, why);
    }
    // A pod of another plugin has no endpoint, and may be the one that it leads to.
    if let Err(why) = all_were_observed(draft, node) {
        return draft.leave(target, why);
    }
    if !can_be_put_back(route) {
        let route = route.clone();
        return leave_it(draft, target, &route);
    }
    let change = KernelChange::Route { destination: *destination, from: Some(next_hop(route)), to: None };
    let title = format!("remove the route that diverts {destination} from node {owner}");
    if let Some(step) = draft.change(target, title, node, change) {
        step.needs_second_look = true;
        step.because(format!(
            "its block belongs to node {owner}, and no pod on {node} has an address in \
                                   it"
        ));
    }
}

fn put_end(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Neighbour { node, address, device } = &target.subject else { return };
    let Some(crossings) = draft.ground.case.crossings_of(node) else { return };
    let ends = crossings.ends.iter().filter(|end| end.address == *address && end.device == device);
    let changes: Vec<(String, KernelChange)> = ends
        .map(|end| {
            let (mac, owner, device) = (end.mac, &end.owner, device.clone());
            match end.kind {
                EndKind::Neighbour { found } => (
                    format!("set the neighbour entry for node {owner} on {node}: {address} lladdr {mac}"),
                    KernelChange::Neighbour { address: *address, device, from: found, to: Some(mac) },
                ),
                EndKind::Forward { found } => (
                    format!("set the FDB entry for node {owner} on {node}: {mac} dst {address}"),
                    KernelChange::Forward { device, mac, from: found, to: Some(*address) },
                ),
            }
        })
        .collect();
    for (title, change) in changes {
        draft.change(target, title, node, change);
    }
}

fn make_tunnel(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let case = &draft.ground.case;
    let version = case.crossings_of(node).and_then(|crossings| {
        crossings.tunnels.iter().find(|tunnel| tunnel.device == device).map(|tunnel| tunnel.version)
    });
    let (Some(version), Some((host, wanted))) = (version, wanted(draft, node)) else { return };
    let Some(made) = wanted.vxlan(version).and_then(|tunnel| Some((tunnel, wanted.tunnel_of(tunnel)?)))
    else {
        return;
    };
    let (tunnel, to) = made;
    let from = match host.link(device).map(|link| tunnel_seen(host, &link.seen, tunnel)) {
        None => None,
        Some(Some(from)) => Some(from),
        Some(None) => {
            let why = format!(
                "{device} is not a VXLAN device, or its details were not read; check ip -d link show \
                 {device}"
            );
            return draft.leave(target, why);
        }
    };
    let is_kept = from.as_ref().is_some_and(|from| from.is_same_tunnel(&to));
    let title = match (&from, is_kept) {
        (None, _) => format!("create {device}, with all entries and routes through it"),
        (Some(_), false) => format!("recreate {device}, with all entries and routes through it"),
        (Some(_), true) => format!("reconfigure {device}"),
    };
    let mut changes = vec![KernelChange::Tunnel { device: device.clone(), from, to: Some(to) }];
    if !is_kept {
        changes.extend(wanted.tunnel_changes(version));
    }
    draft.work(target, title, node, changes.into_iter().map(RepairTask::here).collect());
}

/// The device as it was seen, as whoever changes it will look at it again.
fn tunnel_seen(host: &Host<'_>, link: &Link, wanted: &VxlanDevice) -> Option<Tunnel> {
    let vxlan = link.vxlan.as_ref()?;
    let is_of_kernel =
        |address: IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let held = host.node.kernel.addresses.iter().flatten().map(|held| &held.seen);
    let address = held
        .filter(|held| held.device == link.name)
        .map(|held| held.net.addr())
        .find(|address| address.is_ipv4() == wanted.local.is_ipv4() && !is_of_kernel(*address));
    let unspecified = match wanted.local {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    };
    Some(Tunnel {
        vni: vxlan.vni.unwrap_or_default(),
        port: vxlan.port.unwrap_or_default(),
        local: vxlan.local.unwrap_or(unspecified),
        parent: vxlan.parent.clone().unwrap_or_default(),
        mac: link.mac?,
        mtu: link.mtu?,
        address,
        is_up: link.is_up?,
    })
}
