//! The cards of nodes, and what they are plugged into.

use std::net::Ipv4Addr;

use anyhow::Result;
use lab::{Lab, Node};

use crate::world::World;

const BRIDGE: &str = "fabric";

/// A node whose card leads nowhere: for stores that are files.
pub(crate) fn lone_node(lab: &Lab, name: &str, number: u8) -> Result<Node> {
    let node = lab.node(name)?;
    node.namespace().ip(&["link", "add", "eth0", "type", "veth", "peer", "name", "wire"])?;
    node.namespace().ip(&["link", "set", "wire", "up"])?;
    set_up(&node, "eth0", World::own_address(number))?;
    Ok(node)
}

/// A network that has an address itself, for a store that all its nodes reach.
pub(crate) struct Fabric {
    pub(crate) node: Node,
}

impl Fabric {
    /// Beside those of agents, before those of nodes that are records only.
    pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 254);

    pub(crate) fn new(lab: &Lab) -> Result<Fabric> {
        let node = lab.node(BRIDGE)?;
        node.namespace().ip(&["link", "add", BRIDGE, "type", "bridge"])?;
        set_up(&node, BRIDGE, Fabric::ADDRESS)?;
        Ok(Fabric { node })
    }

    pub(crate) fn node(&self, lab: &Lab, name: &str, number: u8) -> Result<Node> {
        let node = lab.node(name)?;
        let (port, here) = (format!("port{number}"), self.node.namespace());
        let there = ["peer", "name", &port, "netns", here.name()];
        node.namespace().ip(&[&["link", "add", "eth0", "type", "veth"][..], &there].concat())?;
        here.ip(&["link", "set", &port, "master", BRIDGE, "up"])?;
        set_up(&node, "eth0", World::own_address(number))?;
        Ok(node)
    }
}

fn set_up(node: &Node, device: &str, address: Ipv4Addr) -> Result<()> {
    node.namespace().ip(&["address", "add", &format!("{address}/12"), "dev", device])?;
    node.namespace().ip(&["link", "set", device, "up"])?;
    Ok(())
}
