//! The command line: what can be typed. What it means is the business of `commands`.

pub(crate) mod cluster;
mod codes;
pub(crate) mod copy;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod install_cluster;
mod ipam;
pub(crate) mod node;
pub(crate) mod repair;
pub(crate) mod status;
pub(crate) mod uninstall;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub(crate) use ipam::{Ipam, IpamCheck, IpamCommand, IpamConfigure, IpamRelease, IpamShow, IpamSplit};

/// Shows, changes, checks and repairs the records of a pod network.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, about, propagate_version = false)]
#[command(disable_help_subcommand = false, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What stands at the end of each command's help: examples and exit codes. Each part begins with the command's name.
const AFTER_HELP: &str = include_str!("cli/after_help.txt");
const PART: &str = "=== ";

/// Everything that can be typed.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command().mut_subcommand("repair", repair::with_flags_after_subcommands);
    with_after_help(command, "plumb")
}

fn with_after_help(command: clap::Command, name: &str) -> clap::Command {
    let mut parts = AFTER_HELP.split(PART).filter_map(|part| part.split_once('\n'));
    let help = parts.find(|(of, _)| *of == name).map(|(_, help)| help.trim_end());
    command.after_help(help).mut_subcommands(|sub| {
        let name = format!("{name} {}", sub.get_name());
        with_after_help(sub, &name)
    })
}

pub(crate) fn parse(mut command: clap::Command, words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let matches = command.try_get_matches_from_mut(&words)?;
    repair::refuse(&mut command, &matches, &words)?;
    Cli::from_arg_matches(&matches)
}

/// What is wrong with a command line, as calicoctl says it.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    use clap::error::{ContextKind, ErrorKind};
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => format!("unknown flag: {}", said(ContextKind::InvalidArg)),
        ErrorKind::InvalidSubcommand => {
            format!("unknown command {:?} for \"calicoctl\"", said(ContextKind::InvalidSubcommand))
        }
        ErrorKind::ArgumentConflict if said(ContextKind::InvalidArg).contains("--namespace") => {
            "cannot use both --namespace and --all-namespaces flags at the same time".to_owned()
        }
        ErrorKind::ValueValidation if said(ContextKind::InvalidArg).contains("--strictaffinity") => {
            "invalid value. Use true or false to set strictaffinity".to_owned()
        }
        ErrorKind::MissingRequiredArgument if said(ContextKind::InvalidArg).contains("--strictaffinity") => {
            "at least one configuration option must be specified".to_owned()
        }
        ErrorKind::InvalidValue if said(ContextKind::InvalidArg).contains("--log-level") => format!(
            "unknown log level: {}, expected one of: panic, fatal, error, warn, info, debug",
            said(ContextKind::InvalidValue)
        ),
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.strip_prefix("error: ").unwrap_or(line).to_owned()
        }
    }
}

/// Flags that every command takes.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Configuration file for the connection to the store, in calicoctl's format (YAML or JSON)
    #[arg(short, long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// How much to log to stderr
    #[arg(short, long, global = true, value_enum, ignore_case = true, default_value_t = LogLevel::Panic)]
    #[arg(help_heading = "Global options", value_name = "LEVEL", hide_possible_values = false)]
    pub(crate) log_level: LogLevel,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "CONTEXT", help_heading = "Global options")]
    pub(crate) context: Option<String>,
    /// Accepted for compatibility with calicoctl and ignored: plumb works with every version of Calico's records
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) allow_version_mismatch: bool,
}

