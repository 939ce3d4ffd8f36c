//! `plumbd`: what runs on a node. So far the one-shot that serves a container runtime's call.

#![expect(unexpected_cfgs, reason = "cargo-fuzz sets `fuzzing`, which cargo does not know")]
#![cfg_attr(fuzzing, no_main)]

mod address;
mod between;
mod bgp;
mod bootstrap;
mod cni;
mod collect;
mod endpoints;
mod failpoint;
mod felix;
mod fence;
mod files;
mod findings;
mod follow;
#[cfg(fuzzing)]
mod fuzzing;
mod guard;
mod health;
mod journal;
mod mends;
mod node;
mod node_status;
mod policies;
mod queue;
mod reconcile;
mod repair;
mod runtime;
mod state;
mod store_health;
mod variables;
mod witness;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cni::Role;
use node::NodeArguments;

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
    Cni {
        /// As what to serve it: `network`, or `ipam` for a plugin that only wants addresses.
        #[arg(long, default_value = "network", value_parser = parse_role)]
        role: Role,
    },
    /// Run the agent of this node: serves the CNI plugin, and keeps the kernel as the records say.
    ///
    /// The store is chosen by the environment: DATASTORE_TYPE, SQLITE_PATH, ETCD_ENDPOINTS and so on. On an empty
    /// store it makes what a first Calico node makes, the default pools from CALICO_IPV4POOL_* and
    /// CALICO_IPV6POOL_*. Stopping it leaves every pod connected.
    #[command(after_help = NODE_EXAMPLES)]
    Node(Box<NodeArguments>),
    /// List the points at which PLUMB_FAILPOINT can end or hold this program, for tests.
    #[command(hide = true)]
    Failpoints,
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

const NODE_EXAMPLES: &str = "\
Examples:
  plumbd node
  DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://10.0.0.1:2379 plumbd node --node-name worker-1";

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Cni { role } => cni::run(role),
        Command::Node(arguments) => node::run(*arguments),
        Command::Failpoints => {
            for point in failpoint::Point::ALL {
                println!("{}", point.name());
            }
            ExitCode::SUCCESS
        }
        Command::Version => {
            println!("plumbd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "it must be network or ipam".to_owned())
}
