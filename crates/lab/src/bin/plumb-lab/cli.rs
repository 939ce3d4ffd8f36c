//! What can be typed after `plumb lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab::cluster::{ApiGroup, LabName, Mode, Plan, StoreKind, Topology};
use lab::kubelet::PodKey;

/// Runs a whole pod network on this machine: each node is a network namespace that runs the real programs
///
/// Needs root. A lab stays until it is removed, even if the command that created it was killed.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "plumb-lab",
    bin_name = "plumb lab",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  plumb lab up --nodes 3
  plumb lab pod add node1 web-0
  plumb lab ping
  plumb lab exec node1 -- plumb get wep -A
  plumb lab exec node1 -- plumb doctor
  plumb lab down"
)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LabCommand {
    Up(Up),
    Down(Down),
    /// Lists the labs of this machine, whole or not
    #[command(after_help = "Examples:\n  plumb lab list\n  plumb lab list -o json")]
    List(List),
    /// Shows the nodes, agents and pods of a lab; exit code 1 if something that should run does not run
    #[command(after_help = "Examples:\n  plumb lab status\n  plumb lab status -o json")]
    Status(Shown),
    /// Lets pods and nodes ping each other; exit code 1 if an answer is missing
    #[command(after_help = "Examples:\n  plumb lab ping\n  plumb lab ping -o json")]
    Ping(Shown),
    /// Starts and stops pods through the node's kubelet stand-in
    #[command(
        subcommand,
        after_help = "\
Examples:
  plumb lab pod add node1 web-0 shop/db-0
  plumb lab pod del node1 web-0"
    )]
    Pod(PodCommand),
    Exec(Exec),
    Partition(Partition),
    /// Reconnects nodes that were cut off
    #[command(after_help = "Examples:\n  plumb lab heal")]
    Heal(Which),
    Replay(Replay),
    #[command(hide = true)]
    Node(InsideNode),
    #[command(hide = true)]
    Kubelet(Kubelet),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// Name of the lab
    #[arg(long, value_name = "LAB", default_value_t = LabName::usual())]
    pub(crate) name: LabName,
}

/// Creates a lab
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb lab up
  plumb lab up --mode crosssubnet --ipv6
  plumb lab up --name second --nodes 10 --store etcdv3 --ipv6
  plumb lab up --store kubernetes --kubernetes-bin \"$(cargo xtask kubernetes)\"")]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = Plan::NODES)]
    pub(crate) nodes: usize,
    /// Store for the records
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub(crate) store: StoreKind,
    /// How traffic gets from node to node
    #[arg(long, value_enum, default_value_t = Mode::Direct)]
    pub(crate) mode: Mode,
    /// How the nodes are connected [default: shared; subnets in mode crosssubnet]
    #[arg(long, value_enum)]
    pub(crate) topology: Option<Topology>,
    /// Give nodes and pods IPv6 addresses as well
    #[arg(long)]
    pub(crate) ipv6: bool,
    #[command(flatten)]
    pub(crate) making: Making,
}

/// What every command that makes a lab takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Making {
    /// Time between the two observations after which agents remove what has no owner, such as 5s or 2m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub(crate) grace: Duration,
    /// Directory that contains plumb, plumbd and plumb-cni [default: the directory of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Run no agents: the plugin carries out each call itself
    #[arg(long)]
    pub(crate) without_agents: bool,
    /// With --store kubernetes: directory that contains kube-apiserver [default: searched in PATH]
    #[arg(long, value_name = "DIR", env = "PLUMB_KUBERNETES_BIN", hide_env_values = true)]
    pub(crate) kubernetes_bin: Option<PathBuf>,
    /// With --store kubernetes: API group of Calico's kinds
    #[arg(long, value_name = "GROUP", default_value = "crd.projectcalico.org/v1")]
    pub(crate) api_group: ApiGroup,
}

/// Removes a lab, even one that was only partly created; succeeds if there is none
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb lab down
  plumb lab down --name second
  plumb lab down --all")]
pub(crate) struct Down {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Remove every lab on this machine
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
}