/// calicoctl's words for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Panic,
    Fatal,
    Error,
    #[value(alias = "warning")]
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Get(Get),
    Apply(Apply),
    Create(Create),
    Replace(Replace),
    Delete(Delete),
    Patch(Patch),
    Label(Label),
    Validate(Validate),
    Ipam(Ipam),
    Datastore(Datastore),
    Node(node::Node),
    Cluster(cluster::Cluster),
    Convert(Convert),
    Doctor(doctor::Doctor),
    Collect(doctor::Collect),
    Repair(repair::Repair),
    Lab(Lab),
    Install(Box<install::Install>),
    Uninstall(uninstall::Uninstall),
    Status(status::Status),
    Version(Version),
    Completion(Completion),
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// Says why manifests of the API before v3 are not converted
///
/// calicoctl had this command up to v3.31. Convert with that release, and apply the result with plumb.
#[derive(Args, Debug)]
#[command(disable_help_flag = false)]
pub(crate) struct Convert {
    /// What calicoctl's command takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD", hide = true)]
    pub(crate) words: Vec<OsString>,
}

/// What a completion script asks for: candidates for the last word.
#[derive(Args, Debug)]
pub(crate) struct Complete {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// Runs a whole pod network on this machine: each node is a network namespace that runs the real programs
///
/// Needs root, and the program plumb-lab beside this one. `plumb lab --help` lists its commands.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// Command of plumb-lab, with its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) words: Vec<std::ffi::OsString>,
}

/// Shows resources: all of a kind, some by name, or those listed in a file
#[derive(Args, Debug)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// All namespaces
    #[arg(short = 'A', visible_short_alias = 'a', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only resources whose labels match this selector, in Calico's selector language
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
    /// ps, wide, yaml, json, name, custom-columns=A,B or jsonpath=TEMPLATE
    #[arg(short, long, value_name = "FORMAT", default_value = "ps")]
    pub(crate) output: String,
    /// Omit what is specific to this cluster (uid, resource version, timestamps); only for resources requested by name
    #[arg(long)]
    pub(crate) export: bool,
}

/// Creates resources, or replaces those that exist
#[derive(Args, Debug)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Creates resources; fails for those that already exist
#[derive(Args, Debug)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// Skip resources that already exist
    #[arg(long)]
    pub(crate) skip_exists: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Replaces resources; fails for those that do not exist
