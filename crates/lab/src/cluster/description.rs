//! What a lab consists of. Written to a file of the lab before anything is made, so that every later command finds
//! the lab, and a lab that died halfway can be removed.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use model::kube::Layout;
use serde::{Deserialize, Serialize};

use super::{LabName, Topology};
use crate::Programs;

const FILE: &str = "lab.json";
/// Of the file. One of another version can still be removed: for that its name is enough.
const VERSION: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    version: u32,
    pub name: LabName,
    pub stage: Stage,
    pub store: StoreKind,
    pub mode: Mode,
    pub topology: Topology,
    pub networks: Vec<Network>,
    pub nodes: Vec<NodeDescription>,
    /// Where the product's binaries lie.
    pub programs: PathBuf,
    /// Without agents the plugin does each call by itself.
    pub has_agents: bool,
    /// Time between the two looks of the witness rule, for the agents.
    pub grace: Duration,
    /// The pods' pools.
    pub pools: Vec<String>,
    /// Where Kubernetes' programs lie. `None`: they are found as other programs are.
    #[serde(default)]
    pub kubernetes_bin: Option<PathBuf>,
    #[serde(default)]
    pub api_group: ApiGroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Being made, or died while being made.
    Building,
    Up,
}

/// What keeps the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// One file for all nodes
    Sqlite,
    /// A real etcd
    Etcdv3,
    /// A real Kubernetes API server
    Kubernetes,
}

/// Under which names Kubernetes keeps Calico's kinds. Programs find out by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum ApiGroup {
    /// Calico's usual one
    #[default]
    #[value(name = "crd.projectcalico.org/v1")]
    V1,
    /// Calico's newer one, without an API server of its own
    #[value(name = "projectcalico.org/v3")]
    V3,
}

impl ApiGroup {
    pub(crate) fn layout(self) -> Layout {
        match self {
            ApiGroup::V1 => Layout::V1,
            ApiGroup::V3 => Layout::V3,
        }
    }
}

/// How traffic gets from node to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each node is the gateway to its pods; nodes on other networks are not reached
    Direct,
    /// All traffic between nodes goes through VXLAN
    Vxlan,
    /// VXLAN between nodes that share no network
    Crosssubnet,
    /// Nodes exchange routes by BGP, and BIRD sets them
    Bgp,
}

impl Mode {
    /// As pools spell it.
    pub(crate) fn vxlan(self) -> &'static str {
        match self {
            Mode::Direct | Mode::Bgp => "Never",
            Mode::Vxlan => "Always",
            Mode::Crosssubnet => "CrossSubnet",
        }
    }

    /// The topology in which the mode can show what it does.
    pub fn usual_topology(self) -> Topology {
        match self {
            Mode::Direct | Mode::Vxlan | Mode::Bgp => Topology::Shared,
            Mode::Crosssubnet => Topology::Subnets,
        }
    }
}

/// A cable that nodes share: a bridge in the lab's fabric namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    /// The fabric's own addresses on it, with prefix lengths.
    pub fabric_addresses: Vec<(IpAddr, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    pub name: String,
    pub cards: Vec<Card>,
}

/// A node's network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub device: String,
    pub network: String,
    pub addresses: Vec<(IpAddr, u8)>,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: LabName,
    pub nodes: usize,
    pub store: StoreKind,
    pub mode: Mode,
    pub topology: Topology,
    pub ipv6: bool,
    pub grace: Duration,
    pub has_agents: bool,
    pub programs: PathBuf,
    pub kubernetes_bin: Option<PathBuf>,
    pub api_group: ApiGroup,
}

impl Plan {
    pub const NODES: usize = 3;
    /// Of each lab. More would not fit the machine's memory before they would not fit the network.
    pub const NODES_MAX: usize = 100;
    const POOL: &str = "10.244.0.0/16";
    const POOL6: &str = "fd44::/48";

