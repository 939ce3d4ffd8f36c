//! A plugin, called as a runtime calls it, and timed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::Pod;
use serde_json::{Value, json};

/// Where Debian keeps the plugins that we are measured against.
const PEERS: &str = "/usr/lib/cni";

/// What is needed of others, and lacking.
pub(crate) fn missing() -> Option<String> {
    let missing =
        ["ptp", "bridge", "host-local"].into_iter().find(|name| !Path::new(PEERS).join(name).is_file())?;
    Some(format!("{PEERS}/{missing} (Debian package containernetworking-plugins) is not installed"))
}

#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    program: PathBuf,
    netconf: Value,
}

/// Our own plugin as it is released: static. Built once.
pub(crate) fn released() -> Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(built) = BUILT.get() {
        return Ok(built.clone());
    }
    let built = testkit::release::build("plumb-cni")?;
    Ok(BUILT.get_or_init(|| built).clone())
}

impl Plugin {
    pub(crate) fn new(program: impl Into<PathBuf>, netconf: Value) -> Plugin {
        Plugin { program: program.into(), netconf }
    }

    /// The veth to the node with a route, and addresses from files: the closest to what we do.
    pub(crate) fn ptp(data: &Path) -> Plugin {
        let netconf = json!({
            "cniVersion": "1.0.0", "name": "ptp", "type": "ptp",
            "ipam": host_local(data, "10.88.0.0/16"),
        });
        Plugin::new(Path::new(PEERS).join("ptp"), netconf)
    }

    pub(crate) fn bridge(data: &Path) -> Plugin {
        let netconf = json!({
            "cniVersion": "1.0.0", "name": "bridge", "type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": host_local(data, "10.89.0.0/16"),
        });
        Plugin::new(Path::new(PEERS).join("bridge"), netconf)
    }

    /// The same with another setting.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Plugin {
        self.netconf[key] = value;
        self
    }

    /// From exec to exit. The calling thread is on the plugin's node.
    pub(crate) fn call(&self, verb: &str, pod: &Pod) -> Result<Duration> {
        self.run(verb, pod).map(|(took, _)| took)
    }

    /// What it answers.
    pub(crate) fn ask(&self, verb: &str, pod: &Pod) -> Result<Value> {
        let (_, said) = self.run(verb, pod)?;
        serde_json::from_slice(&said).with_context(|| format!("the answer to {verb}"))
    }

    fn run(&self, verb: &str, pod: &Pod) -> Result<(Duration, Vec<u8>)> {
        let input = self.netconf.to_string();
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &pod.container_id)
            .env("CNI_NETNS", pod.netns().path())
            .env("CNI_IFNAME", &pod.interface)
            .env("CNI_PATH", PEERS)
            .env(
                "CNI_ARGS",
                format!(
                    "K8S_POD_UID={};IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={}",
                    pod.uid, pod.namespace, pod.name
                ),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        child.stdin.take().context("an input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let took = started.elapsed();
        let said = || String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "{} {verb}: {}", self.program.display(), said());
        Ok((took, output.stdout))
    }
}

fn host_local(data: &Path, subnet: &str) -> Value {
    json!({
        "type": "host-local", "dataDir": data, "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}],
    })
}
