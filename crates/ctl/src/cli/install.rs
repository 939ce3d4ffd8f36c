//! What can be typed after `plumb install`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use model::IpVersion;
use model::kube::Layout;

use super::install_cluster::{ClusterOptions, Mode};
use super::status::Format;

/// Installs Plumbline on this node: binaries, CNI configuration, systemd unit; or prints manifests for Kubernetes
///
/// Idempotent: files that are up to date are left alone, and binaries are replaced atomically, even while they run. An
/// existing CNI configuration and existing settings of the agent are kept.
///
/// Every setting of the agent that is set in the environment is written to /etc/default/plumbd, which only root can
/// read. plumb on this node uses the same settings unless a configuration file or the environment chooses a store.
///
/// With --print or --crds nothing is installed on this node. They print manifests for `kubectl apply -f -`: the
/// definitions of Calico's kinds, admission policies, accounts and roles, the DaemonSet of the agents and the Deployment of
/// the controllers.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Install {
    #[command(subcommand)]
    pub(crate) command: Option<InstallCommand>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Install below this directory instead of /, for example into an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Directory that contains plumb, plumbd and plumb-cni [default: the directory of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Directory to install plumb and plumbd in
    #[arg(long, value_name = "DIR", default_value = "/usr/local/bin")]
    pub(crate) program_dir: PathBuf,
    /// Directory where the container runtime finds plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub(crate) cni_bin_dir: PathBuf,
    /// Directory where the container runtime finds network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Directory where systemd finds units
    #[arg(long, value_name = "DIR", default_value = "/etc/systemd/system")]
    pub(crate) unit_dir: PathBuf,
    /// Replace an existing 10-plumb.conflist that has been changed
    #[arg(long)]
    pub(crate) replace_config: bool,
    /// Replace the agent's existing settings with those of the environment
    #[arg(long)]
    pub(crate) replace_settings: bool,
    /// Have the plugin work without the agent, on the Kubernetes store: writes the credentials of this command to
    /// plumb-kubeconfig beside the network configuration, readable by root only. Use a token that is bound to this node:
    /// docs/kubernetes.md
    #[arg(long, conflicts_with_all = ["print", "crds"])]
    pub(crate) one_shot_kubeconfig: bool,
    /// Install what a node needs whose agent runs in a pod: plugins and network configuration. The init container of the
    /// DaemonSet does this, with the node's root at --root
    #[arg(long, conflicts_with_all = ["print", "crds", "one_shot_kubeconfig"])]
    pub(crate) node: bool,
    /// With --node: directory of the plugins portmap, bandwidth and loopback, for nodes that lack them
    #[arg(long, value_name = "DIR", requires = "node")]
    pub(crate) standard_plugins: Option<PathBuf>,
    /// With --node: versions of addresses that pods get
    #[arg(long, value_name = "VERSION", value_enum, value_delimiter = ',', requires = "node")]
    #[arg(default_value = "ipv4")]
    pub(crate) ip_versions: Vec<Family>,
    /// Print manifests for Kubernetes: crds, namespace, admission, rbac, daemonset, controller, or several of them with
    /// commas [default: these]. By name only: settings, uninstall
    #[arg(long, value_name = "PART", value_enum, num_args = 0.., value_delimiter = ',', require_equals = true)]
    #[arg(help_heading = "Kubernetes", hide_possible_values = true, conflicts_with = "crds")]
    pub(crate) print: Option<Vec<Part>>,
    /// Print the CustomResourceDefinitions of Calico's kinds, as --print=crds does
    #[arg(long, help_heading = "Kubernetes")]
    pub(crate) crds: bool,
    /// With --crds: create the definitions that the cluster lacks; existing ones stay, and fields that they would drop are
    /// reported
    #[arg(long, help_heading = "Kubernetes", requires = "crds")]
    pub(crate) apply: bool,
    /// API group of the records: crd.projectcalico.org/v1 or projectcalico.org/v3 [default: CALICO_API_GROUP, else
    /// crd.projectcalico.org/v1; with --apply, what the cluster uses]
    #[arg(long, value_name = "GROUP", help_heading = "Kubernetes", value_parser = parse_api_group)]
    pub(crate) api_group: Option<Layout>,
    /// Namespace of the accounts and workloads
    #[arg(long, value_name = "NAMESPACE", help_heading = "Kubernetes", value_parser = parse_namespace)]
    #[arg(default_value = model::kube::access::NAMESPACE)]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum InstallCommand {
    Check(Check),
}

/// Checks this machine, and the cluster if the store is Kubernetes, before an installation
///
/// Each line says ok, warn or fail, what was found, and what to do. Nothing is changed. Exit code 1 if a line says fail.
#[derive(Args, Clone, Debug)]
pub(crate) struct Check {
    /// How packets will reach other nodes
    #[arg(long, value_enum, default_value_t = Mode::Vxlan)]
    pub(crate) mode: Mode,
    /// Directory where the container runtime finds network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Socket of the container runtime [default: the first of the usual ones that exists]
    #[arg(long, value_name = "SOCKET", env = "CONTAINER_RUNTIME_ENDPOINT")]
    pub(crate) cri_socket: Option<String>,
    /// Check the cluster only: this machine will be no node
    #[arg(long)]
    pub(crate) cluster_only: bool,
    /// text or json
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    pub(crate) fn of(version: IpVersion) -> Family {
        match version {
            IpVersion::V4 => Family::Ipv4,
            IpVersion::V6 => Family::Ipv6,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

/// What `--print` can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Definitions of Calico's kinds
    Crds,
    /// Policies that hold a node's agent to its own node
    Admission,
    /// Accounts, roles and bindings
    Rbac,
    /// The namespace, unless it is one of Kubernetes' own
    Namespace,
    /// The agents
    Daemonset,
    /// The controllers
    Controller,
    /// The records that the agents would create otherwise: pools and settings
    Settings,
    /// A DaemonSet that removes everything from the nodes
    Uninstall,
}

fn parse_api_group(text: &str) -> Result<Layout, String> {
    let known = [Layout::V1, Layout::V3];
    let found = known.into_iter().find(|layout| text.eq_ignore_ascii_case(&layout.api_version()));
    found.ok_or_else(|| format!("expected {}", known.map(Layout::api_version).join(" or ")))
}

/// It becomes part of an expression in a policy.
fn parse_namespace(text: &str) -> Result<String, String> {
    parse_name(text).map_err(|_| "not a valid name of a namespace".to_owned())
}

/// A name that every kind of object may have.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let has_ends = !text.starts_with('-') && !text.ends_with('-');
    let is_name = !text.is_empty() && text.len() <= 63 && is_plain && has_ends;
    is_name.then(|| text.to_owned()).ok_or_else(|| "expected lower case letters, digits and -".to_owned())
}
