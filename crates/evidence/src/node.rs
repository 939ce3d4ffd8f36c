//! What was seen on one node: its kernel, its pods from inside, BGP, the runtime, and how it is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use model::{AgentMode, FindingCode, NodeName};
use serde::{Deserialize, Deserializer, Serialize};

use super::firewall::Firewall;
use super::kernel::{Kernel, PodView};
use super::probe::Echo;
use super::{PodName, Sighted};

/// One node's evidence. Whatever is `None` was not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeEvidence {
    pub name: NodeName,
    pub kernel: Kernel,
    /// Rules for packets.
    pub firewall: Option<Sighted<Firewall>>,
    pub pod_views: Option<Vec<PodView>>,
    /// `calicoctl node status`, or BIRD's own `show protocols`.
    pub bgp: Option<Bgp>,
    /// The runtime's list (`crictl pods`, CRI).
    pub sandboxes: Option<Vec<Sighted<RuntimeSandbox>>>,
    /// `docker ps`, `crictl ps`: their IDs.
    pub containers: Option<Vec<Sighted<String>>>,
    pub setup: Setup,
    /// The agent's journal of attachments.
    pub attachments: Option<Vec<Sighted<Attachment>>>,
    /// DELs that were answered and are not done yet, by the agent's queue.
    pub unfinished_dels: Option<Vec<Sighted<UnfinishedDel>>>,
    /// Namespaces that exist, by the runtime's paths or names.
    pub namespaces: Option<Vec<Sighted<String>>>,
    /// Sandboxes that somebody wanted to look into and whose network namespace is not there any more, by container ID.
    pub lost_namespaces: Option<Vec<Sighted<String>>>,
    /// What the node's agent may do. `None`: no agent of ours was asked.
    pub agent_mode: Option<AgentMode>,
    /// What the agent fixed by itself, oldest first; a bounded number of them.
    #[serde(deserialize_with = "with_known_codes")]
    pub mends: Option<Vec<Mend>>,
    /// What keeps the agent from writing its state folder; nothing if it can, or nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_folder_problem: Option<Sighted<String>>,
    /// Why its agent cannot load its nftables rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules_problem: Option<Sighted<String>>,
    /// What keeps the agent from reading or writing the store; nothing if it can, or nobody asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_problem: Option<Sighted<String>>,
}

/// Something that an agent fixed by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mend<C = FindingCode> {
    pub at: Timestamp,
    /// The code of the finding that it would have been.
    pub code: C,
    /// Whose it was: a sandbox, or a device or setting of the node.
    pub subject: String,
    /// What was wrong.
    pub words: String,
}

/// A newer agent may have fixed what this version has no code for; that is skipped, and the rest of the node is read.
fn with_known_codes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Mend>>, D::Error> {
    let mends: Option<Vec<Mend<String>>> = Option::deserialize(deserializer)?;
    let known = |Mend { at, code, subject, words }: Mend<String>| {
        Some(Mend { at, code: code.parse().ok()?, subject, words })
    };
    Ok(mends.map(|mends| mends.into_iter().filter_map(known).collect()))
}

/// BGP as a node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bgp {
    /// `None`: not said. `Some(false)`: calicoctl says that the process is not running, or it does not answer.
    pub is_running: Option<bool>,
    /// There is a process, but it is stopped or hangs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
    pub sessions: Vec<Sighted<BgpSession>>,
    /// Other protocols of BIRD: kernel, device, direct, static.
    pub protocols: Vec<Sighted<BirdProtocol>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpSession {
    pub peer: IpAddr,
    /// `node-to-node mesh`, `node specific`, `global`; or the protocol's name where BIRD was asked.
    #[serde(default)]
    pub peer_type: String,
    /// `up`, `start`, `down`.
    #[serde(default)]
    pub state: String,
    /// As printed: a time of day, or a date for older ones.
    #[serde(default)]
    pub since: String,
    /// `Established`, `Passive`, `Active Socket: Connection refused` …
    #[serde(default)]
    pub info: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BirdProtocol {
    pub name: String,
    pub kind: String,
    pub state: String,
    pub since: String,
    pub info: String,
}

/// A sandbox as the runtime lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeSandbox {
    /// Full, or the first 12 or 13 digits: compare with [`same_id`].
    pub id: String,
    /// `None`: not said.
    pub is_ready: Option<bool>,
    pub pod: PodName,
    pub pod_uid: Option<String>,
    pub attempt: Option<u32>,
    pub created_at: Option<Timestamp>,
    pub age: Option<SignedDuration>,
}

/// One entry of the agent's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub network: String,
    pub container_id: String,
    pub interface: String,
    pub device: String,
    pub addresses: Vec<IpAddr>,
    pub pod: Option<PodName>,
    /// Something is queued or under way for it.
    pub is_in_flux: bool,
}

