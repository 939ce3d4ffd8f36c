//! `plumb doctor …` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Finds what is wrong with the network, why, and what would mend it
///
/// Looks at the records of the store or, with --from, at texts that were collected. What may be a pod that comes or goes just now is looked at twice. Nothing is
/// changed.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  # What is wrong, the most important first
  plumb doctor

  # Everything, for a script
  plumb doctor -o json --fail-on error

  # A page to look at and to send to a colleague
  plumb doctor -o html --out report.html

  # From whatever somebody pasted: output of kubectl, calicoctl, ip, etcdctl, logs
  plumb doctor --from evidence/ kubelet.log

  # The cluster as it is, beside what Kubernetes says
  kubectl get pods -A -o json | plumb doctor --live --from -

  # What is new and what is gone, again and again
  plumb doctor --watch

  # Whether packets arrive, too
  plumb doctor --probe

  # What a code means
  plumb doctor explain address-shared

Exit codes:
  0  nothing as bad as --fail-on was found
  1  something was
  2  it could not be looked; stderr says why"
)]
pub(crate) struct Doctor {
    #[command(subcommand)]
    pub(crate) command: Option<DoctorCommand>,
    /// Look at these files and folders instead of the store; what each is, is told by its content, also if it is packed with tar or gzip (- is stdin)
    #[arg(long, value_name = "DIR|FILE", num_args = 1.., conflicts_with = "watch")]
    pub(crate) from: Vec<PathBuf>,
    /// With --from: look at the store and the nodes as well, all of it as one cluster
    #[arg(long, requires = "from")]
    pub(crate) live: bool,
    #[command(flatten)]
    pub(crate) output: DoctorOutput,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// Have the nodes send a few packets (ICMP echo) to each other and to some pods, to see whether they arrive. Nothing is sent without it
    #[arg(long)]
    pub(crate) probe: bool,
    /// Look again and again, and tell what is new and what is gone
    #[arg(long)]
    pub(crate) watch: bool,
    /// With --watch: how long to wait between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = super::ipam::seconds)]
    pub(crate) every: f64,
    /// With --watch: end after this many looks
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) looks: Option<u32>,
    /// How long to wait before looking a second time at what may be coming or going, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
    /// What is younger than this is not judged: it may still be on its way in. In seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::ipam::seconds)]
    pub(crate) grace: f64,
    /// Say on stderr how long collecting and analysing took
    #[arg(long)]
    pub(crate) timings: bool,
}

/// Which node is looked at, besides the store.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ThisNode {
    /// The socket of a node's agent, or of several nodes' (--agent-socket again); /run/plumb/agent.sock if it is there
    /// and none is named
    #[arg(long, value_name = "PATH", env = "PLUMB_AGENT_SOCKETS", value_delimiter = ',')]
    pub(crate) agent_socket: Vec<PathBuf>,
    /// Without an agent: look at this machine itself, as the node of this name. Not needed where Calico has left
    /// its nodename file
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// The container runtime's socket; the first usual one that exists if not given
    #[arg(long, value_name = "SOCKET", env = "CONTAINER_RUNTIME_ENDPOINT")]
    pub(crate) cri_socket: Option<String>,
}

/// Collects the evidence of this node and of the store in one file, for plumb doctor --from
///
/// Secrets are masked, and only the owner can read the file. Everything is looked at twice, so that whoever reads it
/// can tell what is wrong from what just comes or goes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # Here, on a node
  plumb collect --out node-a.bundle

  # There, by a colleague; several bundles are looked at together
  plumb doctor --from node-a.bundle node-b.bundle")]
pub(crate) struct Collect {
    /// Where to; - is stdout. plumb-TIME.bundle if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// How long to wait before the second look, in seconds; 0 for only one
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
}

/// How findings are told.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorOutput {
    /// text (for people), json (docs/doctor.schema.json describes it) or html (one page that needs nothing else)
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) output: Format,
    /// How bad a finding must be for exit code 1
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = FailOn::Warning)]
    pub(crate) fail_on: FailOn,
    /// Write it to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// With text: show every finding and all its evidence, not the first few of each sort
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

/// Rebuilds the history of sandboxes from logs, and names stale DELs, retry loops and replaced pods
///
/// Understands logs of kubelets (klog, old and new), of containerd and of Calico's plugin and controllers, as files or as journald
/// prints them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb doctor logs kubelet.log
  journalctl -u kubelet | plumb doctor logs -
  plumb doctor logs /var/log/calico/cni -o json
  plumb doctor logs kubelet.log kubelet.log.1.gz

Exit codes:
  0  nothing went wrong in these logs
  1  something did
  2  they could not be read, or hold no log")]
pub(crate) struct Logs {
    /// Files, folders, or - for stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) output: DoctorOutput,
}

/// Says what a finding's code means, and what to do; without a code, lists all
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb doctor explain
  plumb doctor explain pool-overlap")]
pub(crate) struct Explain {
    /// The code, as findings show it
    pub(crate) code: Option<String>,
    /// Print docs/findings.md, the page of all codes
    #[arg(long, hide = true, conflicts_with = "code")]
    pub(crate) markdown: bool,
}
