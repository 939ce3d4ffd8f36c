//! The settings of `plumbd node`: flags first, then the environment, then defaults.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use host::Host;
use host::cri::RuntimeClient;
use model::{AgentMode, NodeName, parse_duration};
use store::StoreConfig;
use store::config::{Overrides, Reason, Sources};

use crate::bgp::{BgpOptions, BirdPlaces};
use crate::runtime::Runtime;
use crate::variables;

/// Where Calico's node agent writes the node's name, and its plugin reads it.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";
/// Where it writes the MTU of pods, for plugins.
const MTU_FILE: &str = "/var/lib/calico/mtu";

/// Settings of the node's agent.
#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// Name of this node [default: /var/lib/calico/nodename, or the host name].
    #[arg(long, env = "NODENAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,

    /// Socket for CNI plugins and `plumb`.
    #[arg(long, default_value = wire::AGENT_SOCKET, value_name = "PATH")]
    pub(super) socket: PathBuf,

    /// Directory of the journal and the queued DELs.
    #[arg(long, default_value = wire::STATE_DIR, value_name = "DIRECTORY")]
    pub(super) state_dir: PathBuf,

    /// File for the MTU of pods, which plugins read [default: /var/lib/calico/mtu, or mtu in a --state-dir of your own].
    #[arg(long, env = "PLUMB_MTU_FILE", value_name = "FILE")]
    pub(super) mtu_file: Option<PathBuf>,

    /// Socket of the container runtime [default: the first of the usual ones that exists].
    #[arg(long, env = "CONTAINER_RUNTIME_ENDPOINT", value_name = "SOCKET")]
    pub(super) cri_socket: Option<String>,

    /// Time between the two observations before something without an owner is removed.
    #[arg(long, env = "PLUMB_GRACE", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub(super) grace: Duration,

    /// How often the doctor checks this node, for the metric plumb_findings; 0s for never.
    #[arg(long, env = "PLUMB_DOCTOR_EVERY", default_value = "5m", value_parser = parse_duration, value_name = "TIME")]
    pub(super) doctor_every: Duration,

    /// Only observe: answer `plumb doctor`, count findings, change nothing. For a node with another network provider, such as
    /// Calico.
    #[arg(long, env = "PLUMB_OBSERVE")]
    pub(super) observe: bool,

    /// With --observe: also apply the steps of `plumb repair --apply` on this node.
    #[arg(long, env = "PLUMB_REPAIR")]
    pub(super) repair: bool,

    /// `bird` runs BGP through BIRD; `vxlan` and `none` run no BGP.
    #[arg(long, env = "CALICO_NETWORKING_BACKEND", default_value = "none", value_parser = ["bird", "vxlan", "none"], value_name = "BACKEND")]
    pub(super) networking_backend: String,

    /// The BIRD program, or `external` if another service runs it.
    #[arg(long, env = "PLUMB_BIRD", default_value = "bird", value_name = "PROGRAM")]
    pub(super) bird: String,

    /// BIRD's configuration file, written by the agent [default: bird.conf in the state directory].
    #[arg(long, env = "PLUMB_BIRD_CONFIG", value_name = "FILE")]
    pub(super) bird_config: Option<PathBuf>,

    /// BIRD's control socket.
    #[arg(long, env = "PLUMB_BIRD_SOCKET", default_value = host::bird::AGENTS_SOCKET, value_name = "PATH")]
    pub(super) bird_socket: PathBuf,

    /// Directory of BGP passwords: the key KEY of secret NAME is the file NAME/KEY.
    #[arg(long, env = "PLUMB_BGP_SECRETS", default_value = "/etc/plumb/secrets", value_name = "DIRECTORY")]
    pub(super) bgp_secrets: PathBuf,

    /// BGP router ID of this node [default: its IPv4 address].
    #[arg(long, env = "CALICO_ROUTER_ID", value_name = "ADDRESS")]
    pub(super) router_id: Option<String>,

    /// Address for /liveness, /readiness and /metrics; `off` to disable.
    #[arg(long, env = "PLUMB_HEALTH_ADDRESS", default_value = "127.0.0.1:9099", value_name = "ADDRESS")]
    pub(super) health_address: String,

    /// Log level: error, warn, info, debug or trace.
    #[arg(long, env = "PLUMB_LOG", default_value = "info", value_name = "LEVEL")]
    pub(super) log: String,
}

impl NodeArguments {
    /// The node's name, by Calico's rules.
    pub(super) fn name(&self) -> Result<String> {
        let configured = self.node_name.clone().filter(|name| !name.is_empty());
        let from_file = || {
            let text = std::fs::read_to_string(NODENAME_FILE).ok()?;
            Some(text.trim().to_owned()).filter(|name| !name.is_empty())
        };
        let own = || {
            let name = NodeName::of_machine(&Host::machine_name().ok()?);
            Some(name).filter(|name| !name.is_empty())
        };
        let configured = configured.or_else(from_file).map(NodeName::from);
        let name = configured.or_else(own).context("this node has no name; set NODENAME")?;
        name.check().with_context(|| format!("{name:?} is not a valid node name"))?;
        Ok(name.to_string())
    }

