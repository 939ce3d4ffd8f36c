//! `plumb repair …` on the command line.

use std::path::PathBuf;

use clap::Args;

use super::doctor::ThisNode;

/// Plans and applies fixes for what the doctor finds; undo reverts them
///
/// Runs the same checks as plumb doctor and shows a plan. Nothing is changed without --apply. Each step is compared with the current state right before it is applied,
/// and can be undone. Pods can start and stop at the same time. Something is removed only if two of three witnesses (Kubernetes, the container runtime, the kernel) agree
/// in two observations, --grace apart, that it is gone, and none disagrees.
#[derive(Args, Debug)]
#[command(after_help = "\
Scopes:
  (none)              everything that the checks found
  ipam                blocks, handles and affinities
  endpoints           endpoints, and the devices, routes and other kernel state of pods
  node NAME           one node; if its Node record is gone, also confirms that the node is gone
                      for good
  node NAME gone      confirms that the node is gone for good although its Node record exists,
                      and deletes the record
  finding CODE…       findings with these codes

Subcommands:
  undo ID             undoes a repair; skips and lists what has changed since
  resume ID           continues an interrupted repair
  history             lists repairs
  show ID             shows what a repair changed

Examples:
  # Show the plan
  plumb repair

  # Apply the plan for the IPAM records
  plumb repair ipam --apply

  # Save the plan, have it reviewed, and apply exactly that
  plumb repair --plan repair.json
  plumb repair --plan repair.json --apply

  # Remove the records, blocks and addresses of a node that is gone for good
  plumb repair node worker-7 gone --apply

  # Include the pods that Kubernetes lists, and the agents of two nodes
  kubectl get pods -A -o json | plumb repair --from - --agent-socket a.sock --agent-socket b.sock

  # Undo a repair
  plumb repair history
  plumb repair undo 20261115-101500-3f2a

Exit codes:
  0  the plan was shown, or applied completely
  1  part of the plan could not be applied; stderr says what and why
  2  the checks could not run, or usage error")]
pub(crate) struct Repair {
    /// A scope or a subcommand, see below
    #[arg(value_name = "SCOPE")]
    pub(crate) words: Vec<String>,
    /// Write the plan to this file; with --apply: apply exactly the plan in this file, as far as it is still valid
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Apply the plan
    #[arg(long)]
    pub(crate) apply: bool,
    /// Only show the plan; this is the default
    #[arg(long, conflicts_with = "apply")]
    pub(crate) dry_run: bool,
    /// After a failed step, try the steps that depend on it as well; independent steps are always tried
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// Retry what failed in two repairs in a row, instead of leaving it to you
    #[arg(long)]
    pub(crate) again: bool,
    /// Apply one step per commit: slower, but easier to follow
    #[arg(long)]
    pub(crate) one_by_one: bool,
    /// Minimum time between the two observations that must both find something gone; younger records are not judged. In seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = super::ipam::seconds)]
    pub(crate) grace: f64,
    /// How long to wait before a second observation of what may be a pod starting or stopping, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::ipam::seconds)]
    pub(crate) settle: f64,
    /// Also use these files and directories as evidence, such as output of kubectl (- is stdin)
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) this_node: ThisNode,
    /// Have the nodes send a few packets (ICMP echo) to each other and to some pods, to find faults that only traffic shows. Without it nothing is sent
    #[arg(long)]
    pub(crate) probe: bool,
    /// text (for people) or json
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = RepairFormat::Text)]
    pub(crate) output: RepairFormat,
    /// With text: show every step with all its changes, not only the first few of each kind
    #[arg(long)]
    pub(crate) all: bool,
    /// Print on stderr how long observing, planning and applying took
    #[arg(long)]
    pub(crate) timings: bool,
    /// Directory of the repair histories [default: /var/lib/plumb/repairs]
    #[arg(long, value_name = "DIR", env = "PLUMB_REPAIRS")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RepairFormat {
    Text,
    Json,
}
