//! What a pod has in the kernel of its node: devices, routes, neighbours, settings.

use std::net::IpAddr;

use ipnet::IpNet;
use model::Sandbox;
use plan::work::{Act, NodeWork, Veth, Way, Wire};

use super::super::draft::{Draft, Target};
use super::super::witness::Suspect;
use super::running::{INTERFACE, Running};
use super::{Area, Remedy, addresses, endpoints};
use crate::evidence::kernel::{Link, Route};
use crate::evidence::{Endpoint, PodName, same_id};
use crate::{Host, Subject};

pub(super) const UNDO: &str = "the node's kernel is put back as it was, unless it has changed since";

const fn remedy(code: &'static str, does: &'static str, act: fn(&mut Draft<'_, '_>, &Target)) -> Remedy {
    Remedy { code, area: Area::Kernel, does, undo: UNDO, act: Some(act) }
}

pub(super) const GIVING: &[Remedy] = &[
    remedy(
        "endpoint-without-device",
        "if the runtime runs the sandbox, makes its whole network anew in place; if witnesses say that it is gone, deletes the record",
        wire_or_delete,
    ),
    remedy("device-down", "sets the device up", set_up),
    remedy("device-setting-wrong", "writes the setting that pods need", set_setting),
    remedy("mtu-differs", "gives the node's end the MTU that the pod's end has", equal_mtus),
    remedy("mtu-too-large", "makes the MTU of the tunnel as small as its card demands", shrink_mtu),
    remedy("route-missing", "adds the route to the endpoint's device", put_route),
    remedy("route-to-wrong-device", "replaces the route by one to the endpoint's device", put_route),
    remedy(
        "neighbour-missing",
        "adds the permanent entry that the endpoint's record asks for",
        put_neighbour,
    ),
    remedy(
        "neighbour-wrong",
        "replaces the entry by the one that the endpoint's record asks for",
        put_neighbour,
    ),
];

pub(super) const TAKING: &[Remedy] = &[
    remedy(
        "route-without-endpoint",
        "removes the route, if no record, no pod of Kubernetes and no sandbox that runs on the node has the address",
        drop_route,
    ),
    remedy(
        "neighbour-without-endpoint",
        "removes the entry, if no record, no pod of Kubernetes and no sandbox that runs on the node has the address",
        drop_neighbour,
    ),
    remedy(
        "device-without-endpoint",
        "removes the device if witnesses say that no sandbox is behind it; a device that leads to one is left, and its endpoint is repaired",
        drop_device,
    ),
];

pub(super) fn host<'d, 'e>(draft: &'d Draft<'_, 'e>, node: &str) -> Option<&'d Host<'e>> {
    draft.ground.case.hosts().iter().find(|host| host.name().eq_ignore_ascii_case(node))
}

/// The one endpoint of a node that has an address, if the node's kernel is to be put right by it. A record of a sandbox that runs
/// on another node, or is gone, is itself what is wrong.
fn endpoint_at<'e>(
    draft: &mut Draft<'_, 'e>,
    target: &Target,
    node: &str,
    address: IpAddr,
) -> Option<&'e Endpoint> {
    let ground = draft.ground;
    let is_node = |name: &str| name.eq_ignore_ascii_case(node);
    let found = ground.case.endpoints_at(address).iter().map(|endpoint| &endpoint.seen);
    let here: Vec<&Endpoint> = found.filter(|found| found.node.as_deref().is_some_and(is_node)).collect();
    let [endpoint] = here[..] else {
        let why = "it is not known which one endpoint of the node has the address";
        draft.leave(target, why, Vec::new());
        return None;
    };
    let runs_on = endpoint.container_id.as_deref().and_then(|id| ground.case.runs_on(id));
    let is_elsewhere = runs_on.is_some_and(|other| !is_node(&other.name));
    (!is_elsewhere && ground.is_gone(&endpoints::suspect(endpoint)).is_err()).then_some(endpoint)
}

/// The device that leads to an endpoint's sandbox: the real one where that is known, else the recorded one.
fn device_of(draft: &Draft<'_, '_>, endpoint: &Endpoint) -> Option<String> {
    let running = endpoint.container_id.as_deref().and_then(|id| Running::by_id(draft.ground, id));
    let real = running.and_then(|running| running.device()).map(|link| link.name.clone());
    real.or_else(|| endpoint.device.clone())
}

