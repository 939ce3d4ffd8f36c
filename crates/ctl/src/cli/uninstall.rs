//! What can be typed after `plumb uninstall`.

use std::path::PathBuf;

use clap::Args;

/// Removes Plumbline from this node: CNI configuration, kernel objects, binaries, settings
///
/// Stop the agent first. Refused while pods on this node use the network, or while DELs wait in the queue: drain the node. The
/// plugins portmap, bandwidth and loopback go only if `plumb install` brought them and nobody has replaced them since.
/// Records in the store stay, and so does a SQLite file, unless --purge is given.
#[derive(Args, Clone, Debug)]
pub(crate) struct Uninstall {
    /// Show what would be removed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Uninstall below this directory instead of /. The kernel then stays as it is, unless --kernel is given
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// With --root: remove the kernel objects of this network namespace as well. For a pod in the node's network
    #[arg(long, requires = "root")]
    pub(crate) kernel: bool,
    /// Directory of plumb and plumbd
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
    /// Uninstall although pods use the network or DELs wait: these pods lose their network, and their addresses stay allocated
    /// until `plumb repair` or the controllers release them
    #[arg(long)]
    pub(crate) force: bool,
    /// Remove the SQLite file with the records, too
    #[arg(long)]
    pub(crate) purge: bool,
    /// Keep running when everything is done, until SIGTERM: for a DaemonSet
    #[arg(long, hide = true)]
    pub(crate) stay: bool,
}
