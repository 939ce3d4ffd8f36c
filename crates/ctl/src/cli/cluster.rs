//! `plumb cluster`: what can be typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Collects diagnostics of the cluster
#[derive(Args, Debug)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    Diags(Diags),
}

/// Collects the evidence of the store and of this node in one file
///
/// The file is the same as that of `plumb collect`: `plumb doctor --from FILE` reads it, and it contains no secrets. It
/// has no logs of pods; run plumb collect on the nodes in question as well.
#[derive(Args, Debug)]
pub(crate) struct Diags {
    /// File to write [default: a new file in this directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Accepted for compatibility with calicoctl, which collects logs of pods
    #[arg(long, value_name = "DURATION", hide = true, value_parser = since)]
    pub(crate) since: Option<String>,
    /// The same
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_logs: Option<u32>,
    /// The same
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_parallelism: Option<u32>,
    /// The same
    #[arg(long, value_name = "NODES", hide = true)]
    pub(crate) focus_nodes: Option<String>,
    /// The same
    #[arg(long, hide = true)]
    pub(crate) skip_temp_dir_cleanup: bool,
}

fn since(text: &str) -> Result<String, String> {
    let number = text.strip_suffix(['s', 'm', 'h']).unwrap_or_default();
    match !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("use a number with s, m or h, such as 10s, 5m or 1h".to_owned()),
    }
}