/// Whether a node has a device, as far as its devices were looked at. Where one is missing, nothing can lead to it: it is made
/// together with what leads to it, or its record goes.
fn may_be_there(draft: &Draft<'_, '_>, node: &str, device: &str) -> bool {
    let kernel = draft.ground.case.node(node).map(|node| &node.kernel);
    let links = kernel.filter(|kernel| !kernel.partial.links).and_then(|kernel| kernel.links.as_deref());
    links.is_none_or(|links| links.iter().any(|link| link.seen.name == device))
}

pub(super) fn wire_of(draft: &Draft<'_, '_>, endpoint: &Endpoint) -> Option<Wire> {
    let running = Running::by_id(draft.ground, endpoint.container_id.as_deref()?)?;
    Some(Wire {
        network: addresses::network_name(draft.ground),
        container_id: running.sandbox.id.clone(),
        interface: endpoint.interface.clone().unwrap_or_else(|| INTERFACE.to_owned()),
        device: endpoint.device.clone()?,
        addresses: endpoint.addresses.clone(),
        mac: endpoint.mac,
        mtu: running.interface().and_then(|link| link.mtu),
    })
}

fn wire_or_delete(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some(endpoint) = endpoints::find(draft, &target.subject).map(|endpoint| &endpoint.seen) else {
        return;
    };
    let Some(node) = endpoint.node.as_deref() else { return };
    match wire_of(draft, endpoint) {
        Some(wire) if draft.ground.case.is_namespace_lost(&wire.container_id) => {
            leave_without_namespace(draft, target, endpoint.pod_name());
        }
        Some(wire) => {
            let running =
                Running::by_id(draft.ground, &wire.container_id).map(|running| running.node.name.clone());
            if running.as_deref().is_none_or(|name| !name.eq_ignore_ascii_case(node)) {
                return;
            }
            let title = format!("make the network of endpoint {endpoint} anew");
            let because = format!("{node} runs its sandbox");
            if let Some(step) = draft.work(target, title, node, vec![NodeWork::here(Act::Wire(wire))]) {
                step.because.push(because);
            }
        }
        None => endpoints::delete(draft, target, endpoint),
    }
}

/// Nothing can be put back into a namespace that is gone; and only the runtime makes one.
pub(super) fn leave_without_namespace(draft: &mut Draft<'_, '_>, target: &Target, pod: Option<PodName>) {
    let why = "the runtime runs its sandbox, but the sandbox's network namespace is gone, and only the runtime can make one: \
               delete the pod, so that it is made anew (a static pod: crictl stopp, then crictl rmp)";
    draft.leave(target, why, pod.iter().map(addresses::delete_pod).collect());
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
    let act = Act::Up { device: device.clone(), from: false, to: true };
    draft.work(target, format!("set {device} up"), node, vec![NodeWork::here(act)]);
}

/// Whoever may set a pod's interface down has their reasons, and what the kernel took with it is not put back while it is down.
pub(super) fn leave_pods_end(draft: &mut Draft<'_, '_>, target: &Target, container_id: Option<&str>) {
    let why = "the pod's own end is down: somebody who may change the pod's network did that inside. Set it up inside the pod and \
               repair again, which puts its routes back; or recreate the pod";
    let up = |id: &str| NodeWork::inside(id, Act::Up { device: INTERFACE.to_owned(), from: false, to: true });
    let commands = container_id.map(|id| up(id).commands()).unwrap_or_default();
    draft.leave(target, why, commands);
}

pub(super) fn set_setting(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Sysctl { node, path } = &target.subject else { return };
    let from = draft
        .ground
        .case
        .node(node)
        .and_then(|node| node.kernel.sysctl(path))
        .map(|found| found.seen.trim().to_owned());
    let to = match path.rsplit('/').next() {
        Some("disable_ipv6") => "0",
        Some("rp_filter" | "proxy_arp" | "forwarding" | "ip_forward" | "proxy_ndp") => "1",
        _ => return draft.leave(target, "it is not known what the setting should be", Vec::new()),
    };
    let Some(from) = from else { return };
    let act = Act::Sysctl { path: path.clone(), from, to: to.to_owned() };
    draft.work(target, format!("set {path} to {to}"), node, vec![NodeWork::here(act)]);
}

