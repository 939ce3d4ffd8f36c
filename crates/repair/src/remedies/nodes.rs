//! Nodes: their address in the records, and settings that everything depends on.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{FindingCode, HandleId, Key, Kind, ShellCommand};
use serde_json::{Value, json};

use super::super::draft::{Draft, Ground, Target};
use super::super::edit::Edit;
use super::{Area, Remedy, kernel};
use doctor::{NodeView, Subject};

const UNDO_ADDRESS: &str = "restores the old address in the record, unless the record has been changed since";
const CORRECTS: &str = "writes the address into the Node record if there is exactly one candidate: \
                        configured on a NIC of the node, on the network of the other nodes' addresses, and \
                        not used by another node";
const UNDO_SETTING: &str = "restores the previous value, unless it has been changed since";

const fn address(code: FindingCode) -> Remedy {
    Remedy { code, area: Area::Node, does: CORRECTS, undo: UNDO_ADDRESS, act: Some(correct_address) }
}

/// Findings about the address that other nodes use for a node.
const ABOUT_ADDRESS: [FindingCode; 4] = [
    FindingCode::NodeAddressWrong,
    FindingCode::NodeAddressMissing,
    FindingCode::NodeAddressUnfit,
    FindingCode::NodeAddressShared,
];

pub(super) const ALL: &[Remedy] = &[
    address(FindingCode::NodeAddressWrong),
    address(FindingCode::NodeAddressMissing),
    address(FindingCode::NodeAddressUnfit),
    Remedy {
        does: "removes the address from the record of the node to which it is not allocated; the node's \
               agent then allocates another one",
        undo: UNDO_ADDRESS,
        ..Remedy::of(FindingCode::TunnelAddressShared, Area::Ipam, clear_tunnel)
    },
    Remedy {
        does: "turns forwarding on",
        undo: UNDO_SETTING,
        ..Remedy::of(FindingCode::ForwardingOff, Area::Node, kernel::set_setting)
    },
    Remedy {
        does: "makes the filter strict (1), as Felix requires",
        undo: UNDO_SETTING,
        ..Remedy::of(FindingCode::RpFilterLoose, Area::Node, kernel::set_setting)
    },
];

/// Whether this is about the address of a node.
pub(super) fn is_about_address(code: FindingCode) -> bool {
    ABOUT_ADDRESS.contains(&code)
}

/// Devices that never carry a node's address.
fn is_virtual(device: &str) -> bool {
    ["docker", "cbr", "cali", "tunl", "virbr", "kube-ipvs", "cni", "vxlan", "veth"]
        .iter()
        .any(|prefix| device.starts_with(prefix))
        || device == "lo"
}

fn correct_address(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Node(name) = &target.subject else { return };
    let Some(view) = draft.ground.case.node_view(name) else { return };
    let Some(record) = view.record else {
        return draft.leave(target, "it has no Node record");
    };
    let candidates = candidates(draft, view);
    let &[right] = &candidates[..] else {
        let found = candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let why = match candidates.is_empty() {
            true => "no NIC of the node has an address on the other nodes' network, as far as it was \
                     observed"
                .to_owned(),
            false => format!("several addresses are possible: {found}"),
        };
        return draft.leave_with(
            target,
            why,
            vec![ShellCommand::remark("set IP_AUTODETECTION_METHOD and restart the agent of", name.as_str())],
        );
    };
    let name = record.seen.metadata.name.clone();
    let from = record
        .seen
        .spec("bgp")
        .and_then(|bgp| bgp.get("ipv4Address"))
        .filter(|value| !value.is_null())
        .cloned();
    let to = json!(right.to_string());
    if from.as_ref() == Some(&to) {
        let why = "its Node record is correct, but an annotation of the Kubernetes node differs";
        let command = ShellCommand::new("kubectl annotate --overwrite node")
            .value(&name)
            .assigned("projectcalico.org/IPv4Address", right);
        return draft.leave_with(target, why, vec![command]);
    }
    let key = Key::cluster(Kind::Node, name.clone());
    if draft.claims(&key, target) {
        let step = draft.step(target, format!("record {right} as the address of node {name}"));
        step.because(
            "a NIC of the node has it, the other nodes' addresses are on its network, and no \
                           other node is registered with it",
        );
        step.edits.push(Edit::Field { key, field: "/spec/bgp/ipv4Address".to_owned(), from, to: Some(to) });
    }
}