    /// As an operator gets it who asks for nothing else.
    pub fn new(programs: &Programs) -> Plan {
        Plan {
            name: LabName::usual(),
            nodes: Plan::NODES,
            store: StoreKind::Sqlite,
            mode: Mode::Direct,
            topology: Topology::Shared,
            ipv6: false,
            grace: Duration::from_secs(60),
            has_agents: true,
            programs: programs.folder().to_owned(),
            kubernetes_bin: None,
            api_group: ApiGroup::default(),
        }
    }

    pub fn describe(&self) -> Result<Description> {
        if !(1..=Plan::NODES_MAX).contains(&self.nodes) {
            bail!("a lab can have 1 to {} nodes, not {}", Plan::NODES_MAX, self.nodes);
        }
        let mut pools = vec![Plan::POOL.to_owned()];
        pools.extend(self.ipv6.then(|| Plan::POOL6.to_owned()));
        Ok(Description {
            version: VERSION,
            name: self.name.clone(),
            stage: Stage::Building,
            store: self.store,
            mode: self.mode,
            topology: self.topology,
            nodes: (1..=self.nodes).map(|index| self.topology.node(index, self.ipv6)).collect(),
            networks: self.topology.networks(self.ipv6),
            programs: self.programs.clone(),
            has_agents: self.has_agents,
            grace: self.grace,
            pools,
            kubernetes_bin: self.kubernetes_bin.clone(),
            api_group: self.api_group,
        })
    }
}

impl Description {
    pub fn node(&self, name: &str) -> Result<&NodeDescription> {
        self.nodes.iter().find(|node| node.name == name).with_context(|| {
            format!("lab {} has no node {name}; it has {}", self.name, self.node_names().join(", "))
        })
    }

    pub fn node_names(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    pub fn has_ipv6(&self) -> bool {
        self.pools.iter().any(|pool| pool.contains(':'))
    }

    pub(crate) fn exists(folder: &Path) -> bool {
        folder.join(FILE).exists()
    }

    pub(crate) fn load(folder: &Path) -> Result<Description> {
        let path = folder.join(FILE);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let description: Description =
            serde_json::from_slice(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        if description.version != VERSION {
            bail!("{} is of version {}, not {VERSION}", path.display(), description.version);
        }
        Ok(description)
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        crate::file::replace(&folder.join(FILE), serde_json::to_string_pretty(self)?.as_bytes())
    }
}

impl NodeDescription {
    /// By which the others know it.
    pub fn address(&self) -> Option<IpAddr> {
        self.addresses().find(IpAddr::is_ipv4)
    }

    pub fn address6(&self) -> Option<IpAddr> {
        self.addresses().find(IpAddr::is_ipv6)
    }

    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.cards.iter().flat_map(|card| &card.addresses).map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(nodes: usize, ipv6: bool) -> Plan {
        Plan {
            name: "x".parse().unwrap(),
            nodes,
            store: StoreKind::Sqlite,
            mode: Mode::Direct,
            topology: Topology::Shared,
            ipv6,
            grace: Duration::from_secs(60),
            has_agents: true,
            programs: PathBuf::from("/bin"),
            kubernetes_bin: None,
            api_group: ApiGroup::default(),
        }
    }

    #[test]
    fn a_description_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let description = plan(3, true).describe().unwrap();
        description.save(folder.path()).unwrap();
        assert_eq!(Description::load(folder.path()).unwrap(), description);
    }

    #[test]
    fn every_node_has_addresses_of_its_own() {
        let description = plan(100, true).describe().unwrap();
        let addresses: std::collections::BTreeSet<IpAddr> =
            description.nodes.iter().flat_map(|node| [node.address(), node.address6()]).flatten().collect();
        assert_eq!(addresses.len(), 200);
        assert_eq!(plan(1, false).describe().unwrap().nodes[0].address6(), None);
        assert!(plan(0, false).describe().is_err() && plan(101, false).describe().is_err());
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let description = Description { version: VERSION + 1, ..plan(1, false).describe().unwrap() };
        description.save(folder.path()).unwrap();
        let error = Description::load(folder.path()).unwrap_err();
        assert!(error.to_string().contains("is of version 3"), "{error:#}");
    }
}