/// A DEL that the runtime believes done, and that is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedDel {
    /// Its file in the queue.
    pub file: String,
    pub since: Timestamp,
    /// `None`: it cannot be understood.
    pub container_id: Option<String>,
    /// It cannot be done, and nobody tries it any more.
    pub is_set_aside: bool,
}

/// How a node is set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// `/proc/swaps`: devices in use.
    pub swaps: Option<Sighted<Vec<String>>>,
    pub hostname: Option<Sighted<String>>,
    /// `/var/lib/calico/nodename`.
    pub nodename_file: Option<Sighted<String>>,
    /// The name the node registers under.
    pub node_name: Option<Sighted<NodeName>>,
    /// systemd units by name: `active`, `failed`, `activating` …
    pub units: Option<BTreeMap<String, Sighted<String>>>,
    /// How far its clock is ahead of the one that asked.
    pub clock_ahead: Option<Sighted<SignedDuration>>,
    /// What its clock showed when the store was read, so that bundles of several machines can be compared.
    pub clock_readings: Option<Vec<Sighted<ClockReading>>>,
    /// Whether anybody keeps the clock right, by the kernel's own word.
    pub is_clock_kept: Option<Sighted<bool>>,
    /// CNI configurations by file name: their text, with secrets masked.
    pub cni_configs: Option<BTreeMap<String, Sighted<String>>>,
    /// Credentials by file: when they expire. Never the credentials.
    pub credentials_expire_at: Option<BTreeMap<String, Sighted<Timestamp>>>,
    /// `IP`, `IP_AUTODETECTION_METHOD`, `CALICO_NETWORKING_BACKEND` … of the node's agent.
    pub environment: Option<BTreeMap<String, Sighted<String>>>,
    pub kernel_modules: Option<Sighted<Vec<String>>>,
    /// TCP ports somebody listens on.
    pub listening_ports: Option<Sighted<Vec<u16>>>,
    /// Programs by the port that they hold, also on addresses that only the machine reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_owners: Option<BTreeMap<u16, Sighted<String>>>,
    pub machine_id: Option<Sighted<String>>,
    /// Addresses that packets were sent to from here, and what came back.
    pub probed: Option<BTreeMap<IpAddr, Sighted<Echo>>>,
    /// By which address the node's agent makes it known: one for each IP version.
    pub address_choices: Option<Vec<Sighted<AddressChoice>>>,
    /// Records that the node's agent does not follow, each with the reason.
    pub not_followed: Option<Vec<Sighted<String>>>,
}

/// A read of the store, by the clock of the machine that read. A store counts its changes, so of two reads that saw different
/// numbers it is known which came first, whatever clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The store's revision.
    pub revision: u64,
    pub before: Timestamp,
    pub after: Timestamp,
}

/// What an agent says of its node's address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressChoice {
    /// `None`: there is none that it would take.
    pub network: Option<IpNet>,
    pub device: Option<String>,
    pub why: String,
    /// What speaks against it, in words.
    pub doubts: Vec<String>,
    /// Those of them that only the operator can settle, by a setting.
    pub unsettled: Vec<String>,
    /// Others that it would not take, and why.
    pub refused: Vec<String>,
    /// What other nodes answered to.
    pub probes: Vec<AddressProbe>,
}

/// Other nodes, asked from one address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressProbe {
    pub from: IpAddr,
    pub asked: Vec<IpAddr>,
    pub answered: Vec<IpAddr>,
}

