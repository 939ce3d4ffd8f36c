//! `plumb ipam …` on the command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand, ValueEnum};

use super::DryRun;

/// Looks at and puts in order how addresses are given out
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb ipam show
  plumb ipam check")]
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

/// Shows how full the pools are, or whose an address is
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # How full every pool is
  plumb ipam show

  # And every block of it
  plumb ipam show --show-blocks

  # Whose this address is
  plumb ipam show --ip=10.244.7.66

  # Addresses that a node took from another node's block
  plumb ipam show --show-borrowed

  # The settings that allocation works by, for a script
  plumb ipam show --show-configuration -o json")]
pub(crate) struct IpamShow {
    /// Only this address: whether it is in use, and by whom
    #[arg(long, value_name = "IP", group = "subject")]
    pub(crate) ip: Option<IpAddr>,
    /// The blocks of each pool too
    #[arg(long, group = "subject")]
    pub(crate) show_blocks: bool,
    /// Addresses that are used by another node than their block's
    #[arg(long, group = "subject")]
    pub(crate) show_borrowed: bool,
    /// The settings of address management
    #[arg(long, group = "subject")]
    pub(crate) show_configuration: bool,
    /// ps (a table, or text), json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "ps")]
    pub(crate) output: String,
}

/// Checks that blocks, handles, affinities, nodes and endpoints tell one story
///
/// What disagrees is looked at again before it is told, so that pods that come and go meanwhile are no problem.
/// Nothing is changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # Counts of everything that is wrong
  plumb ipam check

  # Every problem by name, and a report for plumb ipam release
  plumb ipam check --show-problem-ips -o report.json

Exit codes:
  0  everything agrees
  1  there are problems
  2  it could not be checked; stderr says why")]
pub(crate) struct IpamCheck {
    /// Name every address that is looked at
    #[arg(long)]
    pub(crate) show_all_ips: bool,
    /// Name every problem instead of counting them only
    #[arg(long)]
    pub(crate) show_problem_ips: bool,
    /// Write a report, in calicoctl's format, to this file; - is stdout, and the text then goes to stderr
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Accepted for calicoctl's sake, which reads Kubernetes' services by it; plumb does not read them yet
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How long to wait before looking again at what disagrees, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) settle: f64,
    /// How young an allocation may be and not be judged, in seconds: its pod may still be on its way in
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) grace: f64,
    /// Say on stderr how long loading and comparing took
    #[arg(long)]
    pub(crate) timings: bool,
}

/// Releases addresses that nobody uses any more
///
/// By address, or all that every one of some reports of `plumb ipam check` (or calicoctl ipam check) calls leaked. An
/// address of a report is only released if it is still held by the same handle since the same write: one that was
/// given anew since is left alone. An address that an endpoint or a tunnel uses is never released by report, and by
/// --ip only with --force.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # One address, or several
  plumb ipam release --ip=10.244.7.66
  plumb ipam release --ip=10.244.7.66,10.244.7.67

  # All that was leaked an hour ago and still is
  plumb ipam check -o before.json; sleep 3600
  plumb datastore migrate lock
  plumb ipam check -o now.json
  plumb ipam release --from-report=before.json --from-report=now.json
  plumb datastore migrate unlock")]
pub(crate) struct IpamRelease {
    /// Release these addresses; may be given several times, or with commas
    #[arg(long, value_name = "IP", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(required_unless_present = "from_report", conflicts_with = "from_report")]
    pub(crate) ip: Vec<IpAddr>,
    /// Release what this report calls leaked; of several reports, what all of them do
    #[arg(long, value_name = "FILE", value_delimiter = ',', action = ArgAction::Append)]
    pub(crate) from_report: Vec<PathBuf>,
    /// With reports: although the datastore is not locked, or another version wrote them. With --ip: although the
    /// address is in use
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Changes the settings of address management
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # Nodes use addresses of their own blocks only, at most four blocks each
  plumb ipam configure --strictaffinity=true --max-blocks-per-host=4

  # Ten minutes before an address is used again
  plumb ipam configure --ip-cooldown-seconds=600")]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct IpamConfigure {
    /// Whether a node may only use addresses of its own blocks
    #[arg(long, value_name = "BOOL", value_parser = boolean, group = "setting")]
    pub(crate) strictaffinity: Option<bool>,
    /// How many blocks of each IP version a node may have; 0 is the built-in limit of 20
    #[arg(long, value_name = "N", visible_alias = "maxblocks", group = "setting")]
    pub(crate) max_blocks_per_host: Option<u32>,
    /// Whether virtual machines of KubeVirt keep their address
    #[arg(long, value_enum, value_name = "WORD", group = "setting")]
    pub(crate) kubevirt_ip_persistence: Option<Persistence>,
    /// How long a released address is not given again; 0 to 1200. Only if every release of Calico that writes to this
    /// store knows it
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
/// Addresses, blocks and affinities stay as they are. The datastore must be locked, so that nobody takes addresses
/// meanwhile. The new pools are called split-POOL-0, split-POOL-1 and so on; what names the old pool must be changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb datastore migrate lock
  plumb ipam split 4 --name=default-ipv4-ippool
  plumb ipam split --cidr=10.244.0.0/16 4
  plumb datastore migrate unlock")]
#[command(group = clap::ArgGroup::new("pool").required(true))]
pub(crate) struct IpamSplit {
    /// Into how many pools: 2, 4, 8 …
    pub(crate) number: u32,
    /// The network of the pool
    #[arg(long, value_name = "CIDR", group = "pool")]
    pub(crate) cidr: Option<String>,
    /// The name of the pool
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
