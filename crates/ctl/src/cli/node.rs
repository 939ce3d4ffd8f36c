//! `plumb node`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Looks at nodes: their agent, their BGP sessions, their kernel
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb node status
  plumb node status worker-3
  plumb node checksystem
  plumb node diags --out node1.bundle")]
pub(crate) struct Node {
    #[command(subcommand)]
    pub(crate) command: NodeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    Status(Status),
    Checksystem(Checksystem),
    Diags(Diags),
}

/// Shows how a node is: address, BGP sessions, routes, blocks, tunnel
///
/// Of this node, from its agent and from BIRD (as root). Of any other by its name, from the CalicoNodeStatus records that its agent
/// keeps; --watch-period makes such a record if there is none.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # This node, as root
  plumb node status

  # Another node, without being on it
  plumb node status worker-3

  # Have worker-3's agent tell about itself every 10 seconds from now on
  plumb node status worker-3 --watch-period 10

Exit code 1: a session is down, or the node cannot be asked.")]
pub(crate) struct Status {
    /// Another node than this one
    pub(crate) node: Option<String>,
    /// Where this node's agent listens
    #[arg(long, value_name = "PATH", default_value = gather::agent::AGENT_SOCKET, conflicts_with = "node")]
    pub(crate) agent_socket: PathBuf,
    /// BIRD's control socket [default: the usual ones]
    #[arg(long, value_name = "PATH", conflicts_with = "node")]
    pub(crate) bird_socket: Option<PathBuf>,
    /// Make the record by which the node's agent tells about itself this often, if there is none
    #[arg(long, value_name = "SECONDS", requires = "node", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) watch_period: Option<u32>,
}

/// Checks whether this machine's kernel can carry a pod network
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb node checksystem

  # A kernel that is not the running one
  plumb node checksystem --kernel-config /boot/config-6.12.0-amd64")]
pub(crate) struct Checksystem {
    /// The kernel's configuration, if it is not where distributions put it
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) kernel_config: Option<PathBuf>,
}

/// Gathers what is needed to find out what is wrong with this node, in one file
///
/// The same file as `plumb collect` makes: `plumb doctor --from FILE` reads it, and secrets are never in it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb node diags
  plumb node diags --out node1.bundle")]
pub(crate) struct Diags {
    /// Where to write it [default: a new file in the folder for temporary files]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Accepted for calicoctl's sake: logs are collected by the journal
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub(crate) log_dir: Option<PathBuf>,
}
