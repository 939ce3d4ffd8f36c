//! A real containerd, with everything it writes in the machine's own folder, driven over its CRI as kubelet does.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use host::cri::messages::{
    Call, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PodSandboxStatusRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StopPodSandboxRequest,
};
use host::cri::{CriError, RuntimeClient, Sandboxes};
use testkit::PATIENCE;
use testkit::process::{Process, wait_until};
use tokio::runtime::Runtime;

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
    client: RuntimeClient,
    /// On which the client's questions are asked, by any thread.
    runtime: Runtime,
    /// None while it is stopped.
    process: Option<Process>,
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
        let mut containerd = Containerd {
            node,
            client: RuntimeClient::new(node.runtime_socket()).with_patience(5 * PATIENCE),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
            process: None,
            pods: AtomicU32::new(0),
        };
        fs::write(containerd.file("config.toml"), containerd.configuration())?;
        let archive = image::archive(node.machine.folder())?;
        containerd.launch()?;
        let mut import = node.machine.command("ctr");
        import.arg("--address").arg(containerd.client.socket()).args([
            "--namespace",
            NAMESPACE,
            "image",
            "import",
        ]);
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
        let mut entered = self.process.take().context("containerd is running")?;
        wait_until("containerd to end", || entered.exit_status().is_some())
    }

    /// Everything goes at once, and the machine starts again.
    pub(crate) fn lose_power(&mut self) -> Result<()> {
        self.process = None;
        self.node.reboot()?;
        self.launch()
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.file("containerd.log"))?;
        let mut command = self.node.machine.command("sh");
        // The number is that inside the machine, where it is killed.
        command.args(["-c", "echo $$ > \"$1\"; exec containerd --config \"$2\"", "sh"]);
        command.arg(self.file("containerd.pid")).arg(self.file("config.toml"));
        command.stdout(log.try_clone()?).stderr(log);
        self.process = Some(Process::spawn(command)?);
        wait_until("containerd to answer", || self.ask(self.client.version()).is_ok())
            .with_context(|| self.log_tail())
    }

    /// Whether it says that pods can have a network.
    fn is_network_ready(&self) -> bool {
        let condition = self.ask(self.client.network()).ok().flatten();
        condition.is_some_and(|condition| condition.is_ready)
    }

    pub(crate) fn wait_for_network(&self) -> Result<()> {
        wait_until("containerd to take up the network", || self.is_network_ready())
            .with_context(|| self.log_tail())
    }

    /// A pod of which there was none before.
    pub(crate) fn new_pod(&self, name: &str) -> PodSandboxConfig {
        let attempt = self.pods.fetch_add(1, Ordering::Relaxed);
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("00000000-0000-4000-8000-{attempt:012}"),
                namespace: "shop".to_owned(),
                attempt,
            }),
            log_directory: self.file("logs").display().to_string(),
            linux: Some(LinuxPodSandboxConfig { cgroup_parent: format!("/{}", self.node.machine.cgroup()) }),
            ..PodSandboxConfig::default()
        }
    }

    pub(crate) fn run(&self, pod: PodSandboxConfig) -> Result<CriPod> {
        let id = self.call(RunPodSandboxRequest { config: Some(pod) })?.pod_sandbox_id;
        let answer = self.call(PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false })?;
        let address = answer.status.and_then(|status| status.network).unwrap_or_default().ip;
        let address = address.parse().with_context(|| format!("the pod's address: {address:?}"))?;
        let netns =
            self.ask(self.client.namespace_of(&id))?.context("the sandbox has a network namespace")?;
        Ok(CriPod { id, address, netns })
    }

    pub(crate) fn stop(&self, id: &str) -> Result<()> {
        self.call(StopPodSandboxRequest { pod_sandbox_id: id.to_owned() }).map(drop)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        self.call(RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() }).map(drop)
    }

    /// As kubelet ends a pod: stop, stop once more before the sandbox is collected, remove.
    pub(crate) fn end(&self, id: &str) -> Result<()> {
        self.stop(id)?;
        self.stop(id)?;
        self.remove(id)
    }

    /// The sandboxes it knows, ready or not.
    pub(crate) fn sandboxes(&self) -> Result<Sandboxes> {
        self.ask(self.client.sandboxes())
    }

    /// Ends whatever pods there are, also those that failed half way.
    pub(crate) fn end_all(&self) -> Result<()> {
        for sandbox in self.sandboxes()?.iter() {
            self.end(&sandbox.id)?;
        }
        ensure!(self.sandboxes()?.is_empty(), "sandboxes are left");
        Ok(())
    }

    fn call<R: Call>(&self, request: R) -> Result<R::Answer> {
        self.ask(self.client.call(request))
    }

    fn ask<T>(&self, question: impl Future<Output = Result<T, CriError>>) -> Result<T> {
        Ok(self.runtime.block_on(question)?)
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
            socket = self.client.socket().display(),
            image = image::NAME,
            plugins = self.node.plugins().display(),
            configurations = self.node.configurations().display(),
        )
    }
}
