//! Nodes and pods as things to hold.

use anyhow::Result;

use crate::Namespace;

/// The address of every node, seen from its own pods. Nodes of a lab are not connected yet, so one is enough.
const NODE_ADDRESS: &str = "192.0.2.1";

/// A node: the namespace in which the plugin runs.
#[derive(Debug)]
pub struct Node {
    name: String,
    namespace: Namespace,
}

impl Node {
    pub(crate) fn new(name: &str, namespace: Namespace) -> Result<Node> {
        namespace.ip(&["address", "add", &format!("{NODE_ADDRESS}/32"), "dev", "lo"])?;
        Ok(Node { name: name.to_owned(), namespace })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub fn address(&self) -> &'static str {
        NODE_ADDRESS
    }
}

/// A pod's sandbox: who it is, and its namespace.
#[derive(Debug)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub container_id: String,
    pub interface: String,
    /// Empty where no API knows the pod.
    pub uid: String,
    netns: Namespace,
}

impl Pod {
    pub(crate) fn new(namespace: &str, name: &str, container_id: String, netns: Namespace) -> Pod {
        Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            container_id,
            interface: "eth0".to_owned(),
            uid: String::new(),
            netns,
        }
    }

    pub fn netns(&self) -> &Namespace {
        &self.netns
    }
}