    /// Calico's file is only for an agent with the default state directory: others may share the machine.
    pub(super) fn mtu_file(&self) -> PathBuf {
        self.mtu_file.clone().unwrap_or_else(|| match self.state_dir.as_os_str() == wire::STATE_DIR {
            true => PathBuf::from(MTU_FILE),
            false => self.state_dir.join("mtu"),
        })
    }

    /// An agent that acts always repairs.
    pub(super) fn mode(&self) -> AgentMode {
        match (self.observe, self.repair) {
            (false, _) => AgentMode::Acts,
            (true, false) => AgentMode::Observes,
            (true, true) => AgentMode::Repairs,
        }
    }

    /// Where BIRD must answer: this agent runs BGP through it, or the socket was configured. A node without BGP has no BIRD at the default
    /// socket, which is not a problem; evidence tries that one anyway.
    pub(super) fn expected_bird_socket(&self) -> Option<PathBuf> {
        let runs_bgp = self.networking_backend == "bird" && self.mode() == AgentMode::Acts;
        let is_configured = self.bird_socket != Path::new(host::bird::AGENTS_SOCKET);
        Some(self.bird_socket.clone()).filter(|_| runs_bgp || is_configured)
    }

    /// The settings of BGP, if it is on.
    pub(super) fn bgp(&self) -> Result<Option<BgpOptions>> {
        if self.networking_backend != "bird" {
            return Ok(None);
        }
        // `hash` is Calico's word for an ID derived from the node's name, which a node without IPv4 gets anyway.
        let router_id = self.router_id.as_deref().filter(|id| !id.is_empty() && *id != "hash");
        let router_id = router_id
            .map(|id| id.parse().with_context(|| format!("CALICO_ROUTER_ID {id:?} is not an IPv4 address")));
        let config = self.bird_config.clone().unwrap_or_else(|| self.state_dir.join("bird.conf"));
        let places = BirdPlaces { program: self.bird.clone(), config, socket: self.bird_socket.clone() };
        Ok(Some(BgpOptions { places, secrets: self.bgp_secrets.clone(), router_id: router_id.transpose()? }))
    }

    pub(super) fn runtime(&self) -> Result<Runtime> {
        match self.cri_socket.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            Some(endpoint) => Ok(Runtime::Named(RuntimeClient::from_endpoint(endpoint)?)),
            None => Ok(Runtime::usual()),
        }
    }
}

/// The store that the environment selects. Inside Kubernetes, a SQLite file on one node is never meant.
pub(super) fn store_config() -> Result<(StoreConfig, Reason)> {
    store_config_from(&variables::os)
}

fn store_config_from(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<(StoreConfig, Reason)> {
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        // The operator's file does not configure a node.
        default_config_file: PathBuf::new(),
        environment,
        agent_settings: None,
    };
    let selected = StoreConfig::from_sources(&sources)?;
    let is_in_kubernetes = environment("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
    if is_in_kubernetes && selected.reason == Reason::Fallback {
        bail!(
            "no store is configured, and a SQLite file cannot serve a Kubernetes cluster; set DATASTORE_TYPE"
        );
    }
    Ok((selected.config, selected.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_bird_socket_is_expected_to_answer() {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            node: NodeArguments,
        }
        let socket = |path: &str, more: &[&str]| {
            let words = [&["plumbd", "--bird-socket", path], more].concat();
            let program: Program = clap::Parser::parse_from(words);
            program.node.expected_bird_socket()
        };
        assert_eq!(socket("/run/own/bird.ctl", &[]).as_deref(), Some(Path::new("/run/own/bird.ctl")));
        let usual = host::bird::AGENTS_SOCKET;
        let bgp = ["--networking-backend", "bird"];
        assert_eq!(socket(usual, &["--networking-backend", "none"]), None);
        assert_eq!(socket(usual, &bgp).as_deref(), Some(Path::new(usual)), "the agent runs BGP through it");
        let observes = [&bgp[..], &["--observe"]].concat();
        assert_eq!(socket(usual, &observes), None, "an observer runs no BGP");
    }

    #[test]
    fn inside_kubernetes_sqlite_is_never_the_fallback() {
        let inside = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| OsString::from("10.0.0.1"));
        assert!(!matches!(store_config_from(&inside), Ok((StoreConfig::Sqlite { .. }, _))));
        let named = |name: &str| match name {
            "DATASTORE_TYPE" => Some(OsString::from("sqlite")),
            other => inside(other),
        };
        assert!(matches!(store_config_from(&named).unwrap().0, StoreConfig::Sqlite { .. }));
        assert_eq!(store_config_from(&|_| None).unwrap().1, Reason::Fallback);
    }
}
