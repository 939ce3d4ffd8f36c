//! `plumbd`: what runs on a node. So far the one-shot that serves a container runtime's call.

mod cni;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The node's side of Plumbline.
#[derive(Debug, Parser)]
#[command(name = "plumbd", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one CNI call: the verb comes in the environment, the network configuration on stdin.
    ///
    /// `plumb-cni` runs this when its network configuration names no agent. The answer, or a CNI error, goes to
    /// stdout; the log goes to stderr.
    #[command(after_help = CNI_EXAMPLES)]
    Cni,
    /// Print the version.
    Version,
}

const EXAMPLES: &str = "\
Examples:
  plumbd version
  CNI_COMMAND=VERSION plumbd cni < /etc/cni/net.d/10-plumb.conf";

const CNI_EXAMPLES: &str = "\
Examples:
  CNI_COMMAND=VERSION plumbd cni < netconf.json
  CNI_COMMAND=ADD CNI_CONTAINERID=0f3a CNI_NETNS=/run/netns/web CNI_IFNAME=eth0 plumbd cni < netconf.json
  CNI_COMMAND=DEL CNI_CONTAINERID=0f3a CNI_IFNAME=eth0 plumbd cni < netconf.json

A netconf.json for the SQLite store:
  {\"cniVersion\": \"1.0.0\", \"name\": \"k8s-pod-network\", \"type\": \"plumb-cni\",
   \"datastore_type\": \"sqlite\", \"sqlite_path\": \"/var/lib/plumb/plumb.db\"}";

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Cni => cni::run(),
        Command::Version => {
            println!("plumbd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}
