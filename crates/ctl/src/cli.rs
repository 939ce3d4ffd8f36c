//! The command line: what can be typed. What it means is the business of `commands`.

pub(crate) mod doctor;
pub(crate) mod install;
mod ipam;
pub(crate) mod lab;
pub(crate) mod node;
pub(crate) mod repair;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use ipam::{Ipam, IpamCheck, IpamCommand, IpamConfigure, IpamRelease, IpamShow, IpamSplit};

const AFTER_HELP: &str = "\
The store is chosen by -c FILE (calicoctl's format; /etc/calico/calicoctl.cfg if it is there),
else by the environment: DATASTORE_TYPE=sqlite|etcdv3|kubernetes, ETCD_ENDPOINTS and the other
variables that calicoctl knows, SQLITE_PATH; else, on a node that was installed, by the settings of
its agent (/etc/default/plumbd).

Exit codes:
  0  done
  1  failed, wholly or in part; stderr says what and why
  2  called in a way that makes no sense";

/// Looks at and changes the records of a pod network.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, about, after_help = AFTER_HELP, propagate_version = false)]
#[command(disable_help_subcommand = false, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// File that says how to reach the store, in calicoctl's format (YAML or JSON)
    #[arg(short, long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// How much to log to stderr
    #[arg(short, long, global = true, value_enum, ignore_case = true, default_value_t = LogLevel::Panic)]
    #[arg(help_heading = "Global options", value_name = "LEVEL", hide_possible_values = false)]
    pub(crate) log_level: LogLevel,
    /// Context of the kubeconfig to use
    #[arg(long, global = true, value_name = "CONTEXT", help_heading = "Global options")]
    pub(crate) context: Option<String>,
    /// Accepted for calicoctl's sake: plumb works with every version of Calico's records
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
    Doctor(doctor::Doctor),
    Collect(doctor::Collect),
    Repair(repair::Repair),
    Lab(lab::Lab),
    Install(install::Install),
    Version(Version),
    Completion(Completion),
}

/// Shows resources: all of a kind, some by name, or those a file names
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # All pools, as a table
  plumb get ippools

  # Endpoints of every namespace, with more columns
  plumb get wep -A -o wide

  # One resource, ready to be edited and applied again
  plumb get felixconfig default -o yaml --export

  # Nodes of one rack, and only their names
  plumb get nodes --selector 'rack == \"a\"' -o name

  # Some columns, or some fields
  plumb get ippools -o custom-columns=NAME,CIDR
  plumb get ippools -o 'jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}'")]
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
    /// Leave out what belongs to this cluster (uid, revision, timestamps); only for resources asked for by name
    #[arg(long)]
    pub(crate) export: bool,
}

/// Creates resources, or replaces those that exist
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # From files, a directory, or stdin
  plumb apply -f pool.yaml -f node.yaml
  plumb apply -f manifests/ -R
  generate-policy | plumb apply -f -

  # See what would happen
  plumb apply -f pool.yaml --dry-run")]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Creates resources; fails for those that exist
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb create -f pool.yaml
  cat pool.json | plumb create -f - --skip-exists")]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// Pass over resources that already exist
    #[arg(long)]
    pub(crate) skip_exists: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Replaces resources; fails for those that do not exist
///
/// A resource with a metadata.resourceVersion replaces exactly that version or fails; one without replaces
/// whatever is there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb replace -f pool.yaml

  # Change something by hand; fails if someone else changes it meanwhile
  plumb get ippool default -o yaml > pool.yaml; vi pool.yaml; plumb replace -f pool.yaml")]
pub(crate) struct Replace {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Deletes resources, by kind and name or those a file names
///
/// Deleting a pool disables it first and gives up the blocks inside it; addresses in use stay in use.
/// A node is only deleted once no endpoint and no address of it is left.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb delete ippool old-pool
  plumb delete wep -n shop --skip-not-exists node1-k8s-cart-eth0
  plumb delete -f pool.yaml --dry-run")]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// Pass over resources that do not exist
    #[arg(short, long)]
    pub(crate) skip_not_exists: bool,
    #[command(flatten)]
    pub(crate) dry_run: DryRun,
}

/// Changes some fields of one resource
///
/// The patch is merged into the resource: objects field by field, anything else as a whole. null removes a field;
/// `$patch: replace` inside an object replaces it whole, `$patch: delete` removes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb patch ippool default-ipv4-ippool -p '{\"spec\":{\"natOutgoing\":true}}'
  plumb patch node node-0 -p 'spec: {bgp: {routeReflectorClusterID: 224.0.0.1}}'
  plumb patch felixconfig default -p '{\"spec\":{\"mtuIfacePattern\":null}}'")]