fn equal_mtus(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let Some(host) = host(draft, node) else { return };
    let outer = host.link(device).and_then(|link| link.seen.mtu);
    let endpoint = host.endpoints_at_device(device).first().map(|endpoint| &endpoint.seen);
    let running =
        endpoint.and_then(|endpoint| Running::by_id(draft.ground, endpoint.container_id.as_deref()?));
    let inner = running.and_then(|running| running.interface()?.mtu);
    let (Some(from), Some(to)) = (outer, inner) else {
        return draft.leave(target, "it is not known which MTU the pod's end has", Vec::new());
    };
    // What does not fit through the tunnel would only be lost later.
    let tunnels = host.links().filter(|link| link.seen.vxlan.is_some()).filter_map(|link| link.seen.mtu);
    if let Some(tunnel) = tunnels.filter(|mtu| *mtu < to).min() {
        let why = format!("the pod has an MTU of {to}, and the tunnel takes {tunnel}: recreate the pod");
        return draft.leave(target, why, Vec::new());
    }
    let act = Act::Mtu { device: device.clone(), from, to };
    draft.work(target, format!("give {device} the MTU {to}"), node, vec![NodeWork::here(act)]);
}

fn shrink_mtu(draft: &mut Draft<'_, '_>, target: &Target) {
    const VXLAN_BYTES: u32 = 50;
    let Subject::Device { node, device } = &target.subject else {
        let why = "pods get their MTU when they are made: set the MTU of the network, then recreate them";
        return draft.leave(target, why, Vec::new());
    };
    let Some(host) = host(draft, node) else { return };
    let link = host.link(device).map(|link| &link.seen);
    let parent =
        link.and_then(|link| link.vxlan.as_ref()?.parent.as_deref()).and_then(|parent| host.link(parent));
    let (Some(from), Some(card)) =
        (link.and_then(|link| link.mtu), parent.and_then(|parent| parent.seen.mtu))
    else {
        return draft.leave(target, "it is not known through which card the tunnel goes", Vec::new());
    };
    let to = card.saturating_sub(VXLAN_BYTES);
    if host.links().any(|link| link.seen.is_workload() && link.seen.mtu.is_some_and(|pods| pods > to)) {
        let why =
            "pods of the node have a larger MTU than fits: set the MTU of the network, then recreate them";
        return draft.leave(target, why, Vec::new());
    }
    let act = Act::Mtu { device: device.clone(), from, to };
    draft.work(target, format!("make the MTU of {device} fit its card"), node, vec![NodeWork::here(act)]);
}

/// A route as it was seen.
pub(super) fn way(route: &Route) -> Way {
    Way {
        device: route.device.clone(),
        via: route.via,
        protocol: route.protocol.clone(),
        scope: route.scope.clone(),
        source: route.source,
        metric: route.metric,
        is_onlink: route.is_onlink,
        is_blackhole: route.kind == crate::evidence::kernel::RouteKind::Blackhole,
        is_beside_others: false,
    }
}

fn put_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    let Some(endpoint) = endpoint_at(draft, target, node, destination.addr()) else { return };
    let Some(device) = device_of(draft, endpoint).filter(|device| may_be_there(draft, node, device)) else {
        return;
    };
    let scope = destination.addr().is_ipv4().then(|| "link".to_owned());
    let to = Way { device: Some(device.clone()), scope, ..Way::default() };
    let from =
        host(draft, node).and_then(|host| host.routes_to(*destination).first().map(|route| way(&route.seen)));
    if from.as_ref().is_some_and(|from| from.device == to.device && from.via.is_none()) {
        // It leads to the sandbox: the record is what is wrong.
        return;
    }
    let act = Act::Route { destination: *destination, from, to: Some(to) };
    draft.work(target, format!("route {destination} to {device}"), node, vec![NodeWork::here(act)]);
}

fn put_neighbour(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Neighbour { node, address, device } = &target.subject else { return };
    let Some(endpoint) = endpoint_at(draft, target, node, *address) else { return };
    if device_of(draft, endpoint).as_ref() != Some(device) || !may_be_there(draft, node, device) {
        // Another device leads to the sandbox, or none: the record is what is wrong.
        return;
    }
    // What is inside the pod counts; its record may be the one that is wrong.
    let running = endpoint.container_id.as_deref().and_then(|id| Running::by_id(draft.ground, id));
    let inside = running.and_then(|running| running.mac());
    let Some(to) = inside.or(endpoint.mac) else {
        return draft.leave(target, "it is not known which hardware address the pod has", Vec::new());
    };
    let known = host(draft, node).and_then(|host| host.neighbour(*address, device));
    let from = known.and_then(|known| known.seen.mac);
    let act = Act::Neighbour { address: *address, device: device.clone(), from, to: Some(to) };
    draft.work(
        target,
        format!("tell {node} that {address} at {device} is {to}"),
        node,
        vec![NodeWork::here(act)],
    );
}