#[cfg(feature = "sample")]
thread_local! {
    /// How often IDs were compared: what is done for each pair of them shows here.
    pub static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Whether two spellings may be the same container: tools print the first digits only.
pub fn same_id(a: &str, b: &str) -> bool {
    const SHORTEST: usize = 8;
    #[cfg(feature = "sample")]
    COMPARED.set(COMPARED.get() + 1);
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short == long || (short.len() >= SHORTEST && long.starts_with(short))
}

impl BgpSession {
    pub fn is_established(&self) -> bool {
        self.info.starts_with("Established") || (self.state == "up" && self.info.is_empty())
    }
}

impl NodeEvidence {
    pub fn new(name: impl Into<NodeName>) -> NodeEvidence {
        NodeEvidence { name: name.into(), ..NodeEvidence::default() }
    }

    /// Takes in what somebody else saw of the same node.
    pub fn absorb(&mut self, other: NodeEvidence) {
        self.kernel.absorb(other.kernel);
        if let Some(firewall) = other.firewall {
            self.absorb_firewall(firewall);
        }
        super::join(&mut self.pod_views, other.pod_views);
        super::join(&mut self.sandboxes, other.sandboxes);
        super::join(&mut self.containers, other.containers);
        super::join(&mut self.attachments, other.attachments);
        super::join(&mut self.unfinished_dels, other.unfinished_dels);
        super::join(&mut self.namespaces, other.namespaces);
        super::join(&mut self.lost_namespaces, other.lost_namespaces);
        match (&mut self.bgp, other.bgp) {
            (Some(mine), Some(theirs)) => {
                if mine.is_running.is_none() {
                    (mine.is_running, mine.is_silent) = (theirs.is_running, theirs.is_silent);
                }
                mine.sessions.extend(theirs.sessions);
                mine.protocols.extend(theirs.protocols);
            }
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        super::join(&mut self.mends, other.mends);
        self.agent_mode = self.agent_mode.or(other.agent_mode);
        self.state_folder_problem = self.state_folder_problem.take().or(other.state_folder_problem);
        self.rules_problem = self.rules_problem.take().or(other.rules_problem);
        self.store_problem = self.store_problem.take().or(other.store_problem);
        self.setup.absorb(other.setup);
    }

    /// Takes in rules that were seen elsewhere: those of the other version of IP, unless all were shown at once before.
    pub fn absorb_firewall(&mut self, firewall: Sighted<Firewall>) {
        let Some(mine) = &mut self.firewall else {
            self.firewall = Some(firewall);
            return;
        };
        // Not a list of all that is known: many small dumps may follow a large one.
        let mut new: BTreeSet<(String, String)> = firewall.seen.tables();
        for chain in &mine.seen.chains {
            if new.is_empty() {
                break;
            }
            new.retain(|(family, table)| *family != chain.family || *table != chain.table);
        }
        mine.seen.absorb(firewall.seen, |chain| new.contains(&(chain.family.clone(), chain.table.clone())));
    }

    /// Nothing but a name.
    pub fn is_empty(&self) -> bool {
        *self == NodeEvidence::new(&self.name)
    }
}

impl Setup {
    fn absorb(&mut self, other: Setup) {
        super::join(&mut self.units, other.units);
        super::join(&mut self.cni_configs, other.cni_configs);
        super::join(&mut self.credentials_expire_at, other.credentials_expire_at);
        super::join(&mut self.environment, other.environment);
        super::join(&mut self.probed, other.probed);
        super::join(&mut self.port_owners, other.port_owners);
        super::join(&mut self.address_choices, other.address_choices);
        super::join(&mut self.not_followed, other.not_followed);
        super::join(&mut self.clock_readings, other.clock_readings);
        self.swaps = self.swaps.take().or(other.swaps);
        self.hostname = self.hostname.take().or(other.hostname);
        self.nodename_file = self.nodename_file.take().or(other.nodename_file);
        self.node_name = self.node_name.take().or(other.node_name);
        self.clock_ahead = self.clock_ahead.take().or(other.clock_ahead);
        self.is_clock_kept = self.is_clock_kept.take().or(other.is_clock_kept);
        self.kernel_modules = self.kernel_modules.take().or(other.kernel_modules);
        self.listening_ports = self.listening_ports.take().or(other.listening_ports);
        self.machine_id = self.machine_id.take().or(other.machine_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn short_ids_are_prefixes() {
        let long = "59436e9b460f1a2b3c4d";
        assert!(same_id(long, "59436e9b460f") && same_id("59436e9b460f", long) && same_id("ab", "ab"));
        assert!(!same_id(long, "59436e9b460e") && !same_id("", long) && !same_id("5943", long));
    }

    #[test]
    fn a_code_of_a_newer_agent_does_not_hide_its_node() {
        let mend = |code: &str| serde_json::json!({"at": "2026-01-01T00:00:00Z", "code": code, "subject": "device x", "words": "down"});
        let node = serde_json::json!({"name": "a", "mends": [mend("device-down"), mend("not-yet-there")]});
        let node: NodeEvidence = serde_json::from_value(node).unwrap();
        let codes: Vec<FindingCode> = node.mends.unwrap().iter().map(|mend| mend.code).collect();
        assert_eq!(codes, [FindingCode::DeviceDown]);
    }

    #[test]
    fn two_looks_at_a_node_are_joined() {
        let mut node = NodeEvidence::new("a");
        assert!(node.is_empty());
        let unit = |state: &str| Sighted::new(state.to_owned(), Origin::file("x"));
        let mut other = NodeEvidence::new("A");
        other.setup.units = Some([("kubelet".to_owned(), unit("failed"))].into());
        other.bgp = Some(Bgp { is_running: Some(true), ..Bgp::default() });
        node.absorb(other.clone());
        node.absorb(NodeEvidence { bgp: Some(Bgp::default()), ..NodeEvidence::default() });
        assert_eq!(node.bgp.as_ref().unwrap().is_running, Some(true));
        assert_eq!(node.setup.units, other.setup.units);
        assert!(!node.is_empty());
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(serde_json::from_str::<NodeEvidence>(&text).unwrap(), node);
    }
}
