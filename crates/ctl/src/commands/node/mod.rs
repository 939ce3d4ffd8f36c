//! `plumb node`: one node at a time.

pub(super) mod checksystem;
mod recorded;
mod status;
mod tables;

use crate::cli::Global;
use crate::cli::doctor::{Collect, ThisNode};
use crate::cli::node::{Diags, Node, NodeCommand};
use crate::commands::doctor;
use crate::failure::{Failure, Failures};

pub(crate) async fn run(global: &Global, node: &Node) -> Result<(), Failures> {
    match &node.command {
        NodeCommand::Status(status) => match &status.node {
            Some(name) => recorded::run(global, name, status.watch_period).await,
            None => status::run(global, status).await,
        },
        NodeCommand::Checksystem(wanted) => checksystem::run(wanted),
        NodeCommand::Diags(diags) => collect(global, diags).await,
        NodeCommand::Run(_) => Err(Failure::new("nodes are not run as containers of Docker")
            .hint("plumb install sets up the agent as a service of this node; on Kubernetes it runs as a DaemonSet")
            .in_calicoctl("calico/node is not run by plumb: set up the agent of this node with plumb install")
            .into()),
    }
}

/// What calicoctl puts into an archive of texts, as one bundle that the doctor reads.
async fn collect(global: &Global, diags: &Diags) -> Result<(), Failures> {
    let out = diags.out.clone().unwrap_or_else(|| {
        let name = format!("diags-{}.bundle", jiff::Timestamp::now().strftime("%Y%m%d_%H%M%S"));
        std::env::temp_dir().join(name)
    });
    let collect = Collect { out: Some(out), this_node: ThisNode::default(), settle: 5.0 };
    doctor::collect(global, &collect).await
}
