//! What can be typed after `plumb status`.

use clap::{Args, ValueEnum};

use super::doctor::ThisNode;

/// Shows whether the network works: store, agents, BGP sessions, pools, findings, what is not enforced
///
/// Runs the doctor's checks on the store's records and on this node, as far as each can be read. Nothing is changed.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Wait until the network works, for at most this many seconds
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "300", require_equals = true)]
    #[arg(value_parser = super::ipam::seconds)]
    pub(crate) wait: Option<f64>,
    /// text or json
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) output: Format,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// How long to wait before a second observation of what may be a pod starting or stopping, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}