/// Addresses of the node's own cards on networks that other nodes go by.
fn candidates(draft: &Draft<'_, '_>, view: &NodeView<'_>) -> Vec<IpNet> {
    let case = &draft.ground.case;
    let others = case.node_views().values().filter(|other| other.name != view.name);
    let taken: Vec<IpNet> =
        others.flat_map(|other| other.addresses.iter().map(|recorded| recorded.net)).collect();
    let held = case.node(&view.name).into_iter().flat_map(|node| node.kernel.addresses.iter().flatten());
    let fits = |net: &IpNet| {
        net.addr().is_ipv4()
            && taken.iter().any(|other| net.contains(&other.addr()))
            && !taken.iter().any(|other| other.addr() == net.addr())
    };
    let mut found: Vec<IpNet> = held
        .filter(|held| !held.seen.is_secondary && !is_virtual(&held.seen.device))
        .map(|held| held.seen.net)
        .filter(fits)
        .collect();
    found.sort();
    found.dedup();
    found
}

fn clear_tunnel(draft: &mut Draft<'_, '_>, target: &Target) {
    let Subject::Address(address) = target.subject else { return };
    let ground = draft.ground;
    let allocation = ground.case.allocation(address);
    let handle = allocation.and_then(|allocation| allocation.attribute.handle().cloned());
    let mut is_mended = false;
    for view in ground.case.node_views().values() {
        let Some(record) = view.record else { continue };
        for (tunnel, _) in view.tunnels.iter().filter(|(_, at)| *at == address) {
            let is_entitled = handle.as_ref() == Some(&tunnel.handle(view.name.as_str()));
            let Some((field, from)) = field_of(&record.seen.body, address).filter(|_| !is_entitled) else {
                continue;
            };
            let key = Key::cluster(Kind::Node, record.seen.metadata.name.clone());
            let step = draft.step(target, format!("remove {address} from the record of node {}", view.name));
            step.because(match &handle {
                Some(handle) => format!("the IPAM records have it allocated to {handle}"),
                None => "the IPAM records do not have it allocated to the tunnel".to_owned(),
            });
            step.edits.push(Edit::Field { key, field, from: Some(from), to: None });
            is_mended = true;
        }
    }
    if !is_mended && let Some(command) = annotation_at(draft.ground, address, handle.as_ref()) {
        let why = "the address is in an annotation of a Kubernetes node, which its agent rewrites once it is \
                   removed";
        return draft.leave_with(target, why, vec![command]);
    }
    if !is_mended {
        draft.leave_with(
            target,
            "the tunnel is entitled to the address; every other user must get another one",
            super::addresses::recreate(ground, address),
        );
    }
}

/// The command that takes an address out of the annotations of a node to which it is not allocated.
fn annotation_at(ground: &Ground<'_>, address: IpAddr, handle: Option<&HandleId>) -> Option<ShellCommand> {
    let nodes = ground.case.evidence.kube_nodes.iter().flatten().map(|node| &node.seen);
    nodes.into_iter().find_map(|node| {
        let is_entitled =
            ipam::Tunnel::ALL.into_iter().any(|tunnel| handle == Some(&tunnel.handle(node.name.as_str())));
        let is_it =
            |text: &String| text.split('/').next().and_then(|text| text.parse().ok()) == Some(address);
        let mut told = node.annotations.iter().filter(|(name, _)| name.starts_with("projectcalico.org/"));
        let (name, _) = told.find(|(_, text)| is_it(text)).filter(|_| !is_entitled)?;
        Some(ShellCommand::new("kubectl annotate node").value(node.name.as_str()).value(format!("{name}-")))
    })
}

/// Where in a Node record a tunnel's address stands.
fn field_of(body: &serde_json::Map<String, Value>, address: IpAddr) -> Option<(String, Value)> {
    const PLACES: [&str; 5] = [
        "/bgp/ipv4IPIPTunnelAddr",
        "/ipv4VXLANTunnelAddr",
        "/ipv6VXLANTunnelAddr",
        "/wireguard/interfaceIPv4Address",
        "/wireguard/interfaceIPv6Address",
    ];
    let spec = body.get("spec")?;
    PLACES.iter().find_map(|place| {
        let value = spec.pointer(place)?;
        let found: IpAddr = value.as_str()?.split('/').next()?.parse().ok()?;
        (found == address).then(|| (format!("/spec{place}"), value.clone()))
    })
}
