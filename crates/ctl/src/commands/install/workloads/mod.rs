//! The workloads that `plumb install --print` prints: the agents, the controllers, and what takes everything off the nodes again.
//!
//! Everything that is more than the restricted profile of Kubernetes' pod security allows has its reason in docs/install.md.

mod controller;
mod node;
mod settings;
mod uninstall;

use std::path::Path;

use model::kube::Layout;
use serde_json::{Value, json};

use crate::cli::install::Install;
use crate::cli::install_cluster::ClusterOptions;

pub(super) use controller::deployment;
pub(super) use node::daemonset;
pub(super) use settings::settings;
pub(super) use uninstall::uninstall;

/// Label of every workload, with its name.
const LABEL: &str = "app.kubernetes.io/name";
/// Where the image has its programs.
const PLUMB: &str = "/usr/bin/plumb";
const PLUMBD: &str = "/usr/bin/plumbd";
/// Where the image has the standard plugins.
const PLUGINS: &str = "/usr/lib/cni";
/// Where a pod that installs sees the node's files.
const HOST: &str = "/host";
/// Namespaces that a cluster has anyway.
const BUILT_IN: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// What all workloads are made of.
pub(super) struct Cluster<'a> {
    pub(super) install: &'a Install,
    pub(super) layout: Layout,
}

impl Cluster<'_> {
    fn options(&self) -> &ClusterOptions {
        &self.install.cluster
    }

    fn metadata(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.install.namespace, "labels": { LABEL: name } })
    }
}

/// The namespace, where it has to be created. Agents share the node's network, so it must admit privileged pods.
pub(super) fn namespace(cluster: &Cluster<'_>) -> Option<Value> {
    let name = cluster.install.namespace.as_str();
    if BUILT_IN.contains(&name) {
        return None;
    }
    let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
    Some(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }))
}

fn variable(name: &str, value: impl Into<String>) -> Value {
    json!({ "name": name, "value": value.into() })
}

/// A directory of the node, made where it is missing.
fn directory(name: &str, path: &Path) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } })
}

/// One that must be there.
fn existing(name: &str, path: &Path) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": "Directory" } })
}

fn mount(name: &str, path: impl AsRef<Path>) -> Value {
    json!({ "name": name, "mountPath": path.as_ref() })
}

fn read_only(mut mount: Value) -> Value {
    mount["readOnly"] = true.into();
    mount
}

/// A process of root without any privilege of root's.
fn bare_root() -> Value {
    json!({
        "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
    })
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({ "requests": { "cpu": cpu, "memory": memory } })
}

/// Where agents and controllers find the API server, if not where Kubernetes says.
fn api_server(options: &ClusterOptions) -> Vec<Value> {
    let Some(endpoint) = &options.api_server else { return Vec::new() };
    vec![
        variable("KUBERNETES_SERVICE_HOST", &endpoint.host),
        variable("KUBERNETES_SERVICE_PORT", endpoint.port.to_string()),
    ]
}
