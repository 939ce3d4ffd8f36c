//! What can be typed after `plumb install`.

use std::path::PathBuf;

use clap::Args;

/// Installs Plumbline on this node: binaries, CNI configuration, systemd unit
///
/// May be repeated: what is up to date stays untouched, and binaries are replaced whole, also while they run. A CNI
/// configuration and settings of the agent that are there already are kept.
///
/// Every setting that the agent knows is taken from the environment and written to /etc/default/plumbd, which only root
/// may read. plumb on this node uses the same settings where nothing else names a store.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  plumb install --dry-run
  plumb install
  DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=https://10.0.0.1:2379 plumb install

  # Into the root of an image
  plumb install --root ./image")]
pub(crate) struct Install {
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Install below this folder instead of /, as into an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Folder with plumb, plumbd and plumb-cni; that of this program if not given
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// Where plumb and plumbd go
    #[arg(long, value_name = "DIR", default_value = "/usr/local/bin")]
    pub(crate) program_dir: PathBuf,
    /// Where the runtime looks for plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub(crate) cni_bin_dir: PathBuf,
    /// Where the runtime looks for network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Where systemd looks for units
    #[arg(long, value_name = "DIR", default_value = "/etc/systemd/system")]
    pub(crate) unit_dir: PathBuf,
    /// Replace a CNI configuration of ours that was changed
    #[arg(long)]
    pub(crate) replace_config: bool,
    /// Replace the agent's settings that are there with those of the environment
    #[arg(long)]
    pub(crate) replace_settings: bool,
    /// Print manifests for Kubernetes instead (not there yet)
    #[arg(long)]
    pub(crate) print: bool,
}
