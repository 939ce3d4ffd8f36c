//! A real podman with its CNI backend, with everything it writes in the machine's own folder.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use testkit::process::run;

use crate::node::{NETWORK, Node};
use crate::{image, machine};

/// What this machine lacks to run it, if anything.
pub(crate) fn missing() -> Option<String> {
    machine::missing(&["podman", "conmon", "runc", "tar", "sha256sum"]).or_else(image::missing)
}

#[derive(Debug)]
pub(crate) struct Podman<'n> {
    node: &'n Node,
}

impl<'n> Podman<'n> {
    pub(crate) fn new(node: &'n Node) -> Result<Podman<'n>> {
        let podman = Podman { node };
        fs::write(podman.file("containers.conf"), podman.configuration())?;
        fs::write(podman.file("storage.conf"), podman.storage())?;
        let archive = image::archive(node.machine.folder())?;
        run(podman.command(&["load", "--quiet", "--input"]).arg(archive))?;
        Ok(podman)
    }

    /// Starts a container that sleeps; the address it says it has.
    pub(crate) fn start(&self, name: &str, options: &[&str]) -> Result<IpAddr> {
        let cgroup = format!("/{}", self.node.machine.cgroup());
        let mut command = self.command(&["run", "--detach", "--name", name, "--network", NETWORK]);
        command.args(["--cgroup-parent", &cgroup]).args(options).arg(image::NAME);
        run(&mut command)?;
        let format = format!("{{{{.NetworkSettings.Networks.{NETWORK}.IPAddress}}}}");
        let address = self.run(&["inspect", "--format", &format, name])?;
        address.trim().parse().with_context(|| format!("the container's address: {address:?}"))
    }

    pub(crate) fn can_ping(&self, name: &str, address: &str) -> bool {
        self.run(&["exec", name, "ping", "-c", "1", "-W", "5", address]).is_ok()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = run(&mut self.command(arguments))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.node.machine.command("podman");
        command.args(arguments);
        command.env("CONTAINERS_CONF", self.file("containers.conf"));
        command.env("CONTAINERS_STORAGE_CONF", self.file("storage.conf"));
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.node.machine.folder().join(name)
    }

    fn configuration(&self) -> String {
        format!(
            r#"[network]
network_backend = "cni"
cni_plugin_dirs = ["{plugins}"]
network_config_dir = "{configurations}"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
[containers]
# Its own wishes may be beyond what this machine's limits allow.
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"#,
            plugins = self.node.plugins().display(),
            configurations = self.node.configurations().display(),
        )
    }

    fn storage(&self) -> String {
        let root = self.file("podman");
        format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"/run/containers\"\n",
            root.display()
        )
    }
}