pub(crate) struct Patch {
    /// Kind of the resource
    pub(crate) kind: String,
    /// Name of the resource
    pub(crate) name: String,
    /// The change, in JSON or YAML
    #[arg(short, long)]
    pub(crate) patch: String,
    /// Accepted for calicoctl's sake; every patch is merged as described above
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
#[command(after_help = "\
Examples:
  plumb label node node-0 rack=a zone=north
  plumb label node node-0 rack=b --overwrite
  plumb label node node-0 rack --remove")]
pub(crate) struct Label {
    /// Kind of the resource
    pub(crate) kind: String,
    /// Name of the resource
    pub(crate) name: String,
    /// Labels as key=value, or keys with --remove
    #[arg(required = true, value_name = "KEY=VALUE|KEY")]
    pub(crate) labels: Vec<String>,
    /// Replace the value of a label that is already there
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

/// Checks resources without a store: syntax, fields, values
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb validate -f manifests/ -R
  render | plumb validate -f -")]
pub(crate) struct Validate {
    #[command(flatten)]
    pub(crate) files: RequiredFiles,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
}

/// Works on the store as a whole
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb datastore migrate lock
  plumb datastore etcd-role worker-1 -n default")]
pub(crate) struct Datastore {
    #[command(subcommand)]
    pub(crate) command: DatastoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DatastoreCommand {
    Migrate(Migrate),
    EtcdRole(EtcdRole),
}

/// Prints the etcd role of one node, as commands for etcdctl
///
/// With it the agent's user can write what is the node's own (Node record, status, affinities, endpoints) and what all
/// nodes share (address blocks and handles), and read the cluster's settings. etcd refuses the rest: records of other
/// nodes, pools, policies, settings. docs/etcd-roles.md tells more.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  # The node runs pods of these namespaces
  plumb datastore etcd-role worker-1 -n default -n shop | sh

  # Of any namespace: the node may then write the endpoints of other nodes, too
  plumb datastore etcd-role worker-1 -A | sh")]
pub(crate) struct EtcdRole {
    /// The node
    pub(crate) node: String,
    /// A namespace in which the node may have pods; may be given several times
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Vec<String>,
    /// Pods of every namespace; the endpoints of other nodes are then not protected
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// Prepares the store for being moved
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb datastore migrate lock
  plumb datastore migrate unlock")]
pub(crate) struct Migrate {
    #[command(subcommand)]
    pub(crate) command: MigrateCommand,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Locks the store: pods are neither added nor removed, garbage collection pauses
    #[command(after_help = "Examples:\n  plumb datastore migrate lock")]
    Lock,
    /// Unlocks the store: the cluster works again
    #[command(after_help = "Examples:\n  plumb datastore migrate unlock")]
    Unlock,
}

/// Shows the version of this program and of the cluster
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plumb version
  plumb version --client")]
pub(crate) struct Version {
    /// Only this program's version; does not ask the store
    #[arg(long)]
    pub(crate) client: bool,
}

/// Prints a script that completes plumb's commands in a shell
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(plumb completion bash)
  plumb completion fish > ~/.config/fish/completions/plumb.fish")]
pub(crate) struct Completion {
    pub(crate) shell: clap_complete::Shell,
}

/// Which resources are meant, if not by a file.
#[derive(Args, Debug)]
pub(crate) struct Subject {
    /// Kind of the resources, such as ippool, node, wep; KIND/NAME works too
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    pub(crate) kind: Option<String>,
    /// Their names
    #[arg(value_name = "NAME", conflicts_with = "filename")]
    pub(crate) names: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Files {
    /// File or directory (its .yaml, .yml and .json files) with resources; - is stdin. May be given several times
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Args, Debug)]
pub(crate) struct RequiredFiles {
    /// File or directory (its .yaml, .yml and .json files) with resources; - is stdin. May be given several times
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) filename: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// How files are read.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reading {
    /// Look into the directories inside a directory too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// A file without resources is no error
    #[arg(long)]
    pub(crate) skip_empty: bool,
    /// Refuse files larger than this; K, M and G are understood
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub(crate) max_input_size: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Namespace {
    /// Namespace of the resources; "default" if neither this nor the resource says
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DryRun {
    /// Check everything against the store, write nothing, say what would happen
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
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
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
        check(&Cli::command());
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
