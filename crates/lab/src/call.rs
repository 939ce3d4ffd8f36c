//! The plugin, called as a runtime calls it.

use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{Lab, Node, Pod, Programs};

/// One call. Made by [`CniCall::new`], changed where a test wants something odd, then run.
#[derive(Clone, Debug)]
pub struct CniCall {
    programs: Programs,
    pub netconf: Value,
    /// Besides `CNI_PATH`. An entry with an empty value is passed as such.
    pub environment: Vec<(String, String)>,
    /// A program that executes the plugin, with its arguments: `setpriv …`. Empty for none.
    pub starter: Vec<String>,
}

/// What the plugin answered.
#[derive(Clone, Debug)]
pub struct CniOutcome {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

impl CniCall {
    pub fn new(lab: &Lab, node: &Node, verb: &str, pod: &Pod) -> CniCall {
        let arguments = format!(
            "K8S_POD_UID={};IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
            pod.uid, pod.namespace, pod.name, pod.container_id
        );
        let netns = pod.netns().path().display().to_string();
        let environment = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &pod.container_id),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", &pod.interface),
            ("CNI_ARGS", &arguments),
        ];
        let environment =
            environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        CniCall {
            programs: lab.programs().clone(),
            netconf: lab.netconf(node),
            environment,
            starter: Vec::new(),
        }
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> CniCall {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn with_netconf(mut self, key: &str, value: impl Into<Value>) -> CniCall {
        self.netconf[key] = value.into();
        self
    }

    /// Starts the plugin on the node, with its input already given.
    pub fn spawn(&self, node: &Node) -> Result<Child> {
        let mut command = match self.starter.split_first() {
            None => Command::new(self.programs.cni()),
            Some((starter, arguments)) => {
                let mut command = Command::new(starter);
                command.args(arguments).arg(self.programs.cni());
                command
            }
        };
        command
            .env_clear()
            .env("CNI_PATH", self.programs.folder())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = node.namespace().visit(|| command.spawn())?.context("cannot run plumb-cni")?;
        let mut input = child.stdin.take().context("the plugin has an input")?;
        input.write_all(self.netconf.to_string().as_bytes()).context("the plugin takes its input")?;
        Ok(child)
    }

    pub fn run(&self, node: &Node) -> Result<CniOutcome> {
        let output = self.spawn(node)?.wait_with_output()?;
        Ok(CniOutcome::from(output))
    }
}

impl From<Output> for CniOutcome {
    fn from(output: Output) -> CniOutcome {
        CniOutcome {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl CniOutcome {
    /// The answer, which must be JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout)
            .with_context(|| format!("the plugin answered {:?} (log: {})", self.stdout, self.stderr))
    }

    /// The answer of a call that must have succeeded.
    pub fn result(&self) -> Result<Value> {
        ensure!(self.success, "the plugin failed: {}{}", self.stdout, self.stderr);
        self.json()
    }

    /// The pod's address in the answer of an ADD that must have succeeded.
    pub fn address(&self) -> Result<IpAddr> {
        let result = self.result()?;
        let text = result["ips"][0]["address"].as_str().unwrap_or_default();
        let Some((address, _prefix)) = text.split_once('/') else { bail!("no address in {result}") };
        address.parse().with_context(|| format!("{text:?} is not an address"))
    }

    /// Code and message of a call that must have failed.
    pub fn error(&self) -> Result<(u64, String)> {
        ensure!(!self.success, "the plugin succeeded: {}", self.stdout);
        let error = self.json()?;
        let code = error["code"].as_u64().with_context(|| format!("no code in {error}"))?;
        Ok((code, error["msg"].as_str().unwrap_or_default().to_owned()))
    }
}
