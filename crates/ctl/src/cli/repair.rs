//! `plumb repair …` on the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Subcommand};

use super::codes::CodeParser;
use super::doctor::ThisNode;

/// Plans and applies fixes for what the doctor finds; undo reverts them
///
/// Runs the same checks as plumb doctor and shows a plan. Nothing is changed without --apply. Each step is compared with the current state right before it is applied,
/// and can be undone. Pods can start and stop at the same time. Something is removed only if two of three witnesses (Kubernetes, the container runtime, the kernel) agree
/// in two observations, --grace apart, that it is gone, and none disagrees.
///
/// Without a command, the plan is about everything that the checks found.
#[derive(Args, Debug)]
pub(crate) struct Repair {
    #[command(subcommand)]
    pub(crate) command: Option<RepairCommand>,
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

#[derive(Debug, Subcommand)]
pub(crate) enum RepairCommand {
    /// Plans only blocks, handles and affinities
    Ipam,
    /// Plans only endpoints, and the devices, routes and other kernel state of pods
    Endpoints,
    /// Plans only one node; if its Node record is gone, also confirms that the node is gone for good
    ///
    /// A node is never treated as gone if its agent answers, if Kubernetes reports it as ready, or if it has shown within --grace that it
    /// runs.
    Node {
        /// Name of the node
        #[arg(value_parser = node_name)]
        name: String,
        /// Confirms that the node is gone for good although its Node record exists, and deletes the record
        #[arg(value_name = "gone", value_parser = ["gone"], hide_possible_values = true)]
        gone: Option<String>,
    },
    /// Plans only findings with these codes
    Finding {
        /// Codes of findings; plumb doctor explain lists all of them
        #[arg(required = true, value_name = "CODE", value_parser = CodeParser, hide_possible_values = true)]
        codes: Vec<String>,
    },
    /// Undoes a repair; skips and lists what has changed since
    Undo {
        /// ID of the repair, as plumb repair history lists it
        id: String,
    },
    /// Continues an interrupted repair
    Resume {
        /// ID of the repair, as plumb repair history lists it
        id: String,
    },
    /// Lists repairs
    History,
    /// Shows what a repair changed
    Show {
        /// ID of the repair, as plumb repair history lists it
        id: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RepairFormat {
    Text,
    Json,
}

/// A plan's file writes the name between other words.
fn node_name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err("not the name of a node".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Whether a flag has a meaning for a subcommand.
fn applies(subcommand: &str, flag: &str) -> bool {
    match subcommand {
        "history" | "show" => matches!(flag, "output" | "history"),
        "undo" => matches!(flag, "output" | "history" | "all" | "agent_socket" | "node" | "cri_socket"),
        "resume" => !matches!(flag, "plan" | "apply" | "dry_run"),
        _ => true,
    }
}

/// Scripts pass the same waits and sources to every call; where nothing is observed, they do no harm.
fn is_harmless(flag: &str) -> bool {
    matches!(flag, "grace" | "settle" | "from" | "agent_socket" | "node" | "cri_socket" | "kubeconfig")
}

/// Lets each subcommand take the flags that apply to it. Flags before the subcommand count as well.
pub(super) fn with_flags_after_subcommands(repair: Command) -> Command {
    let flags: Vec<Arg> = repair.get_arguments().cloned().collect();
    repair.mut_subcommands(|subcommand| {
        let name = subcommand.get_name().to_owned();
        let of_subcommand = flags.iter().filter_map(|flag| {
            let applies = applies(&name, flag.get_id().as_str());
            let is_taken = applies || is_harmless(flag.get_id().as_str());
            // Global to clap means: a value counts on both sides of the subcommand.
            is_taken.then(|| flag.clone().global(true).hide(!applies))
        });
        subcommand.args(of_subcommand)
    })
}

/// Refuses what clap does not see, because it judges the two sides of a subcommand one by one.
pub(super) fn refuse(
    plumb: &mut Command,
    matches: &ArgMatches,
    words: &[OsString],
) -> Result<(), clap::Error> {
    let Some(matches) = matches.subcommand_matches("repair") else { return Ok(()) };
    let Some((subcommand, _)) = matches.subcommand() else { return Ok(()) };
    let repair = plumb.find_subcommand_mut("repair").expect("it was matched");
    let of_repair = |flag: &&Arg| !flag.is_global_set() && flag.get_long().is_some_and(|long| long != "help");
    let is_typed = |flag: &str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let problem = repair.get_arguments().filter(of_repair).find_map(|flag| {
        let (id, long) = (flag.get_id().as_str(), flag.get_long().unwrap_or_default());
        if !is_typed(id) {
            None
        } else if !applies(subcommand, id) && !is_harmless(id) {
            Some(format!("--{long} does not apply to plumb repair {subcommand}"))
        } else if id == "dry_run" && is_typed("apply") {
            Some("--dry-run cannot be used with --apply".to_owned())
        } else if is_on_both_sides(flag, matches, words) {
            Some(format!("--{long} must be either before or after {subcommand}, not both"))
        } else {
            None
        }
    });
    problem.map_or(Ok(()), |problem| Err(repair.error(ErrorKind::ArgumentConflict, problem)))
}

/// Of a flag that may be repeated, clap keeps only what follows the subcommand.
fn is_on_both_sides(flag: &Arg, matches: &ArgMatches, words: &[OsString]) -> bool {
    let long = format!("--{}", flag.get_long().unwrap_or_default());
    let is_it = |word: &&OsString| {
        let rest = word.to_str().and_then(|word| word.strip_prefix(&long));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let kept = matches.get_raw_occurrences(flag.get_id().as_str()).map_or(0, Iterator::count);
    matches!(flag.get_action(), ArgAction::Append) && words.iter().filter(is_it).count() > kept
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn repair(words: &str) -> Result<Repair, String> {
        let words = ["plumb", "repair"].into_iter().chain(words.split_whitespace());
        match parse(super::super::command(), words.map(Into::into).collect()) {
            Ok(crate::cli::Cli { command: crate::cli::Command::Repair(repair), .. }) => Ok(repair),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn flags_count_before_and_after_the_subcommand() {
        for words in ["--apply --grace 5 ipam", "ipam --apply --grace 5", "--grace 5 ipam --apply"] {
            let repair = repair(words).unwrap();
            assert!(matches!(repair.command, Some(RepairCommand::Ipam)), "{words}");
            assert_eq!((repair.apply, repair.grace, repair.settle), (true, 5.0, 2.0), "{words}");
        }
        let agents = |words: &str| repair(words).unwrap().this_node.agent_socket.len();
        assert_eq!(agents("--agent-socket a --agent-socket b node n gone"), 2);
        assert_eq!(agents("undo 1 --agent-socket a,b"), 2);
        assert!(repair("--agent-socket a ipam --agent-socket b").unwrap_err().contains("not both"));
        assert!(repair("").unwrap().command.is_none());
    }

    #[test]
    fn a_flag_that_does_not_apply_is_refused_on_either_side() {
        for (flag, subcommand) in [
            ("--apply", "undo 1"),
            ("--plan f", "resume 1"),
            ("--dry-run", "history"),
            ("--probe", "undo 1"),
            ("--all", "show 1"),
            ("--one-by-one", "history"),
        ] {
            let name = flag.split(' ').next().unwrap();
            let after = repair(&format!("{subcommand} {flag}")).unwrap_err();
            assert!(after.contains(&format!("unexpected argument '{name}' found")), "{after}");
            let before = repair(&format!("{flag} -o json {subcommand}")).unwrap_err();
            assert!(before.contains(&format!("{name} does not apply to plumb repair ")), "{before}");
        }
        assert!(repair("--dry-run ipam --apply").unwrap_err().contains("cannot be used with"));
        assert!(repair("ipam --dry-run --apply").unwrap_err().contains("cannot be used with"));
        for subcommand in ["undo 1", "history", "show 1", "resume 1", "finding pool-full"] {
            repair(&format!("{subcommand} --settle 0 --grace 0 --history h -o json")).unwrap();
            repair(&format!("--agent-socket s {subcommand} --from f")).unwrap();
        }
    }

    #[test]
    fn what_is_no_subcommand_is_refused() {
        for wrong in ["node", "finding", "undo", "ipam endpoints", "everything", "node a b", "history 1"] {
            assert!(repair(wrong).is_err(), "{wrong}");
        }
    }
}
