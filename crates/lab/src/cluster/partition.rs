//! Cutting nodes off from the others, and joining them again. Nobody on a node can tell it from its cards: they stay up.

use anyhow::{Result, ensure};

use super::Description;
use super::fabric::{FABRIC, batch, bridge, ports};

/// Leaves these nodes only each other. The store's etcd and the router stay with the rest.
pub(super) fn cut_off(description: &Description, nodes: &[&str]) -> Result<()> {
    for node in nodes {
        description.node(node)?;
    }
    ensure!(!nodes.is_empty(), "no nodes given to cut off");
    heal(description)?;
    let mut lines = Vec::new();
    for index in 0..description.networks.len() {
        lines.push(format!("link add {} type bridge", apart(index)));
        lines.push(format!("link set {} up", apart(index)));
    }
    let all = ports(description);
    let cut = all.iter().filter(|port| nodes.contains(&port.node));
    lines.extend(cut.map(|port| format!("link set {} master {}", port.device, apart(port.network))));
    batch(&description.name.namespace(FABRIC), &lines)
}

/// Everybody is where the topology says. Nothing to heal is fine.
pub(super) fn heal(description: &Description) -> Result<()> {
    let namespace = description.name.namespace(FABRIC);
    let back = ports(description);
    let back = back.iter().map(|port| format!("link set {} master {}", port.device, bridge(port.network)));
    batch(&namespace, &back.collect::<Vec<_>>())?;
    for index in 0..description.networks.len() {
        // It is not there if nobody was cut off.
        let _ = crate::namespace::ip(&["-n", &namespace, "link", "del", &apart(index)]);
    }
    Ok(())
}

/// The bridge of those that are cut off.
fn apart(network: usize) -> String {
    format!("apart{network}")
}
