//! A runtime that uses a container's ID again, which kubelets do not and others do.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use lab::kubelet::{PodReport, PodState};
use serde_json::Value;

use crate::scene::{NODE, Scene};

const CONTAINER: &str = "0123456789abcdef";
pub(crate) const NAMESPACE: &str = "again";

pub(crate) struct Direct {
    /// What the plugin reads.
    config: String,
}

impl Direct {
    /// With a namespace of its own on the scene's node.
    pub(crate) fn new(scene: &Scene) -> Result<Direct> {
        scene.lab.run_on(NODE, &["ip", "netns", "add", NAMESPACE])?;
        scene.lab.run_on(NODE, &["ip", "-n", NAMESPACE, "link", "set", "lo", "up"])?;
        let conflist = fs::read(scene.root()?.join("etc/cni/net.d/10-plumb.conflist"))?;
        let mut conflist: Value = serde_json::from_slice(&conflist)?;
        let mut config = conflist["plugins"][0].take();
        for key in ["name", "cniVersion"] {
            config[key] = conflist[key].take();
        }
        Ok(Direct { config: config.to_string() })
    }

    pub(crate) fn add(&self, scene: &Scene) -> Result<PodReport> {
        let output = self.call(scene, "ADD")?;
        let answer = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "ADD failed: {answer}");
        let answer: Value = serde_json::from_str(&answer)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text in ADD's answer");
        let ips = answer["ips"].as_array().context("addresses in ADD's answer")?;
        let address = |ip: &Value| Ok(text(&ip["address"])?.split('/').next().unwrap_or_default().to_owned());
        Ok(PodReport {
            namespace: "default".to_owned(),
            name: CONTAINER.to_owned(),
            uid: String::new(),
            state: PodState::Running,
            container_id: CONTAINER.to_owned(),
            netns: format!("/run/netns/{NAMESPACE}"),
            device: text(&answer["interfaces"][0]["name"])?,
            addresses: ips.iter().map(address).collect::<Result<_>>()?,
            attempts: 1,
            last_error: None,
        })
    }

    pub(crate) fn del(&self, scene: &Scene) -> Result<()> {
        let output = self.call(scene, "DEL")?;
        ensure!(output.status.success(), "DEL failed: {}", String::from_utf8_lossy(&output.stdout));
        Ok(())
    }

    /// The namespace goes.
    pub(crate) fn close(&self, scene: &Scene) -> Result<()> {
        scene.lab.run_on(NODE, &["ip", "netns", "del", NAMESPACE]).map(|_| ())
    }

    fn call(&self, scene: &Scene, verb: &str) -> Result<Output> {
        let mut command = scene.lab.command_on(NODE)?;
        command.arg("/opt/cni/bin/plumb-cni");
        command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", CONTAINER).env("CNI_IFNAME", "eth0");
        command.env("CNI_NETNS", format!("/run/netns/{NAMESPACE}")).env("CNI_PATH", "/opt/cni/bin");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot run the plugin")?;
        child.stdin.take().context("the plugin has an input")?.write_all(self.config.as_bytes())?;
        Ok(child.wait_with_output()?)
    }
}
