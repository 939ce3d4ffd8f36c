//! `plumbd`, the program on every node: the node's agent (`plumbd node`), and the one-shot that serves a single CNI call without an
//! agent (`plumbd cni`). It also has the cluster's controller (`plumbd controller`), which is a crate of its own.
//!
//! A library so that tests and the fuzz target link the same code. It offers only what they and `main` call: the compiler still finds what
//! nobody uses.

#![expect(unexpected_cfgs, reason = "cargo-fuzz sets `fuzzing`, which cargo does not know")]

mod address;
mod between;
mod bgp;
mod bootstrap;
mod collect;
mod del_queue;
mod endpoints;
mod enforce;
mod failpoint;
mod felix;
mod files;
mod findings;
mod fixes;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guard;
mod health;
mod journal;
mod log;
mod namespaces;
mod node;
mod node_status;
mod pause;
mod policies;
mod reconcile;
mod recovery;
mod repair;
mod runtime;
mod sandbox_locks;
mod services;
mod state;
mod store_health;
mod variables;
mod verbs;
mod witness;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use controller::ControllerArguments;
use node::NodeArguments;
use store::follow;
use wire::Role;

/// The part of Plumbline that runs on every node.
#[derive(Debug, Parser)]
#[command(name = "plumbd", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one CNI call: the verb from the environment, the network configuration from stdin.
    ///
    /// `plumb-cni` runs this if its network configuration names no agent. The result or a CNI error goes to stdout, the log to
    /// stderr.
    #[command(after_help = CNI_EXAMPLES)]
    Cni {
        /// Role of the plugin: `network`, or `ipam` for a plugin that only needs addresses.
        #[arg(long, default_value = "network", value_parser = parse_role)]
        role: Role,
        /// Serve no call: test whether the network configuration on stdin leads to a store that is ready (`plumb-cni -t`).
        #[arg(long)]
        test: bool,
    },
    /// Run the agent of this node: serves the CNI plugin and keeps the kernel in line with the records.
    ///
    /// The environment selects the store: DATASTORE_TYPE, SQLITE_PATH, ETCD_ENDPOINTS and so on. On an empty store the agent creates the
    /// records that a first Calico node creates, with default pools from CALICO_IPV4POOL_* and CALICO_IPV6POOL_*. Pods stay connected
    /// when it stops.
    #[command(after_help = NODE_EXAMPLES)]
    Node(Box<NodeArguments>),
    /// Run a controller of the cluster: removes addresses, handles, affinities and blocks that have no owner.
    ///
    /// Any number of replicas may run: one leads, and the others stand by. The environment selects the store, as for `plumbd node`. Whatever is
    /// removed was found without an owner in two observations, and `plumb repair undo` restores it.
    #[command(after_help = CONTROLLER_EXAMPLES)]
    Controller(Box<ControllerArguments>),
    /// List the points at which PLUMB_FAILPOINT can abort or pause this program, for tests.
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
  plumbd cni --test < netconf.json

A netconf.json for the SQLite store:
  {\"cniVersion\": \"1.0.0\", \"name\": \"k8s-pod-network\", \"type\": \"plumb-cni\",
   \"datastore_type\": \"sqlite\", \"sqlite_path\": \"/var/lib/plumb/plumb.db\"}";

const NODE_EXAMPLES: &str = "\
Examples:
  plumbd node
  DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://10.0.0.1:2379 plumbd node --node-name worker-1";

const CONTROLLER_EXAMPLES: &str = "\
Examples:
  DATASTORE_TYPE=kubernetes plumbd controller
  ETCD_ENDPOINTS=http://10.0.0.1:2379 plumbd controller --kubeconfig /etc/plumb/controller.kubeconfig
  kubectl -n kube-system scale deployment calico-kube-controllers --replicas 0 && plumbd controller";

/// Runs what the command line asks for.
pub fn run() -> ExitCode {
    host::use_built_in_resolver();
    match Arguments::parse().command {
        Command::Cni { test: true, .. } => verbs::run_test(),
        Command::Cni { role, .. } => verbs::run(role),
        Command::Node(arguments) => node::run(*arguments),
        Command::Controller(arguments) => control(*arguments),
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

fn control(arguments: ControllerArguments) -> ExitCode {
    log::start(&arguments.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(controller::run(arguments));
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse_role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "must be network or ipam".to_owned())
}
