//! `plumb ipam …` on the command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::DryRun;

/// Inspects and fixes IP address allocation
#[derive(Args, Debug)]
pub(crate) struct Ipam {
    #[command(subcommand)]
    pub(crate) command: IpamCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    Show(IpamShow),
    Check(IpamCheck),
    Release(IpamRelease),
    Configure(IpamConfigure),
    Split(IpamSplit),
}

/// Shows the usage of IP pools, or who uses an address
#[derive(Args, Debug)]
pub(crate) struct IpamShow {
    /// Show only this address: whether it is in use, and by what
    #[arg(long, value_name = "IP", group = "subject")]
    pub(crate) ip: Option<IpAddr>,
    /// Show the blocks of each pool as well
    #[arg(long, group = "subject")]
    pub(crate) show_blocks: bool,
    /// Show addresses that are used by a different node from the one that owns their block
    #[arg(long, group = "subject")]
    pub(crate) show_borrowed: bool,
    /// Show the IPAM settings
    #[arg(long, group = "subject")]
    pub(crate) show_configuration: bool,
    /// ps (tables or text), json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "ps")]
    pub(crate) output: String,
}

/// Checks that blocks, handles, affinities, nodes and endpoints agree
///
/// What disagrees is observed a second time before it is reported, so pods that start or stop during the check are not
/// reported. Nothing is changed.
#[derive(Args, Debug)]
pub(crate) struct IpamCheck {
    /// List every address that is checked
    #[arg(long)]
    pub(crate) show_all_ips: bool,
    /// List every problem instead of only counting them
    #[arg(long)]
    pub(crate) show_problem_ips: bool,
    /// Write a report in calicoctl's format to this file; with - it goes to stdout, and the text to stderr
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Accepted for compatibility with calicoctl, which reads Kubernetes services with it; plumb does not read them yet
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How long to wait before the second observation of what disagrees, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) settle: f64,
    /// Allocations younger than this are not judged: their pod may still be starting. In seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) grace: f64,
    /// Print on stderr how long loading and comparing took
    #[arg(long)]
    pub(crate) timings: bool,
}

/// Releases addresses that are no longer in use
///
/// Either the addresses given with --ip, or those that every given report of `plumb ipam check` (or calicoctl ipam
/// check) lists as leaked. An address from a report is released only if the same handle still holds it since the same
/// write, so an address that was allocated again since then is left alone. An address that an endpoint or a tunnel uses
/// is never released by a report, and with --ip only if --force is given.
#[derive(Args, Debug)]
pub(crate) struct IpamRelease {
    /// Release these addresses; may be repeated, or a list separated by commas
    #[arg(long, value_name = "IP", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(required_unless_present = "from_report", conflicts_with = "from_report")]
    pub(crate) ip: Vec<IpAddr>,
    /// Release what this report lists as leaked; with several reports, what all of them list
    #[arg(long, value_name = "FILE", value_delimiter = ',', action = ArgAction::Append)]
    pub(crate) from_report: Vec<PathBuf>,
    /// With reports: release even if the datastore is not locked or another version wrote the reports. With --ip:
    /// release even if the address is in use
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Changes the IPAM settings
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct IpamConfigure {
    /// Whether a node may use only addresses of its own blocks
    #[arg(long, value_name = "BOOL", value_parser = boolean, group = "setting")]
    pub(crate) strictaffinity: Option<bool>,
    /// Maximum number of blocks of each IP version that a node may own; 0 stands for the built-in limit of 20
    #[arg(long, value_name = "N", visible_alias = "maxblocks", group = "setting")]
    pub(crate) max_blocks_per_host: Option<u32>,
    /// Whether KubeVirt virtual machines keep their address
    #[arg(long, value_enum, value_name = "WORD", group = "setting")]
    pub(crate) kubevirt_ip_persistence: Option<Persistence>,
    /// How long a released address is not allocated again; 0 to 1200. Use it only if every Calico release that writes
    /// to this store supports it
    #[arg(long, value_name = "SECONDS", group = "setting")]
    pub(crate) ip_cooldown_seconds: Option<u32>,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// calicoctl's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Persistence {
    Enabled,
    Disabled,
}

impl Persistence {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Persistence::Enabled => "Enabled",
            Persistence::Disabled => "Disabled",
        }
    }
}

/// Splits a pool into smaller pools of equal size
///
/// Addresses, blocks and affinities are not changed. The datastore must be locked, so that no addresses are allocated
/// at the same time. The new pools are named split-POOL-0, split-POOL-1 and so on; change whatever refers to the old
/// pool by name.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("pool").required(true))]
pub(crate) struct IpamSplit {
    /// Number of new pools: 2, 4, 8 …
    pub(crate) number: u32,
    /// CIDR of the pool
    #[arg(long, value_name = "CIDR", group = "pool")]
    pub(crate) cidr: Option<String>,
    /// Name of the pool
    #[arg(long, value_name = "POOL", group = "pool")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// What Go's `strconv.ParseBool` takes, as calicoctl does.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    number.ok_or_else(|| "must be a number from 0 to 3600".to_owned())
}
