//! What `plumbd node` is told: flags first, then the environment, then what is usual.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use doctor::evidence::node::AgentMode;
use host::Host;
use host::cri::RuntimeClient;
use model::names::NodeName;
use store::StoreConfig;
use store::config::{Overrides, Reason, Sources};

use crate::bgp::{BgpOptions, BirdPlaces};
use crate::cni::STATE_FOLDER;
use crate::runtime::Runtime;
use crate::variables;

/// Where Calico's node agent leaves the node's name, and its plugin looks for it.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";
/// Where it leaves the MTU of pods, for plugins.
const MTU_FILE: &str = "/var/lib/calico/mtu";

/// Settings of the node's agent.
#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// This node's name [default: the nodename file, else the machine's name].
    #[arg(long, env = "NODENAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,

    /// Where plugins call.
    #[arg(long, default_value = "/run/plumb/agent.sock", value_name = "PATH")]
    pub(super) socket: PathBuf,

    /// Where attachments and queued DELs are remembered.
    #[arg(long, default_value = STATE_FOLDER, value_name = "FOLDER")]
    pub(super) state_dir: PathBuf,

    /// Where to leave the MTU of pods for plugins [default: /var/lib/calico/mtu; with a state folder of its own, mtu in that].
    #[arg(long, env = "PLUMB_MTU_FILE", value_name = "FILE")]
    pub(super) mtu_file: Option<PathBuf>,

    /// The container runtime's socket [default: the first usual one that exists].
    #[arg(long, env = "CONTAINER_RUNTIME_ENDPOINT", value_name = "SOCKET")]
    pub(super) cri_socket: Option<String>,

    /// What has no owner is removed when two looks, this far apart, agree on it.
    #[arg(long, env = "PLUMB_GRACE", default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub(super) grace: Duration,

    /// How often to look for what is wrong with this node, for the metric plumb_findings; 0s for never.
    #[arg(long, env = "PLUMB_DOCTOR_EVERY", default_value = "5m", value_parser = parse_duration, value_name = "TIME")]
    pub(super) doctor_every: Duration,

    /// Only look: answer `plumb doctor` and count findings, and change nothing. For a node whose network is another's,
    /// such as Calico's.
    #[arg(long, env = "PLUMB_OBSERVE")]
    pub(super) observe: bool,

    /// With --observe: also carry out what `plumb repair --apply` asks for on this node, and nothing besides.
    #[arg(long, env = "PLUMB_REPAIR")]
    pub(super) repair: bool,

    /// `bird` to speak BGP through BIRD; `vxlan` or `none` not to.
    #[arg(long, env = "CALICO_NETWORKING_BACKEND", default_value = "none", value_parser = ["bird", "vxlan", "none"], value_name = "BACKEND")]
    pub(super) networking_backend: String,

    /// BIRD's program; `external` if somebody else runs it.
    #[arg(long, env = "PLUMB_BIRD", default_value = "bird", value_name = "PROGRAM")]
    pub(super) bird: String,

    /// BIRD's configuration, which the agent writes [default: bird.conf in the state folder].
    #[arg(long, env = "PLUMB_BIRD_CONFIG", value_name = "FILE")]
    pub(super) bird_config: Option<PathBuf>,

    /// BIRD's control socket.
    #[arg(long, env = "PLUMB_BIRD_SOCKET", default_value = host::bird::AGENTS_SOCKET, value_name = "PATH")]
    pub(super) bird_socket: PathBuf,

    /// Passwords of BGP: the key KEY of a secret NAME is the file NAME/KEY in here.
    #[arg(long, env = "PLUMB_BGP_SECRETS", default_value = "/etc/plumb/secrets", value_name = "FOLDER")]
    pub(super) bgp_secrets: PathBuf,

    /// The number that BGP knows this node by [default: its IPv4 address].
    #[arg(long, env = "CALICO_ROUTER_ID", value_name = "ADDRESS")]
    pub(super) router_id: Option<String>,

    /// Where to serve /liveness, /readiness and /metrics; `off` for nowhere.
    #[arg(long, env = "PLUMB_HEALTH_ADDRESS", default_value = "127.0.0.1:9099", value_name = "ADDRESS")]
    pub(super) health_address: String,

    /// How much to log: error, warn, info, debug or trace.
    #[arg(long, env = "PLUMB_LOG", default_value = "info", value_name = "LEVEL")]
    pub(super) log: String,
}

impl NodeArguments {
    /// The node's name, by Calico's rules.
    pub(super) fn name(&self) -> Result<String> {
        let said = self.node_name.clone().filter(|name| !name.is_empty());
        let from_file = || {
            let text = std::fs::read_to_string(NODENAME_FILE).ok()?;
            Some(text.trim().to_owned()).filter(|name| !name.is_empty())
        };
        let own = || {
            let name = Host::machine_name().ok()?.trim().to_ascii_lowercase();
            Some(name).filter(|name| !name.is_empty())
        };
        let name = said.or_else(from_file).or_else(own).context("this node has no name; set NODENAME")?;
        name.parse::<NodeName>().with_context(|| format!("{name:?} cannot be a node's name"))?;
        Ok(name)
    }