///
/// A resource with a metadata.resourceVersion replaces exactly that version, or fails with a conflict. A resource
/// without one replaces any version.
#[derive(Args, Debug)]
pub(crate) struct Replace {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Deletes resources, by kind and name or those listed in a file
///
/// Deleting a pool first disables it and releases the affinities of its blocks; addresses in use stay allocated.
/// A node can be deleted only when it has no endpoints and no pod addresses left.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// Skip resources that do not exist
    #[arg(short, long)]
    pub(crate) skip_not_exists: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Changes some fields of one resource
///
/// The patch is merged into the resource: objects are merged field by field, everything else is replaced. null
/// removes a field. `$patch: replace` inside an object replaces the whole object, `$patch: delete` removes it.
#[derive(Args, Debug)]
pub(crate) struct Patch {
    /// Kind of the resource
    pub(crate) kind: String,
    /// Name of the resource
    pub(crate) name: String,
    /// The change, in JSON or YAML
    #[arg(short, long)]
    pub(crate) patch: String,
    /// Accepted for compatibility with calicoctl; every patch is merged as described above, and json is refused
    #[arg(short = 't', long = "type", value_enum, default_value_t = PatchType::Strategic)]
    pub(crate) patch_type: PatchType,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PatchType {
    Strategic,
    Merge,
    /// Not a merge at all, so refused rather than misunderstood.
    Json,
}

/// Sets or removes labels of one resource
#[derive(Args, Debug)]
pub(crate) struct Label {
    /// Kind of the resource
    pub(crate) kind: String,
    /// Name of the resource
    pub(crate) name: String,
    /// Labels as key=value, or keys with --remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY")]
    pub(crate) labels: Vec<String>,
    /// Replace the value of a label that already exists
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Remove labels
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) remove: bool,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Checks resource files without a store: syntax, fields, values
#[derive(Args, Debug)]
pub(crate) struct Validate {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
}

/// Copies a store to another, locks it for a migration, and prints etcd roles
#[derive(Args, Debug)]
pub(crate) struct Datastore {
    #[command(subcommand)]
    pub(crate) command: DatastoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatastoreCommand {
    Copy(copy::Copy),
    Migrate(Migrate),
    EtcdRole(EtcdRole),
}

/// Prints the etcd role of one node, as commands for etcdctl
///
/// The role lets the agent's user write the node's own records (Node record, status, affinities, endpoints) and the
/// records that all nodes share (IPAM blocks and handles), and read the cluster's settings. etcd refuses every other
/// write: records of other nodes, pools, policies, settings. See docs/etcd-roles.md.
#[derive(Args, Debug)]
pub(crate) struct EtcdRole {
    /// Name of the node
    pub(crate) node: String,
    /// A namespace whose pods may run on the node; may be repeated
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Vec<String>,
    /// Allow pods of every namespace; the endpoints of other nodes are then not protected
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// Locks and unlocks the store for a migration, and carries its records in calicoctl's file
#[derive(Args, Debug)]
pub(crate) struct Migrate {
    #[command(subcommand)]
    pub(crate) command: MigrateCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Locks the store: no pods are added or removed, and garbage collection pauses
    Lock,
    /// Unlocks the store: pods can be added and removed again
    Unlock,
    /// Prints all records of a locked store, as calicoctl does: resources, ClusterInformation, IPAM
    Export,
    Import(Import),
}

/// Fills a store with what plumb or calicoctl exported
///
/// The store may have no records of Calico yet, besides those that every store has. It is locked, and stays so. Where
/// records are custom resources, their definitions must be installed before.
#[derive(Args, Clone, Debug)]
pub(crate) struct Import {
    /// File that was exported; - is stdin
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,
}

/// Shows the version of this program and of the cluster
#[derive(Args, Debug)]
pub(crate) struct Version {
    /// Show only the version of this program; does not connect to the store
    #[arg(long)]
    pub(crate) client: bool,
    /// Show the version of the cluster again when it changes, asking at this interval, such as 10s
    #[arg(long, value_name = "DURATION", conflicts_with = "client")]
    pub(crate) poll: Option<String>,
}

/// Prints a shell completion script
#[derive(Args, Debug)]
pub(crate) struct Completion {
    pub(crate) shell: clap_complete::Shell,
}

/// Which resources are meant, if not by a file.
#[derive(Args, Debug)]
pub(crate) struct Subject {
    /// Kind of the resources, such as ippool, node, wep; KIND/NAME works too
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    pub(crate) kind: Option<String>,
    /// Names of the resources
    #[arg(value_name = "NAME", conflicts_with = "filename")]
    pub(crate) names: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Files {
    /// File or directory (its .yaml, .yml and .json files) with resources; - is stdin. May be repeated
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Args, Debug)]
pub(crate) struct RequiredFiles {
    /// File or directory (its .yaml, .yml and .json files) with resources; - is stdin. May be repeated
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// How files are read.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reading {
    /// Recurse into subdirectories
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Accept files without resources
    #[arg(long)]
    pub(crate) skip_empty: bool,
    /// Refuse files larger than this; the suffixes K, M and G are allowed
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub(crate) max_input_size: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Namespace {
    /// Namespace of resources that do not name one themselves [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DryRun {
    /// Check everything against the store and show what would happen; write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size such as 500K, 16M or 1G".to_owned())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:"), "{} has no examples", sub.get_name());
                check(sub);
            }
        }
        check(&command());
        let text = AFTER_HELP.lines().filter_map(|line| line.strip_prefix(PART)).map(|name| {
            let words = name.split(' ').skip(1);
            words.fold(command(), |command, word| command.find_subcommand(word).expect(name).clone())
        });
        assert!(text.count() > 30);
    }

    #[test]
    fn sizes_are_understood() {
        assert_eq!(parse_size("16M"), Ok(16 << 20));
        assert_eq!(parse_size("512"), Ok(512));
        for bad in ["", "M", "-1", "0", "1T", "99999999999G", "é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
