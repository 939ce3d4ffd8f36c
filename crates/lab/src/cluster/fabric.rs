//! The cables: a namespace with a bridge for each network, and the nodes' cards plugged into them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use host::NetNs;

use super::{Description, LabName};
use crate::namespace::ip;

/// The part of the lab that joins the nodes; no node has this name.
pub(super) const FABRIC: &str = "fabric";

/// Makes the fabric's namespace and those of the nodes, and joins them.
pub(super) fn build(description: &Description) -> Result<()> {
    let name = &description.name;
    ip(&["netns", "add", &name.namespace(FABRIC)])?;
    for node in &description.nodes {
        ip(&["netns", "add", &name.namespace(&node.name)])?;
    }
    batch(&name.namespace(FABRIC), &bridges(description))?;
    batch(&name.namespace(FABRIC), &cables(description))?;
    if description.topology.has_router() {
        forward(&name.namespace(FABRIC))?;
    }
    for node in &description.nodes {
        batch(&name.namespace(&node.name), &node_side(description, node))?;
    }
    Ok(())
}

fn bridges(description: &Description) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    for (index, network) in description.networks.iter().enumerate() {
        // Otherwise it has that of one of its ports, and another one when that is pulled out: nodes would not find their router.
        lines.push(format!("link add {} address {} type bridge", bridge(index), hardware_address(index)));
        for (address, prefix) in &network.fabric_addresses {
            lines.push(format!("address add {address}/{prefix} dev {}{}", bridge(index), nodad(address)));
        }
        lines.push(format!("link set {} up", bridge(index)));
    }
    lines
}

/// The fabric's end of a node's card.
pub(super) struct Port<'d> {
    pub(super) node: &'d str,
    pub(super) device: String,
    /// Which of the lab's networks it is plugged into.
    pub(super) network: usize,
    card: &'d str,
}

pub(super) fn ports(description: &Description) -> Vec<Port<'_>> {
    let mut ports = Vec::new();
    for (node_index, node) in description.nodes.iter().enumerate() {
        for (card_index, card) in node.cards.iter().enumerate() {
            let network = description.networks.iter().position(|network| network.name == card.network);
            ports.push(Port {
                node: &node.name,
                device: format!("port{node_index}-{card_index}"),
                network: network.unwrap_or_default(),
                card: &card.device,
            });
        }
    }
    ports
}

fn cables(description: &Description) -> Vec<String> {
    let mut lines = Vec::new();
    for Port { node, device, network, card } in ports(description) {
        let namespace = description.name.namespace(node);
        lines.push(format!("link add {device} type veth peer name {card} netns {namespace}"));
        lines.push(format!("link set {device} master {} up", bridge(network)));
    }
    lines
}

fn node_side(description: &Description, node: &super::NodeDescription) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned()];
    for card in &node.cards {
        for (address, prefix) in &card.addresses {
            lines.push(format!("address add {address}/{prefix} dev {}{}", card.device, nodad(address)));
        }
        lines.push(format!("link set {} up", card.device));
    }
    // The way out, as nodes have one. The fabric itself leads nowhere.
    let first = node
        .cards
        .first()
        .and_then(|card| description.networks.iter().find(|network| network.name == card.network));
    for (gateway, _) in first.into_iter().flat_map(|network| &network.fabric_addresses) {
        let family = if gateway.is_ipv6() { "::/0" } else { "default" };
        lines.push(format!("route add {family} via {gateway}"));
    }
    lines
}

/// Makes a namespace a router.
fn forward(namespace: &str) -> Result<()> {
    let path = Path::new(crate::namespace::NAMESPACES).join(namespace);
    let write = || {
        ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
            .into_iter()
            .try_for_each(|setting| fs::write(Path::new("/proc/sys/net").join(setting), "1"))
    };
    NetNs::open(&path)?.visit(write)?.with_context(|| format!("cannot make {namespace} a router"))
}

pub(super) fn bridge(index: usize) -> String {
    format!("fabric{index}")
}

fn hardware_address(index: usize) -> String {
    format!("02:fa:b0:00:00:{:02x}", index + 1)
}

/// Nobody else is there to have the same address, and waiting a second to find out would only cost that second.
fn nodad(address: &std::net::IpAddr) -> &'static str {
    if address.is_ipv6() { " nodad" } else { "" }
}

/// Many changes in one namespace by one `ip`.
pub(super) fn batch(namespace: &str, lines: &[String]) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-n", namespace, "-batch", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ip")?;
    child.stdin.take().context("ip takes its input")?.write_all(lines.join("\n").as_bytes())?;
    let output = child.wait_with_output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot set up the network of {namespace}: {}", errors.trim());
    Ok(())
}

/// The path by which the namespace of a part is entered.
pub(super) fn namespace_path(name: &LabName, part: &str) -> String {
    format!("{}/{}", crate::namespace::NAMESPACES, name.namespace(part))
}