/// Why nobody can have an address that a node's kernel knows: every sandbox that runs there was looked into.
fn nobody_has(draft: &Draft<'_, '_>, node: &str, address: IpAddr) -> Result<(), String> {
    let ground = draft.ground;
    ground.is_unused(address).map_err(|who| format!("{who}: its records have to be repaired first"))?;
    all_were_observed(draft, node)
}

/// Every sandbox that runs on a node was observed from inside; else which one was not.
pub(super) fn all_were_observed(draft: &Draft<'_, '_>, node: &str) -> Result<(), String> {
    let ground = draft.ground;
    let Some(evidence) = ground.case.node(node) else { return Err(format!("{node} was not looked at")) };
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
        Some(sandbox) => Err(format!("nobody looked into {}, which may have it", sandbox.pod)),
        None => Ok(()),
    }
}

fn drop_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Route { node, destination } = &target.subject else { return };
    if let Err(why) = nobody_has(draft, node, destination.addr()) {
        return draft.leave(target, why, Vec::new());
    }
    let Some(from) =
        host(draft, node).and_then(|host| host.routes_to(*destination).first().map(|route| way(&route.seen)))
    else {
        return;
    };
    drop(
        draft,
        target,
        node,
        format!("remove the route to {destination}"),
        Act::Route { destination: *destination, from: Some(from), to: None },
    );
}

fn drop_neighbour(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Neighbour { node, address, device } = &target.subject else { return };
    if let Err(why) = nobody_has(draft, node, *address) {
        return draft.leave(target, why, Vec::new());
    }
    let from =
        host(draft, node).and_then(|host| host.neighbour(*address, device)).and_then(|known| known.seen.mac);
    let act = Act::Neighbour { address: *address, device: device.clone(), from, to: None };
    drop(draft, target, node, format!("forget {address} at {device}"), act);
}

fn drop(draft: &mut Draft<'_, '_>, target: &Target, node: &str, title: String, act: Act) {
    if let Some(step) = draft.work(target, title, node, vec![NodeWork::here(act)]) {
        step.needs_second_look = true;
        step.because.push("no endpoint has it, and no pod that anybody looked into".to_owned());
    }
}

fn drop_device(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Device { node, device } = &target.subject else { return };
    let Some(link) = host(draft, node).and_then(|host| host.link(device)).map(|link| &link.seen) else {
        return;
    };
    match nobody_behind(draft, node, link) {
        Err(why) => draft.leave(target, why, Vec::new()),
        Ok(because) => {
            let from = Veth {
                index: link.index,
                alias: link.alias.clone(),
                mac: link.mac,
                mtu: link.mtu,
                is_up: link.is_up.unwrap_or_default(),
            };
            let act = Act::Device { device: device.clone(), from: Some(from), to: None };
            if let Some(step) =
                draft.work(target, format!("remove {device}"), node, vec![NodeWork::here(act)])
            {
                step.needs_second_look = true;
                step.because.extend(because);
            }
        }
    }
}

/// Why no sandbox can be behind a device; or why one may be.
fn nobody_behind(draft: &Draft<'_, '_>, node: &str, link: &Link) -> Result<Vec<String>, String> {
    if let Some(sandbox) = link.alias.as_deref().and_then(Sandbox::from_alias) {
        let suspect = Suspect {
            container_id: Some(sandbox.container_id()),
            node: Some(node),
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
        return Err("it leads into a namespace, and nothing says whose: look there first".to_owned());
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
    let known = draft
        .ground
        .case
        .all_endpoints()
        .iter()
        .filter(|endpoint| endpoint.seen.device.as_deref() == Some(&link.name));
    let runs = |endpoint: &Endpoint| {
        ready
            .iter()
            .any(|sandbox| endpoint.container_id.as_deref().is_some_and(|id| same_id(id, &sandbox.seen.id)))
    };
    if known.into_iter().any(|endpoint| runs(&endpoint.seen)) {
        return Err("a running sandbox's record names it".to_owned());
    }
    Ok(vec![
        "kernel says gone: both its ends are on the node, it leads into no namespace".to_owned(),
        "runtime says gone: no sandbox that it runs is behind it".to_owned(),
    ])
}

/// Where pods of an address are routed, for whoever asks.
pub(super) fn single(address: IpAddr) -> IpNet {
    IpNet::from(address)
}
