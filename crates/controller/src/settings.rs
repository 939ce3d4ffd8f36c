//! The settings of `plumbd controller`: flags and the environment. Those that Calico has, too, are in KubeControllersConfiguration.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::parse_duration;

use crate::election::Pace;

/// Settings of a controller.
#[derive(Clone, Debug, Args)]
pub struct ControllerArguments {
    /// Name of this replica in the election [default: the host name and a random number].
    #[arg(long, env = "PLUMB_CONTROLLER_NAME", value_name = "NAME")]
    pub name: Option<String>,

    /// With etcd or SQLite: the cluster whose pods and nodes are witnesses, and whose objects become records.
    #[arg(long, env = "PLUMB_CONTROLLER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Act although calico-kube-controllers runs. Both would collect: scale that to 0 first.
    #[arg(long, env = "PLUMB_CONTROLLER_TAKE_OVER")]
    pub take_over: bool,

    /// Time between two observations that must agree before anything is removed.
    #[arg(long, env = "PLUMB_GRACE", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub grace: Duration,

    /// At most so many requests per second.
    #[arg(long, env = "PLUMB_CONTROLLER_RATE", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..), value_name = "NUMBER")]
    pub rate: u32,

    /// Directory of the histories with which `plumb repair undo` takes back what was removed.
    #[arg(long, env = "PLUMB_REPAIRS", default_value = "/var/lib/plumb/repairs", value_name = "DIRECTORY")]
    pub history: PathBuf,

    /// Namespace of the Lease, in a Kubernetes store [default: that of this pod, or kube-system].
    #[arg(long, env = "PLUMB_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// How long the lead lasts that is not renewed.
    #[arg(long, default_value = "15s", value_parser = parse_duration, value_name = "TIME")]
    pub lease_duration: Duration,

    /// How long a leader acts that cannot renew it.
    #[arg(long, default_value = "10s", value_parser = parse_duration, value_name = "TIME")]
    pub renew_deadline: Duration,

    /// How often the lead is renewed, and other replicas check it.
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "TIME")]
    pub retry_period: Duration,

    /// Address for /liveness, /readiness and /metrics; `off` to disable.
    #[arg(
        long,
        env = "PLUMB_CONTROLLER_HEALTH_ADDRESS",
        default_value = "127.0.0.1:9094",
        value_name = "ADDRESS"
    )]
    pub health_address: String,

    /// Log level: error, warn, info, debug or trace.
    #[arg(long, env = "PLUMB_LOG", default_value = "info", value_name = "LEVEL")]
    pub log: String,
}

impl ControllerArguments {
    pub(crate) fn pace(&self) -> Pace {
        Pace { lasts: self.lease_duration, renew_within: self.renew_deadline, retry: self.retry_period }
    }
}
