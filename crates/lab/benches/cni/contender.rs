//! Who is measured: each on a node of its own, so that nobody watches the others' devices.

use std::fs::File;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use lab::{Lab, Node};
use serde_json::{Value, json};
use testkit::process::{Process, command, wait_until};

use crate::Extent;
use crate::place::Place;
use crate::plugin::{self, Plugin};
use crate::rounds::Rounds;

/// What a contender is, as far as figures depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    AgentOnSqlite,
    AgentOnEtcd,
    /// Without an agent. Information only.
    OneShotOnSqlite,
    Ptp,
    Bridge,
}

#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) who: Who,
    pub(crate) plugin: Plugin,
    // Before its node, so that it ends first.
    pub(crate) agent: Option<Process>,
    pub(crate) node: Node,
    pub(crate) singles: Rounds,
    /// Single ones while every core is busy.
    pub(crate) crowded: Rounds,
    /// Smaller and larger ones.
    pub(crate) bursts: [Rounds; 2],
}

/// All of them, ready to serve. The agent on etcd is on etcd's own node.
pub(crate) fn all(lab: &Lab, etcd_node: Node, etcd: &Place) -> Result<Vec<Contender>> {
    let data = |name: &str| lab.folder().join(name);
    let sqlite = |name: &str| Place::Sqlite(data(&format!("{name}.db")));
    let others = vec![
        Contender::one_shot(lab, lab.node("oneshot")?, &sqlite("oneshot"))?,
        Contender::new(Who::Ptp, lab.node("ptp")?, Plugin::ptp(&data("ptp"))),
        Contender::new(Who::Bridge, lab.node("bridge")?, Plugin::bridge(&data("bridge"))),
    ];
    let mut contenders = vec![
        Contender::with_agent(Who::AgentOnSqlite, lab, lab.node("sqlite")?, &sqlite("agent"))?,
        Contender::with_agent(Who::AgentOnEtcd, lab, etcd_node, etcd)?,
    ];
    contenders.extend(others);
    Ok(contenders)
}

pub(crate) fn find(contenders: &[Contender], who: Who) -> &Contender {
    contenders.iter().find(|contender| contender.who == who).expect("everybody is measured")
}

impl Contender {
    fn new(who: Who, node: Node, plugin: Plugin) -> Contender {
        let (singles, crowded, bursts) = Default::default();
        Contender { who, plugin, node, singles, crowded, bursts, agent: None }
    }

    fn one_shot(lab: &Lab, node: Node, store: &Place) -> Result<Contender> {
        store.fill()?;
        let netconf = netconf(&node, store.netconf());
        let plugin = Plugin::new(lab.programs().cni(), netconf);
        let plugin = plugin.with("state_dir", json!(lab.state_folder(&node)));
        Ok(Contender::new(Who::OneShotOnSqlite, node, plugin))
    }

    fn with_agent(who: Who, lab: &Lab, node: Node, store: &Place) -> Result<Contender> {
        node.namespace().visit(|| store.fill())??;
        let folder = lab.folder().join(format!("{}-state", node.name()));
        std::fs::create_dir(&folder)?;
        let socket = folder.join("agent.sock");
        let agent = start_agent(lab, &node, store, &folder)?;
        let netconf = netconf(&node, json!({"agent_socket": socket, "state_dir": folder}));
        let plugin = Plugin::new(plugin::released()?, netconf);
        let contender = Contender { agent: Some(agent), ..Contender::new(who, node, plugin) };
        let pod = lab.pod("bench", "first")?;
        let serves = || contender.visit(|| contender.plugin.call("ADD", &pod).is_ok()).unwrap_or(false);
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        wait_until("the agent to serve", serves).with_context(log)?;
        contender.visit(|| contender.plugin.call("DEL", &pod).map(drop))??;
        Ok(contender)
    }

    /// Runs `act` on the contender's node.
    pub(crate) fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        self.node.namespace().visit(act)
    }

    /// One pod that comes and goes.
    pub(crate) fn single(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let Contender { who, plugin, node, singles, .. } = self;
        let measured = node.namespace().visit(|| singles.single(lab, plugin, name))?;
        measured.with_context(|| format!("measuring {who:?}"))
    }

    pub(crate) fn crowded_single(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let Contender { who, plugin, node, crowded, .. } = self;
        let measured = node.namespace().visit(|| crowded.single(lab, plugin, name))?;
        measured.with_context(|| format!("measuring {who:?} on busy cores"))
    }

    /// Pods that come all at once, and go all at once. Not without an agent: nobody gathers calls then, and what many at
    /// once cost is not what this is about.
    pub(crate) fn burst(&mut self, lab: &Lab, extent: Extent, which: usize) -> Result<()> {
        let Contender { who, plugin, node, bursts, .. } = self;
        if *who == Who::OneShotOnSqlite {
            return Ok(());
        }
        let measured = node.namespace().visit(|| bursts[which].burst(lab, plugin, extent.bursts[which]))?;
        measured.with_context(|| format!("measuring {who:?}"))
    }
}

fn netconf(node: &Node, mut own: Value) -> Value {
    let common = json!({
        "cniVersion": "1.0.0", "name": Lab::NETWORK, "type": "plumb-cni", "nodename": node.name(), "mtu": 1450,
        "log_level": "warn",
    });
    for (key, value) in common.as_object().into_iter().flatten() {
        own[key] = value.clone();
    }
    own
}

fn start_agent(lab: &Lab, node: &Node, store: &Place, folder: &std::path::Path) -> Result<Process> {
    let log = File::create(folder.join("log"))?;
    let mut agent = command("nsenter");
    agent.arg(format!("--net={}", node.namespace().path().display()));
    agent.arg(lab.programs().daemon()).args(["node", "--node-name", node.name(), "--health-address", "off"]);
    agent.arg("--socket").arg(folder.join("agent.sock")).arg("--state-dir").arg(folder);
    agent
        .envs(store.environment())
        .env("NO_DEFAULT_POOLS", "true")
        .env("IP", "none")
        .env("PLUMB_LOG", "warn");
    agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok(Process::spawn(agent)?)
}
