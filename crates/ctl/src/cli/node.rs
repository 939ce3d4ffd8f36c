//! `plumb node`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Shows the status of nodes, checks their kernel, and collects diagnostics
#[derive(Args, Debug)]
pub(crate) struct Node {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    Status(Status),
    Checksystem(Checksystem),
    Diags(Diags),
    Run(Run),
}

/// Says how a node is started
///
/// calicoctl starts calico/node in a container of Docker. The agent of Plumbline runs as a service instead: plumb
/// install sets it up.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// What calicoctl's command takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD", hide = true)]
    pub(crate) words: Vec<std::ffi::OsString>,
}

/// Shows the status of a node: address, BGP sessions, routes, blocks, tunnel
///
/// For this node the status comes from its agent and from BIRD (needs root). For another node it comes from the CalicoNodeStatus record that
/// the node's agent updates; --watch-period creates that record if it does not exist.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Name of another node [default: this node]
    pub(crate) node: Option<String>,
    /// Socket of this node's agent
    #[arg(long, value_name = "PATH", default_value = wire::AGENT_SOCKET, conflicts_with = "node")]
    pub(crate) agent_socket: PathBuf,
    /// BIRD's control socket [default: the usual ones]
    #[arg(long, value_name = "PATH", conflicts_with = "node")]
    pub(crate) bird_socket: Option<PathBuf>,
    /// If the node has no CalicoNodeStatus record, create one that its agent updates at this interval
    #[arg(long, value_name = "SECONDS", requires = "node", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) watch_period: Option<u32>,
}

/// Checks whether this machine's kernel has what a pod network needs
#[derive(Args, Debug)]
pub(crate) struct Checksystem {
    /// File with the kernel configuration [default: the usual places of distributions]
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) kernel_config: Option<PathBuf>,
}

/// Collects diagnostics of this node in one file
///
/// The file is the same as that of `plumb collect`: `plumb doctor --from FILE` reads it, and it contains no secrets.
#[derive(Args, Debug)]
pub(crate) struct Diags {
    /// File to write [default: a new file in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Accepted for compatibility with calicoctl: logs are read from the journal
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) log_dir: Option<PathBuf>,
}
