//! What is missing inside a pod. What a pod has in its place is left: whoever may change a pod's network from inside has their reasons.

use std::net::IpAddr;

use ipnet::IpNet;
use plan::work::{Act, NodeWork, Way};

use super::super::draft::{Draft, Target};
use super::kernel::{self, single};
use super::running::{INTERFACE, Running};
use super::{Area, Remedy, addresses};
use crate::Subject;
use crate::evidence::Endpoint;

const UNDO: &str = "what was added inside the pod is taken away, unless it has changed since";

const fn remedy(code: &'static str, does: &'static str, act: fn(&mut Draft<'_, '_>, &Target)) -> Remedy {
    Remedy { code, area: Area::Kernel, does, undo: UNDO, act: Some(act) }
}

pub(super) const ALL: &[Remedy] = &[
    remedy("pod-interface-missing", "makes the network of the running sandbox anew", make_interface),
    remedy("pod-address-missing", "adds the address that the endpoint's record has", add_address),
    remedy("pod-default-route-missing", "adds the default route through the node", add_default_route),
    remedy("pod-gateway-unresolved", "tells the pod the hardware address of the node's end", resolve_gateway),
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
            let why = "it is not known which one sandbox of the pod runs, and what its record is";
            draft.leave(target, why, vec![addresses::delete_pod(name)]);
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
    draft.work(
        target,
        format!("make the network of endpoint {endpoint} anew"),
        &running.node.name,
        vec![NodeWork::here(Act::Wire(wire))],
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

fn add_address(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    if !has_interface(&running) {
        return;
    }
    let inside = running.addresses().unwrap_or_default();
    let missing: Vec<IpAddr> =
        endpoint.addresses.iter().copied().filter(|address| !inside.contains(address)).collect();
    let add = |address: IpAddr| {
        let act = Act::Address { device: INTERFACE.to_owned(), net: single(address), from: false, to: true };
        NodeWork::inside(&running.sandbox.id, act)
    };
    draft.work(
        target,
        format!("give {endpoint} its address back"),
        &running.node.name,
        missing.into_iter().map(add).collect(),
    );
}

fn add_default_route(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    let kernel = running.inside.map(|view| &view.kernel);
    if !has_interface(&running) || kernel.is_none() || is_left_down(draft, target, &running) {
        return;
    }
    let gateway = IpAddr::V4(plan::V4_GATEWAY);
    let default: IpNet = IpNet::V4(ipnet::Ipv4Net::default());
    let is_there = |net: IpNet| kernel.is_some_and(|kernel| kernel.routes_to(net).next().is_some());
    let on_interface =
        |via: Option<IpAddr>| Way { device: Some(INTERFACE.to_owned()), via, ..Way::default() };
    let mut works = Vec::new();
    if !endpoint.addresses.iter().any(IpAddr::is_ipv4) {
        return draft.leave(target, "only IPv4 default routes are put back; recreate the pod", Vec::new());
    }
    if !is_there(single(gateway)) {
        let to = Way { scope: Some("link".to_owned()), ..on_interface(None) };
        works.push(Act::Route { destination: single(gateway), from: None, to: Some(to) });
    }
    if !is_there(default) {
        works.push(Act::Route { destination: default, from: None, to: Some(on_interface(Some(gateway))) });
    }
    let works = works.into_iter().map(|act| NodeWork::inside(&running.sandbox.id, act)).collect();
    draft.work(target, format!("give {endpoint} its default route back"), &running.node.name, works);
}

fn resolve_gateway(draft: &mut Draft<'_, '_>, target: &Target) {
    let Some((endpoint, running)) = pod(draft, target) else { return };
    if is_left_down(draft, target, &running) {
        return;
    }
    let (Some(mac), true) = (running.device().and_then(|device| device.mac), has_interface(&running)) else {
        return draft.leave(target, "no device of the node leads to the pod", Vec::new());
    };
    let gateway = IpAddr::V4(plan::V4_GATEWAY);
    let known = running.inside.and_then(|view| {
        let neighbours = view.kernel.neighbours.iter().flatten();
        neighbours
            .map(|known| &known.seen)
            .find(|known| known.address == gateway && known.device == INTERFACE)
    });
    let act = Act::Neighbour {
        address: gateway,
        device: INTERFACE.to_owned(),
        from: known.and_then(|known| known.mac),
        to: Some(mac),
    };
    draft.work(
        target,
        format!("tell {endpoint} where its gateway is"),
        &running.node.name,
        vec![NodeWork::inside(&running.sandbox.id, act)],
    );
}
