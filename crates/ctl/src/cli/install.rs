//! What can be typed after `plumb install`.

use std::path::PathBuf;

use clap::Args;

/// Installs Plumbline on this node: binaries, CNI configuration, systemd unit
///
/// Idempotent: files that are up to date are left alone, and binaries are replaced atomically, even while they run. An
/// existing CNI configuration and existing settings of the agent are kept.
///
/// Every setting of the agent that is set in the environment is written to /etc/default/plumbd, which only root can
/// read. plumb on this node uses the same settings unless a configuration file or the environment chooses a store.
#[derive(Args, Clone, Debug)]
pub(crate) struct Install {
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
    /// Print Kubernetes manifests instead (not implemented yet)
    #[arg(long)]
    pub(crate) print: bool,
}
