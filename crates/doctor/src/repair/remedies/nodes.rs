//! Nodes: their address in the records, and settings that everything depends on.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{Key, Kind, ShellCommand};
use serde_json::{Value, json};

use super::super::draft::{Draft, Ground, Target};
use super::super::edit::Edit;
use super::{Area, Remedy, kernel};
use crate::{NodeView, Subject};

const UNDO_ADDRESS: &str = "the record has the old address again, unless it has changed since";
const CORRECTS: &str = "writes the one address into the node's record that the node's own card has, that is on the network of the other nodes' addresses, \
                        and that is no other node's";
const UNDO_SETTING: &str = "the setting is put back, unless it has changed since";

const fn address(code: &'static str) -> Remedy {
    Remedy { code, area: Area::Node, does: CORRECTS, undo: UNDO_ADDRESS, act: Some(correct_address) }
}

/// Findings about the address that other nodes use for a node.
const ABOUT_ADDRESS: [&str; 4] =
    ["node-address-wrong", "node-address-missing", "node-address-unfit", "node-address-shared"];

pub(super) const ALL: &[Remedy] = &[
    address("node-address-wrong"),
    address("node-address-missing"),
    address("node-address-unfit"),
    Remedy {
        code: "tunnel-address-shared",
        area: Area::Ipam,
        does: "takes the address out of the record of the node to which it is not allocated; the node's agent then takes another one",
        undo: UNDO_ADDRESS,
        act: Some(clear_tunnel),
    },
    Remedy {
        code: "forwarding-off",
        area: Area::Node,
        does: "switches forwarding on",
        undo: UNDO_SETTING,
        act: Some(kernel::set_setting),
    },
    Remedy {
        code: "rp-filter-loose",
        area: Area::Node,
        does: "makes the filter strict, as Felix demands",
        undo: UNDO_SETTING,
        act: Some(kernel::set_setting),
    },
];

/// Whether this is about the address of a node.
pub(super) fn is_about_address(code: &str) -> bool {
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
        return draft.leave(target, "it has no Node record", Vec::new());
    };
    let candidates = candidates(draft, view);
    let &[right] = &candidates[..] else {
        let found = candidates.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let why = match candidates.is_empty() {
            true => "no card of the node has an address on the others' network, as far as that was looked at"
                .to_owned(),
            false => format!("several addresses are possible: {found}"),
        };
        return draft.leave(
            target,
            why,
            vec![ShellCommand::remark("set IP_AUTODETECTION_METHOD and restart the agent of", name)],
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
        let why = "its record is right; an annotation of the Kubernetes node says otherwise";
        let command = ShellCommand::new("kubectl annotate --overwrite node")
            .value(&name)
            .assigned("projectcalico.org/IPv4Address", right);
        return draft.leave(target, why, vec![command]);
    }
    let key = Key::cluster(Kind::Node, name.clone());
    if draft.claims(&key, target) {
        let step = draft.step(target, format!("record {right} as the address of node {name}"));
        step.because.push("a card of the node has it, the other nodes' addresses are on its network, and no other node goes by it".to_owned());
        step.edits.push(Edit::Field { key, field: "/spec/bgp/ipv4Address".to_owned(), from, to: Some(to) });
    }
}

/// Addresses of the node's own cards on networks that other nodes go by.
fn candidates(draft: &Draft<'_, '_>, view: &NodeView<'_>) -> Vec<IpNet> {
    let case = &draft.ground.case;
    let others = case.node_views().values().filter(|other| other.name != view.name);
    let taken: Vec<IpNet> =
        others.flat_map(|other| other.addresses.iter().map(|recorded| recorded.net)).collect();
    let held = case.node(view.name).into_iter().flat_map(|node| node.kernel.addresses.iter().flatten());
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
    let handle = ground
        .case
        .allocation(address)
        .and_then(|allocation| allocation.attribute.handle().map(str::to_owned));
    let mut is_mended = false;
    for view in ground.case.node_views().values() {
        let Some(record) = view.record else { continue };
        for (tunnel, _) in view.tunnels.iter().filter(|(_, at)| *at == address) {
            let is_entitled = handle.as_deref() == Some(tunnel.handle(view.name).as_str());
            let Some((field, from)) = field_of(&record.seen.body, address).filter(|_| !is_entitled) else {
                continue;
            };
            let key = Key::cluster(Kind::Node, record.seen.metadata.name.clone());
            let step = draft.step(target, format!("take {address} out of the record of node {}", view.name));
            step.because
                .push(format!("the books have it allocated to {}", handle.as_deref().unwrap_or("nobody")));
            step.edits.push(Edit::Field { key, field, from: Some(from), to: None });
            is_mended = true;
        }
    }
    if !is_mended && let Some(command) = annotation_at(draft.ground, address, handle.as_deref()) {
        let why = "the address stands in an annotation of a Kubernetes node, which its agent writes anew when it is gone";
        return draft.leave(target, why, vec![command]);
    }
    if !is_mended {
        draft.leave(
            target,
            "the tunnel is entitled to the address: whoever else has it must get another",
            super::addresses::recreate(ground, address),
        );
    }
}

/// The command that takes an address out of the annotations of a node to which it is not allocated.
fn annotation_at(ground: &Ground<'_>, address: IpAddr, handle: Option<&str>) -> Option<ShellCommand> {
    let nodes = ground.case.evidence.kube_nodes.iter().flatten().map(|node| &node.seen);
    nodes.into_iter().find_map(|node| {
        let is_entitled =
            ipam::Tunnel::ALL.into_iter().any(|tunnel| handle == Some(&tunnel.handle(&node.name)));
        let is_it =
            |text: &String| text.split('/').next().and_then(|text| text.parse().ok()) == Some(address);
        let mut told = node.annotations.iter().filter(|(name, _)| name.starts_with("projectcalico.org/"));
        let (name, _) = told.find(|(_, text)| is_it(text)).filter(|_| !is_entitled)?;
        Some(ShellCommand::new("kubectl annotate node").value(&node.name).value(format!("{name}-")))
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