/// How to show all labs.
#[derive(Args, Clone, Debug)]
pub(crate) struct List {
    #[arg(short, long, value_enum, default_value_t = LabOutput::Text)]
    pub(crate) output: LabOutput,
}

/// Which lab to look at, and how to show it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shown {
    #[command(flatten)]
    pub(crate) which: Which,
    #[arg(short, long, value_enum, default_value_t = LabOutput::Text)]
    pub(crate) output: LabOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabOutput {
    Text,
    Json,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PodCommand {
    /// Starts pods on a node, and waits until they have a network
    #[command(after_help = "Examples:\n  plumb lab pod add node1 web-0 shop/db-0")]
    Add(PodsOnNode),
    /// Stops pods, and waits until nothing of them is left
    #[command(after_help = "Examples:\n  plumb lab pod del node1 web-0 shop/db-0")]
    Del(PodsOnNode),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct PodsOnNode {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Name of the node
    pub(crate) node: String,
    /// Pods; a pod without a namespace is in "default"
    #[arg(required = true, value_name = "[NAMESPACE/]NAME")]
    pub(crate) pods: Vec<PodKey>,
}

/// Runs a command on a node, or in the network namespace of a pod
///
/// On a node the command sees the node's own processes, directories and network. Its environment selects the lab's store.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb lab exec node1 -- plumb get wep -A
  plumb lab exec node1 -- ip route
  plumb lab exec node1/shop/db-0 -- ip address")]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) which: Which,
    /// A node, or a pod on a node
    #[arg(value_name = "NODE[/NAMESPACE/POD]")]
    pub(crate) place: String,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) words: Vec<OsString>,
}

/// Cuts the named nodes off from the others; they still reach each other
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb lab partition node1
  plumb lab partition node1 node2 --name second")]
pub(crate) struct Partition {
    #[command(flatten)]
    pub(crate) which: Which,
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,
}

/// Replays an outage in a temporary lab; exit code 0 only if the network survives it
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb lab replay stale-delete
  plumb lab replay leaked-endpoints --grace 5s
  plumb lab replay wrong-nic")]
pub(crate) struct Replay {
    #[arg(value_enum)]
    pub(crate) incident: Incident,
    /// Number of nodes [default: as in the incident]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    /// leaked-endpoints: number of endpoints that leak with their devices, over all nodes; another tenth leak without
    #[arg(long, value_name = "N")]
    pub(crate) leaks: Option<usize>,
    /// Store for the records
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub(crate) store: StoreKind,
    #[command(flatten)]
    pub(crate) making: Making,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Incident {
    /// A late DEL of an old sandbox while a new pod of the same name runs
    StaleDelete,
    /// The container runtime loses its sandboxes without a DEL: endpoints, addresses and devices are left behind
    LeakedEndpoints,
    /// The IPAM records no longer match reality
    IpamDrift,
    /// Several endpoints have the same address
    SharedAddress,
    /// A node announces an address that the others cannot reach
    WrongNic,
}

/// The first process of a node, started by `plumb lab up`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  (run by plumb lab up)")]
pub(crate) struct InsideNode {
    #[command(flatten)]
    pub(crate) which: Which,
    #[arg(long)]
    pub(crate) node: String,
}

/// The kubelet stand-in of a node, started by the node
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  (run by plumb lab up)")]
pub(crate) struct Kubelet {
    #[command(flatten)]
    pub(crate) which: Which,
    #[arg(long)]
    pub(crate) node: String,
    /// Forget all pods and sandboxes at start
    #[arg(long)]
    pub(crate) forget: bool,
}

/// A number with a unit: ms, s, m or h.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let problem = || format!("{text:?} is not a duration such as 500ms, 5s or 2m");
    let split = text.find(|character: char| !character.is_ascii_digit()).ok_or_else(problem)?;
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| problem())?;
    let milliseconds = match unit {
        "ms" => number.checked_mul(1),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => None,
    };
    milliseconds.map(Duration::from_millis).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_understood() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "s", "-1s", "1d", "1.5s", "99999999999999999999s", "18446744073709551615h", "5é"]
        {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
