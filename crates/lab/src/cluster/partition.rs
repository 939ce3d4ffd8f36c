//! Cutting nodes off from the others, and joining them again. Nobody on a node can tell it from its cards: they stay up.

use anyhow::{Result, ensure};

use super::Cluster;
use super::fabric::{FABRIC, batch, bridge, ports};

impl Cluster {
    /// Cuts nodes off from all others; those that are named still reach each other. Whoever was cut off before is joined
    /// first. The store's etcd and the router stay with the rest.
    pub fn partition(&self, nodes: &[&str]) -> Result<()> {
        let description = &self.description;
        for node in nodes {
            description.node(node)?;
        }
        ensure!(!nodes.is_empty(), "no nodes given to cut off");
        self.heal()?;
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

    /// Joins whoever was cut off: everybody is where the topology says. Nothing to heal is fine.
    pub fn heal(&self) -> Result<()> {
        let description = &self.description;
        let namespace = description.name.namespace(FABRIC);
        let back = ports(description);
        let back =
            back.iter().map(|port| format!("link set {} master {}", port.device, bridge(port.network)));
        batch(&namespace, &back.collect::<Vec<_>>())?;
        for index in 0..description.networks.len() {
            // It is not there if nobody was cut off.
            let _ = crate::namespace::ip(&["-n", &namespace, "link", "del", &apart(index)]);
        }
        Ok(())
    }
}

/// The bridge of those that are cut off.
fn apart(network: usize) -> String {
    format!("apart{network}")
}
