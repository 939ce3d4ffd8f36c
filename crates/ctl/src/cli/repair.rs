//! `plumb repair …` on the command line.

use std::path::PathBuf;

use clap::Args;

use super::doctor::ThisNode;

/// Plans and does what would mend the network; undo takes it back
///
/// Looks as plumb doctor does, and shows what would be done: nothing is changed without --apply. Everything that is done is compared with what is there right before,
/// and can be taken back. Pods can start and stop meanwhile. What is taken away must look gone twice, some time apart, by two witnesses, with none against it.
#[derive(Args, Debug)]
#[command(after_help = "\
Scopes:
  (none)              everything that was found
  ipam                blocks, handles, affinities
  endpoints           endpoints, and what pods have in the kernel
  node NAME           one node; says also that it does not come back, if its record is gone
  node NAME gone      says so although its record is there, which then goes, too
  finding CODE…       findings with these codes

Other words:
  undo ID             takes a repair back; what has changed since is left alone and named
  resume ID           goes on with one that was stopped or killed
  history             lists repairs
  show ID             what a repair has done

Examples:
  # What would be done
  plumb repair

  # Do it
  plumb repair ipam --apply

  # Let a colleague look at it first, and do exactly that
  plumb repair --plan repair.json
  plumb repair --plan repair.json --apply

  # Blocks and addresses of a machine that is gone for good
  plumb repair node worker-7 gone --apply

  # With what Kubernetes says, and the agents of three nodes
  kubectl get pods -A -o json | plumb repair --from - --agent-socket a.sock --agent-socket b.sock

  # No, not like that
  plumb repair history
  plumb repair undo 20261115-101500-3f2a

Exit codes:
  0  the plan was shown, or done as planned
  1  not all of it could be done as planned; stderr says what and why
  2  it could not be looked, or the command line makes no sense")]
pub(crate) struct Repair {
    /// A scope or another word, see below
    #[arg(value_name = "SCOPE")]
    pub(crate) words: Vec<String>,
    /// Write the plan to this file; with --apply: do exactly what the file says, as far as it still holds
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Do it
    #[arg(long)]
    pub(crate) apply: bool,
    /// Only show what would be done; this is the default
    #[arg(long, conflicts_with = "apply")]
    pub(crate) dry_run: bool,
    /// After a step that does not go, try those that depend on it as well; what does not depend on it is done anyway
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Offer again what failed in several repairs in a row, instead of leaving it to you
    #[arg(long)]
    pub(crate) again: bool,
    /// One step per commit: slower, and easier to follow
    #[arg(long)]
    pub(crate) one_by_one: bool,
    /// How far apart the two looks must be that show something as gone, and how young something may be and not be judged; in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::ipam::seconds)]
    pub(crate) grace: f64,
    /// How long to wait before looking a second time at what may be coming or going, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
    /// Look at these files and folders as well, such as what kubectl says (- is stdin)
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// Have the nodes send a few packets (ICMP echo) to each other and to some pods, to see what only packets show. Nothing is sent without it
    #[arg(long)]
    pub(crate) probe: bool,
    /// text (for people) or json
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = RepairFormat::Text)]
    pub(crate) output: RepairFormat,
    /// With text: show every step and all its changes, not the first few of each sort
    #[arg(long)]
    pub(crate) all: bool,
    /// Say on stderr how long looking, planning and doing took
    #[arg(long)]
    pub(crate) timings: bool,
    /// Where histories are kept; /var/lib/plumb/repairs if not given
    #[arg(long, value_name = "DIR", env = "PLUMB_REPAIRS")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RepairFormat {
    Text,
    Json,
}
