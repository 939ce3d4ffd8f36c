//! `plumb doctor …` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::codes::CodeParser;

/// Finds what is wrong with the network, why, and how to fix it
///
/// Checks the records of the store and the node or, with --from, collected evidence. What may be a pod starting or stopping is observed twice. Nothing is
/// changed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Doctor {
    #[command(subcommand)]
    pub(crate) command: Option<DoctorCommand>,
    /// Check these files and directories instead of the store. The kind of each is detected from its content, also inside tar and gzip archives (- is stdin)
    #[arg(long, value_name = "DIR|FILE", num_args = 1.., conflicts_with = "watch")]
    pub(crate) from: Vec<PathBuf>,
    /// With --from: check the store and the nodes as well, all as one cluster
    #[arg(long, requires = "from")]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) output: DoctorOutput,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// Have the nodes send a few packets (ICMP echo) to each other and to some pods, to test whether they arrive. Without it nothing is sent
    #[arg(long)]
    pub(crate) probe: bool,
    /// Run the checks repeatedly, and report which findings appear and disappear
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch: time between two observations, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = super::ipam::seconds)]
    pub(crate) every: f64,
    /// With --watch: end after this many observations
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) looks: Option<u32>,
    /// How long to wait before a second observation of what may be a pod starting or stopping, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
    /// Records younger than this are not judged: their pod may still be starting. In seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::ipam::seconds)]
    pub(crate) grace: f64,
    /// Print on stderr how long collecting and analysing took
    #[arg(long)]
    pub(crate) timings: bool,
}

/// What is observed besides the store.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ThisNode {
    /// Socket of a node's agent; may be repeated for several nodes [default: /run/plumb/agent.sock if it exists]
    #[arg(long, value_name = "PATH", env = "PLUMB_AGENT_SOCKETS", value_delimiter = ',')]
    pub(crate) agent_socket: Vec<PathBuf>,
    /// Without an agent: observe this machine directly, as the node with this name. Not needed where Calico's nodename
    /// file exists
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Socket of the container runtime [default: the first of the usual ones that exists]
    #[arg(long, value_name = "SOCKET", env = "CONTAINER_RUNTIME_ENDPOINT")]
    pub(crate) cri_socket: Option<String>,
    /// If the store is not Kubernetes: ask this cluster for its pods and nodes, too. A Kubernetes store is always asked
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Collects the evidence of this node and of the store in one file, for plumb doctor --from
///
/// Secrets are masked, and only the owner can read the file. Everything is observed twice, so that the doctor can tell
/// faults from pods that were starting or stopping.
#[derive(Args, Debug)]
pub(crate) struct Collect {
    /// File to write; - is stdout [default: plumb-TIME.bundle]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// How long to wait before the second observation, in seconds; 0 for a single one
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
}

/// How findings are told.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorOutput {
    /// text, json (docs/doctor.schema.json describes it) or html (one self-contained page)
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) output: Format,
    /// Lowest severity of a finding that gives exit code 1
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = FailOn::Warning)]
    pub(crate) fail_on: FailOn,
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// With text: show every finding with all its evidence, not only the first few of each kind
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Error,
    Warning,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    Explain(Explain),
    Logs(Logs),
}

/// Rebuilds the history of sandboxes from logs, and lists stale DELs, retry loops and replaced pods
///
/// Reads logs of the kubelet (klog, text and structured), of containerd and of Calico's plugin and controllers, as files or as
/// printed by journalctl.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Files, directories, or - for stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: DoctorOutput,
}

/// Explains a finding's code and what to do about it; without a code, lists all
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The code, as shown in findings
    #[arg(value_parser = CodeParser, hide_possible_values = true)]
    pub(crate) code: Option<String>,
    /// Print docs/findings.md, the page of all codes
    #[arg(long, hide = true, conflicts_with = "code")]
    pub(crate) markdown: bool,
}