    /// The machine's file is for the machine's agent.
    pub(super) fn mtu_file(&self) -> PathBuf {
        self.mtu_file.clone().unwrap_or_else(|| match self.state_dir.as_os_str() == STATE_FOLDER {
            true => PathBuf::from(MTU_FILE),
            false => self.state_dir.join("mtu"),
        })
    }

    /// An agent that acts repairs anyway.
    pub(super) fn mode(&self) -> AgentMode {
        match (self.observe, self.repair) {
            (false, _) => AgentMode::Acts,
            (true, false) => AgentMode::Observes,
            (true, true) => AgentMode::Repairs,
        }
    }

    /// Where there must be a BIRD: this agent speaks BGP through it, or somebody said where it is. At the default place, which
    /// evidence tries anyway, a node that speaks no BGP has none, and that is no trouble to tell of.
    pub(super) fn expected_bird_socket(&self) -> Option<PathBuf> {
        let speaks_bgp = self.networking_backend == "bird" && self.mode() == AgentMode::Acts;
        let is_unusual = self.bird_socket != Path::new(host::bird::AGENTS_SOCKET);
        Some(self.bird_socket.clone()).filter(|_| speaks_bgp || is_unusual)
    }

    /// How BGP is spoken, if it is.
    pub(super) fn bgp(&self) -> Result<Option<BgpOptions>> {
        if self.networking_backend != "bird" {
            return Ok(None);
        }
        // Calico's word for a number out of the node's name, which is what a node without IPv4 gets anyway.
        let router_id = self.router_id.as_deref().filter(|id| !id.is_empty() && *id != "hash");
        let router_id = router_id
            .map(|id| id.parse().with_context(|| format!("CALICO_ROUTER_ID {id:?} is no IPv4 address")));
        let config = self.bird_config.clone().unwrap_or_else(|| self.state_dir.join("bird.conf"));
        let places = BirdPlaces { program: self.bird.clone(), config, socket: self.bird_socket.clone() };
        Ok(Some(BgpOptions { places, secrets: self.bgp_secrets.clone(), router_id: router_id.transpose()? }))
    }

    /// The runtime to ask.
    pub(super) fn runtime(&self) -> Result<Runtime> {
        match self.cri_socket.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            Some(endpoint) => Ok(Runtime::Named(RuntimeClient::from_endpoint(endpoint)?)),
            None => Ok(Runtime::usual()),
        }
    }
}

/// The store that the environment names. Inside Kubernetes a file of this node's own is never what was meant.
pub(super) fn store_config() -> Result<(StoreConfig, Reason)> {
    store_config_from(&variables::os)
}

fn store_config_from(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<(StoreConfig, Reason)> {
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        // A file of the operator's tool does not decide about the node.
        default_config_file: PathBuf::new(),
        environment,
        agent_settings: None,
    };
    let selected = StoreConfig::from_sources(&sources)?;
    let is_in_kubernetes = environment("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
    if is_in_kubernetes && selected.reason == Reason::Fallback {
        bail!("no store is named, and inside Kubernetes a file on this node is not one; set DATASTORE_TYPE");
    }
    Ok((selected.config, selected.reason))
}

/// `60s`, `500ms`, `2m`, or seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "it must be a time such as 60s".to_owned())?;
    let milliseconds = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("{unit:?} is no unit of time; use ms, s, m or h")),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(|| "it is too long".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in
            [("60s", 60_000), ("7", 7_000), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["", "s", "1d", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_bird_at_a_place_of_its_own_is_asked_there() {
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
        let speaks = ["--networking-backend", "bird"];
        assert_eq!(socket(usual, &["--networking-backend", "none"]), None);
        assert_eq!(socket(usual, &speaks).as_deref(), Some(Path::new(usual)), "BGP is spoken through it");
        let observes = [&speaks[..], &["--observe"]].concat();
        assert_eq!(socket(usual, &observes), None, "an observer speaks none");
    }

    #[test]
    fn a_file_is_never_fallen_back_to_inside_kubernetes() {
        let inside = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| OsString::from("10.0.0.1"));
        assert!(!matches!(store_config_from(&inside), Ok((StoreConfig::Sqlite { .. }, _))));
        let named = |name: &str| match name {
            "DATASTORE_TYPE" => Some(OsString::from("sqlite")),
            other => inside(other),
        };
        assert!(matches!(store_config_from(&named).unwrap().0, StoreConfig::Sqlite { .. }));
        assert_eq!(store_config_from(&|_| None).unwrap().1, Reason::Fallback);
    }

    proptest! {
        #[test]
        fn any_text_can_be_tried(text in "\\PC{0,12}") {
            let _ = parse_duration(&text);
        }
    }
}
