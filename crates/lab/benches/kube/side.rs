//! An agent on a store, with the plugin that calls it, on a node of its own.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use lab::{Lab, Node, Pod};
use model::kube::{Layout, access};
use serde_json::json;
use testkit::figures::Run;
use testkit::kube::{Api, KubeApiServer};
use testkit::process::{Process, command, wait_until};

use crate::plugin::Plugin;

/// Of all pods.
const NAMESPACE: &str = "default";

/// How a store is reached.
#[derive(Debug)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    Etcd(String),
    /// With a way to make the pods that an endpoint is a view of.
    Kubernetes {
        kubeconfig: PathBuf,
        api: Api,
    },
}

impl Place {
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        let shown = |path: &PathBuf| path.display().to_string();
        let (kind, name, value) = match self {
            Place::Sqlite(path) => ("sqlite", "SQLITE_PATH", shown(path)),
            Place::Etcd(endpoint) => ("etcdv3", "ETCD_ENDPOINTS", endpoint.clone()),
            Place::Kubernetes { kubeconfig, .. } => ("kubernetes", "KUBECONFIG", shown(kubeconfig)),
        };
        [("DATASTORE_TYPE", kind.to_owned()), (name, value)]
    }
}

pub(crate) struct Side {
    plugin: Plugin,
    // Before its node, so that it ends first.
    pub(crate) agent: Process,
    pub(crate) node: Node,
    place: Place,
    adds: Vec<Duration>,
    pub(crate) runs: Vec<Run>,
}

impl Side {
    /// The store has pools, and knows the node. The program is called as a plugin.
    pub(crate) fn start(
        lab: &Lab,
        node: Node,
        place: Place,
        address: &str,
        program: PathBuf,
    ) -> Result<Side> {
        let folder = lab.folder().join(format!("{}-state", node.name()));
        std::fs::create_dir(&folder)?;
        let agent = start_agent(lab, &node, &place, address, &folder)?;
        let netconf = json!({
            "cniVersion": "1.0.0", "name": Lab::NETWORK, "type": "plumb-cni", "nodename": node.name(), "mtu": 1450,
            "log_level": "warn", "agent_socket": folder.join("agent.sock"), "state_dir": folder,
        });
        let plugin = Plugin::new(program, netconf);
        let (adds, runs) = Default::default();
        let side = Side { plugin, agent, node, place, adds, runs };
        let pods = side.pods(lab, &["first".to_owned()])?;
        let serves = || side.at_once("ADD", &pods).is_ok();
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        wait_until("the agent to serve", serves).with_context(log)?;
        side.at_once("DEL", &pods)?;
        side.remove(&pods)?;
        Ok(side)
    }

    /// Sandboxes, and what an API knows of their pods before a runtime makes them.
    pub(crate) fn pods(&self, lab: &Lab, names: &[String]) -> Result<Vec<Pod>> {
        let pods = names.iter().map(|name| {
            let mut pod = lab.pod(NAMESPACE, name)?;
            if let Place::Kubernetes { api, .. } = &self.place {
                pod.uid = self.node.namespace().visit(|| create_pod(api, self.node.name(), name))??;
            }
            Ok(pod)
        });
        pods.collect()
    }

    /// What a kubelet does after the DEL.
    pub(crate) fn remove(&self, pods: &[Pod]) -> Result<()> {
        let Place::Kubernetes { api, .. } = &self.place else { return Ok(()) };
        self.node.namespace().visit(|| pods.iter().try_for_each(|pod| delete_pod(api, &pod.name)))?
    }

    /// One pod that comes and goes.
    pub(crate) fn single(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let pods = self.pods(lab, &[name.to_owned()])?;
        let took = self.one_by_one("ADD", &pods)?;
        self.adds.extend(took);
        self.one_by_one("DEL", &pods)?;
        self.remove(&pods)
    }

    /// Makes a run of those that came one after another.
    pub(crate) fn end_run(&mut self) {
        self.runs.push(Run::new(std::mem::take(&mut self.adds)));
    }

    pub(crate) fn one_by_one(&self, verb: &str, pods: &[Pod]) -> Result<Vec<Duration>> {
        self.node.namespace().visit(|| pods.iter().map(|pod| self.plugin.call(verb, pod)).collect())?
    }

    pub(crate) fn at_once(&self, verb: &str, pods: &[Pod]) -> Result<()> {
        let start = Barrier::new(pods.len());
        let failure = Mutex::new(None);
        self.node.namespace().visit(|| {
            thread::scope(|scope| {
                for pod in pods {
                    let (start, failure) = (&start, &failure);
                    scope.spawn(move || {
                        start.wait();
                        if let Err(error) = self.plugin.call(verb, pod) {
                            *failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                        }
                    });
                }
            });
        })?;
        failure.into_inner().map_err(|_| anyhow!("a caller broke"))?.map_or(Ok(()), Err)
    }
}

fn start_agent(
    lab: &Lab,
    node: &Node,
    place: &Place,
    address: &str,
    folder: &std::path::Path,
) -> Result<Process> {
    let log = File::create(folder.join("log"))?;
    let mut agent = command("nsenter");
    agent.arg(format!("--net={}", node.namespace().path().display()));
    agent.arg(lab.programs().daemon()).args(["node", "--node-name", node.name(), "--health-address", "off"]);
    agent.arg("--socket").arg(folder.join("agent.sock")).arg("--state-dir").arg(folder);
    agent.envs(place.environment()).env("NO_DEFAULT_POOLS", "true");
    agent.env("IP", address).env("PLUMB_LOG", "warn");
    agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Ok(Process::spawn(agent)?)
}

/// Makes the accounts, roles and policies that are shipped. What an agent's credential cannot do is then refused.
pub(crate) fn install_access(api: &Api) -> Result<()> {
    let manifests =
        [access::accounts_and_roles, access::policies].map(|make| make(Layout::V1, access::NAMESPACE));
    manifests.concat().iter().try_for_each(|manifest| api.apply(manifest, ""))
}

/// A kubeconfig with the credential of a node's agent: a token of the shipped account that is bound to the node.
pub(crate) fn credential(server: &KubeApiServer, url: &str, node: &str) -> Result<PathBuf> {
    let token = server.api().token_of(access::NAMESPACE, access::NODE_ACCOUNT, "Node", node)?;
    server.write_kubeconfig(node, url, json!({ "token": token }))
}

/// What a kubelet does when it starts.
pub(crate) fn register(api: &Api, name: &str, address: &str) -> Result<()> {
    api.create("/api/v1/nodes", &json!({ "metadata": { "name": name } }))?;
    let Some((address, _)) = address.split_once('/') else { return Ok(()) };
    let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
    let answer = api.patch("strategic-merge", &format!("/api/v1/nodes/{name}/status"), &status)?;
    ensure!(answer.status == 200, "node {name}: {}", answer.text);
    Ok(())
}

fn create_pod(api: &Api, node: &str, name: &str) -> Result<String> {
    let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
    let pod = json!({ "metadata": { "name": name }, "spec": spec });
    let pod = api.create(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), &pod)?;
    Ok(pod["metadata"]["uid"].as_str().context("a pod has a UID")?.to_owned())
}

fn delete_pod(api: &Api, name: &str) -> Result<()> {
    api.delete(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0"))
}
