//! A real containerd, with everything it writes in the machine's own folder, driven over its CRI as kubelet does.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::process::{Process, wait_until};

use crate::cri::{self, Cri};
use crate::node::Node;
use crate::{image, machine, node};

const NAMESPACE: &str = "k8s.io";

/// What this machine lacks to run it, if anything.
pub(crate) fn missing() -> Option<String> {
    let programs = machine::missing(&["containerd", "ctr", "runc", "tar", "sha256sum"]);
    programs.or_else(image::missing).or_else(|| node::missing_plugin(&["loopback"]))
}

#[derive(Debug)]
pub(crate) struct Containerd<'n> {
    node: &'n Node,
    /// None while it is stopped.
    running: Option<(Process, Cri)>,
    pods: AtomicU32,
}

/// A pod that it runs.
#[derive(Clone, Debug)]
pub(crate) struct CriPod {
    pub(crate) id: String,
    pub(crate) address: IpAddr,
    pub(crate) netns: PathBuf,
}

impl<'n> Containerd<'n> {
    pub(crate) fn start(node: &'n Node) -> Result<Containerd<'n>> {
        let mut containerd = Containerd { node, running: None, pods: AtomicU32::new(0) };
        fs::write(containerd.file("config.toml"), containerd.configuration())?;
        let archive = image::archive(node.machine.folder())?;
        containerd.launch()?;
        let mut import = node.machine.command("ctr");
        import.arg("--address").arg(containerd.socket()).args(["--namespace", NAMESPACE, "image", "import"]);
        testkit::process::run(import.arg(archive))?;
        Ok(containerd)
    }

    /// `kill -9`, then a new one. Pods run on: their shims are processes of their own.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.launch()
    }

    fn kill(&mut self) -> Result<()> {
        let pid = fs::read_to_string(self.file("containerd.pid"))?;
        self.node.machine.run("kill", &["-9", pid.trim()])?;
        let (mut entered, _) = self.running.take().context("containerd is running")?;
        wait_until("containerd to end", || entered.exit_status().is_some())
    }

    /// Everything goes at once, and the machine starts again.
    pub(crate) fn lose_power(&mut self) -> Result<()> {
        self.running = None;
        self.node.machine.reboot()?;
        self.launch()
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.file("containerd.log"))?;
        let mut command = self.node.machine.command("sh");
        // The number is that inside the machine, where it is killed.
        command.args(["-c", "echo $$ > \"$1\"; exec containerd --config \"$2\"", "sh"]);
        command.arg(self.file("containerd.pid")).arg(self.file("config.toml"));
        command.stdout(log.try_clone()?).stderr(log);
        let process = Process::spawn(command)?;
        let mut cri = None;
        let ready = || {
            cri = Cri::connect(&self.socket()).ok().filter(|cri| cri.call(cri::Status {}).is_ok());
            cri.is_some()
        };
        wait_until("containerd to answer", ready).with_context(|| self.log_tail())?;
        self.running = Some((process, cri.context("it answered")?));
        Ok(())
    }

    /// Whether it says that pods can have a network.
    pub(crate) fn is_network_ready(&self) -> Result<bool> {
        let conditions = self.cri().call(cri::Status {})?.status.unwrap_or_default().conditions;
        Ok(conditions.iter().any(|condition| condition.kind == "NetworkReady" && condition.is_met))
    }

    pub(crate) fn wait_for_network(&self) -> Result<()> {
        wait_until("containerd to take up the network", || self.is_network_ready().unwrap_or(false))
            .with_context(|| self.log_tail())
    }

    /// A pod of which there was none before.
    pub(crate) fn new_pod(&self, name: &str) -> cri::PodSandboxConfig {
        let attempt = self.pods.fetch_add(1, Ordering::Relaxed);
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("00000000-0000-4000-8000-{attempt:012}"),
                namespace: "shop".to_owned(),
                attempt,
            }),
            log_directory: self.file("logs").display().to_string(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}", self.node.machine.cgroup()),
            }),
            ..cri::PodSandboxConfig::default()
        }
    }

    pub(crate) fn run(&self, pod: cri::PodSandboxConfig) -> Result<CriPod> {
        let id = self.cri().call(cri::RunPodSandbox { config: Some(pod) })?.pod_sandbox_id;
        let answer = self.cri().call(cri::PodSandboxStatus { pod_sandbox_id: id.clone(), verbose: true })?;
        let address = answer.status.and_then(|status| status.network).unwrap_or_default().ip;
        let info: Value = serde_json::from_str(answer.info.get("info").context("verbose information")?)?;
        let namespaces = info.pointer("/runtimeSpec/linux/namespaces").and_then(Value::as_array);
        let network = namespaces.into_iter().flatten().find(|namespace| namespace["type"] == "network");
        let netns = network.and_then(|network| network["path"].as_str()).context("a network namespace")?;
        let address = address.parse().with_context(|| format!("the pod's address: {address:?}"))?;
        Ok(CriPod { id, address, netns: netns.into() })
    }

    pub(crate) fn stop(&self, id: &str) -> Result<()> {
        self.cri().call(cri::StopPodSandbox { pod_sandbox_id: id.to_owned() }).map(drop)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        self.cri().call(cri::RemovePodSandbox { pod_sandbox_id: id.to_owned() }).map(drop)
    }

    /// As kubelet ends a pod: stop, stop once more before the sandbox is collected, remove.
    pub(crate) fn end(&self, id: &str) -> Result<()> {
        self.stop(id)?;
        self.stop(id)?;
        self.remove(id)
    }

    /// The sandboxes it knows, ready or not.
    pub(crate) fn list(&self) -> Result<Vec<cri::PodSandbox>> {
        Ok(self.cri().call(cri::ListPodSandbox {})?.items)
    }

    /// Ends whatever pods there are, also those that failed half way.
    pub(crate) fn end_all(&self) -> Result<()> {
        for sandbox in self.list()? {
            self.end(&sandbox.id)?;
        }
        ensure!(self.list()?.is_empty(), "sandboxes are left");
        Ok(())
    }

    fn cri(&self) -> &Cri {
        &self.running.as_ref().expect("containerd is running").1
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.file("containerd.sock")
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.file("containerd.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.node.machine.folder().join(name)
    }

    /// What belongs to a running system is in `/run`, so that it is gone after a power cut.
    fn configuration(&self) -> String {
        format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
# It would make a folder in /opt.
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{configurations}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#,
            root = self.file("containerd").display(),
            socket = self.socket().display(),
            image = image::NAME,
            plugins = self.node.plugins().display(),
            configurations = self.node.configurations().display(),
        )
    }
}
