//! `plumb datastore copy`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::DryRun;

/// Copies all records of one store to another
///
/// STORE is sqlite:PATH, etcdv3:ENDPOINT,… or kubernetes[:KUBECONFIG[#CONTEXT]]. What it does not say, such as
/// certificates and passwords, comes from --from-config or --to-config, and otherwise from where plumb always looks.
///
/// The source must be locked (plumb datastore migrate lock). The destination is locked and marked before its first
/// record is written, and becomes ready after its last one was read back. A copy that was interrupted continues when
/// the same command is given again.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// The store to read
    #[arg(long, value_name = "STORE", required_unless_present = "from_config")]
    pub(crate) from: Option<String>,
    /// The store to write
    #[arg(long, value_name = "STORE", required_unless_present = "to_config")]
    pub(crate) to: Option<String>,
    /// Configuration file for the store to read, in calicoctl's format
    #[arg(long, value_name = "FILE")]
    pub(crate) from_config: Option<PathBuf>,
    /// Configuration file for the store to write
    #[arg(long, value_name = "FILE")]
    pub(crate) to_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
    /// Copy although the source is not locked; what changes there during the copy is not carried
    #[arg(long)]
    pub(crate) while_unlocked: bool,
    /// Copy the rest if some records cannot be carried
    #[arg(long)]
    pub(crate) partial: bool,
    /// What to do about records of the destination that the source does not have, or has otherwise
    #[arg(long, value_enum, value_name = "RULE", default_value_t = ExistingRule::Refuse)]
    pub(crate) existing: ExistingRule,
    /// Leave the destination locked at the end
    #[arg(long)]
    pub(crate) keep_locked: bool,
    /// text (for people) or json
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = CopyFormat::Text)]
    pub(crate) output: CopyFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExistingRule {
    /// Copy nothing
    Refuse,
    /// Leave them as they are; IPAM records and endpoints are refused all the same
    Keep,
    /// Replace and delete them, so that the destination becomes what the source is
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CopyFormat {
    Text,
    Json,
}
