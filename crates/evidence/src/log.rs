//! What logs tell, line by line, as far as it matters here: calls of the plugin, what it did to records, what the
//! kubelet thought of it, and trouble of units and stores.

use std::net::IpAddr;

use jiff::civil::DateTime;
use model::{Cidr, HandleId, Mac, NodeName};
use serde::{Deserialize, Serialize};

use super::{PodName, Trouble};

/// One thing that a log tells. Lines that say the same one after the other are one event with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvent {
    /// By the clock of the machine that wrote it, in its own zone; a year that the log does not tell is taken from
    /// lines around it, else it is 0.
    pub at: Option<DateTime>,
    /// The host in a syslog prefix, else the node that the file is named for.
    pub node: Option<NodeName>,
    pub what: Happening,
    /// How many lines in a row said it.
    pub count: u32,
    /// When the last of them did, if there were several.
    pub last_at: Option<DateTime>,
}

/// Container IDs are as the log spells them, so compare with [`super::same_id`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Happening {
    /// The runtime calls the plugin. `netns` is empty where the namespace is gone.
    CniCall {
        command: CniCommand,
        container_id: String,
        pod: Option<PodName>,
        interface: Option<String>,
        netns: Option<String>,
    },
    /// The call failed, as kubelet or runtime tell it.
    CniFailed { command: CniCommand, container_id: Option<String>, pod: Option<PodName>, error: String },
    /// IPAM gave a sandbox these addresses.
    AddressesAssigned {
        addresses: Vec<IpAddr>,
        pod: Option<PodName>,
        #[serde(default)]
        container_id: Option<String>,
    },
    /// Everything under a handle is about to be released.
    HandleReleasing { handle: HandleId },
    /// One address is released or about to be.
    AddressReleased { address: Option<IpAddr>, pod: Option<PodName> },
    /// The controllers found that nobody uses it, and took it back.
    AddressCollected { address: IpAddr, pod: Option<PodName> },
    /// A handle holds so many addresses less.
    HandleDecremented { handle: HandleId, by: u32 },
    /// A handle holds none any more, and is gone.
    HandleDeleted { handle: HandleId },
    /// A block was read.
    BlockRead { block: Cidr },
    /// An endpoint was created or updated.
    EndpointWritten { endpoint: WrittenEndpoint },
    /// An endpoint was deleted.
    EndpointDeleted { pod: Option<PodName>, node: Option<NodeName> },
    /// It was to be deleted and is not there.
    EndpointAbsent { pod: Option<PodName>, node: Option<NodeName> },
    /// The endpoint is another sandbox's, so it is left alone (Calico since v3).
    EndpointOfAnother { pod: Option<PodName>, container_id: Option<String> },
    /// The key that was asked for before is not there.
    KeyNotFound,
    /// The runtime started a sandbox.
    SandboxStarted { container_id: String, pod: Option<PodName>, pod_uid: Option<String> },
    /// The runtime stopped a sandbox.
    SandboxStopped { container_id: String, pod: Option<PodName> },
    /// The runtime could not stop a sandbox.
    SandboxStopFailed { container_id: String, pod: Option<PodName>, error: String },
    /// The kubelet makes a new sandbox for a pod that had one.
    SandboxChanged { pod: PodName, pod_uid: Option<String> },
    /// The kubelet gives up on killing a pod for now, and will try again.
    PodKillFailed { pod: Option<PodName>, pod_uid: Option<String>, error: String },
    /// The kubelet was told of a pod.
    PodAdded { pod: PodName, pod_uid: Option<String> },
    /// The kubelet was told that a pod is gone.
    PodRemoved { pod: PodName, pod_uid: Option<String> },
    /// What the kubelet takes for the pod's address.
    PodAddress {
        pod: PodName,
        pod_uid: Option<String>,
        address: IpAddr,
        containers: Vec<String>,
        /// When the pod was started, by its own status.
        started_at: Option<DateTime>,
    },
    /// The kubelet misses an interface inside a pod.
    InterfaceMissing { pod: PodName, interface: String },
    /// The network namespace of a sandbox is gone.
    NetnsGone { container_id: String, pod: Option<PodName> },
    /// A unit of systemd failed.
    UnitFailed { unit: String },
    /// A unit of systemd was started.
    UnitStarted { unit: String },
    /// A trouble that the line names in words of its own.
    Named { trouble: Trouble, pod: Option<PodName>, message: String },
    /// A program refuses to go on.
    Fatal { program: String, message: String },
    /// A store does not answer, or not in time.
    StoreTrouble { message: String },
    /// The records of a node that is gone are cleaned up.
    NodeCleaned { node: NodeName, block: Option<Cidr> },
    /// BIRD has no session with these peers.
    BgpDown { peers: Vec<IpAddr>, message: String },
    /// Something that is not understood and calls itself an error.
    Error { program: String, message: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CniCommand {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// An endpoint record as a log tells that it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenEndpoint {
    pub pod: Option<PodName>,
    pub node: Option<NodeName>,
    pub device: Option<String>,
    pub mac: Option<Mac>,
    pub addresses: Vec<IpAddr>,
    pub container_id: Option<String>,
}

impl CniCommand {
    pub fn as_str(self) -> &'static str {
        match self {
            CniCommand::Add => "ADD",
            CniCommand::Del => "DEL",
            CniCommand::Check => "CHECK",
            CniCommand::Gc => "GC",
            CniCommand::Status => "STATUS",
            CniCommand::Version => "VERSION",
        }
    }

    pub fn parse(word: &str) -> Option<CniCommand> {
        use CniCommand::{Add, Check, Del, Gc, Status, Version};
        [Add, Del, Check, Gc, Status, Version].into_iter().find(|command| command.as_str() == word)
    }
}
