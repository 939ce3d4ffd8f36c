//! `plumb cluster diags`: what `plumb collect` collects, under calicoctl's name; and why `plumb convert` does nothing.

use crate::cli::Global;
use crate::cli::cluster::{Cluster, ClusterCommand, Diags};
use crate::cli::doctor::{Collect, ThisNode};
use crate::commands::doctor;
use crate::failure::{Failure, Failures};

pub(crate) async fn run(global: &Global, cluster: &Cluster) -> Result<(), Failures> {
    match &cluster.command {
        ClusterCommand::Diags(diags) => collect(global, diags).await,
    }
}

async fn collect(global: &Global, diags: &Diags) -> Result<(), Failures> {
    let out = diags.out.clone().unwrap_or_else(|| {
        format!("calico-diagnostics-{}.bundle", jiff::Timestamp::now().strftime("%Y%m%d_%H%M%S")).into()
    });
    let collect = Collect { out: Some(out), this_node: ThisNode::default(), settle: 5.0 };
    doctor::collect(global, &collect).await
}

/// calicoctl itself has given the command up.
pub(crate) fn convert() -> Result<(), Failures> {
    Err(Failure::new("manifests of the API before projectcalico.org/v3 are not converted")
        .hint("convert them with calicoctl v3.31 or older, and apply the result with plumb")
        .in_calicoctl("unknown command \"convert\" for \"calicoctl\"")
        .into())
}
