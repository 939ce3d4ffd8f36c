//! A real Kubernetes API server that serves Calico's kinds, and the pods that callers of the plugin speak of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use lab::Pod;
use model::Kind;
use model::kube::{Layout, access, definitions, is_custom_resource};
use serde_json::{Value, json};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};
use testkit::process::wait_until;

/// Nothing depends on it, so each run tries one.
pub(crate) fn layout() -> Layout {
    if testkit::seed().is_multiple_of(2) { Layout::V1 } else { Layout::V3 }
}

/// Reachable only from where it was started.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) server: KubeApiServer,
    /// May do everything.
    pub(crate) kubeconfig: PathBuf,
    /// Of the agent of the node that was registered: what the shipped roles and policies let it.
    agent: OnceLock<PathBuf>,
    /// The UIDs of the pods it was told of, by namespace and name.
    uids: Mutex<BTreeMap<(String, String), String>>,
}

impl Cluster {
    /// Without nodes, pools and even Calico's definitions. `None` where there is no API server: the test is skipped.
    pub(crate) fn start_bare(test: &str) -> Option<Cluster> {
        let server = start_or_skip(test, Setup::default())?;
        let kubeconfig = server.kubeconfig().unwrap();
        Some(Cluster { server, kubeconfig, agent: OnceLock::new(), uids: Mutex::default() })
    }

    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// What the kubelet does. Whatever stands for the node's agent then has the agent's rights only.
    pub(crate) fn register_node(&self, name: &str) {
        let api = self.api();
        api.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).unwrap();
        for manifests in [access::accounts_and_roles, access::policies] {
            manifests(layout(), access::NAMESPACE)
                .iter()
                .for_each(|manifest| api.apply(manifest, "").unwrap());
        }
        let token = api.token_of(access::NAMESPACE, access::NODE_ACCOUNT, "Node", name).unwrap();
        let user = json!({ "token": token });
        let kubeconfig = self.server.write_kubeconfig("agent", &self.server.url(), user).unwrap();
        self.agent.set(kubeconfig).expect("one node");
    }

    /// Of the node's agent. Before there is a node, its administrator's.
    pub(crate) fn kubeconfig_of_agent(&self) -> &Path {
        self.agent.get().unwrap_or(&self.kubeconfig)
    }

    /// Creates a namespace, and pods later.
    pub(crate) fn namespace(&self, name: &str, annotations: Value) {
        let namespace = json!({"metadata": {"name": name, "annotations": annotations}});
        self.api().create("/api/v1/namespaces", &namespace).unwrap();
    }

    /// A pod on a node, as the scheduler leaves it. Returns its UID.
    pub(crate) fn schedule(&self, node: &str, namespace: &str, name: &str, annotations: Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        let made = self.api().create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Has a pod of this name on the node, in a namespace of its own name, unless both exist. Another sandbox of a pod is no
    /// other pod.
    pub(crate) fn ensure(&self, node: &str, pod: &Pod) {
        let mut uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        if !uids.keys().any(|(namespace, _)| *namespace == pod.namespace) {
            self.namespace(&pod.namespace, json!({}));
        }
        uids.entry((pod.namespace.clone(), pod.name.clone()))
            .or_insert_with(|| self.schedule(node, &pod.namespace, &pod.name, json!({})));
    }

    /// What a runtime passes as `CNI_ARGS`.
    pub(crate) fn arguments(&self, pod: &Pod) -> String {
        let uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = &uids[&(pod.namespace.clone(), pod.name.clone())];
        arguments(pod, uid)
    }

    /// What tells an agent of this store.
    pub(crate) fn settings(&self) -> [(&'static str, &Path); 2] {
        [("DATASTORE_TYPE", Path::new("kubernetes")), ("KUBECONFIG", self.kubeconfig_of_agent())]
    }
}

/// What a runtime passes as `CNI_ARGS` for a pod with this UID.
pub(crate) fn arguments(pod: &Pod, uid: &str) -> String {
    format!(
        "K8S_POD_UID={uid};IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
        pod.namespace, pod.name, pod.container_id
    )
}

/// Makes the server serve Calico's kinds, and waits until it does.
pub(crate) fn install(api: &Api) {
    for definition in definitions(layout()) {
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).unwrap();
    }
    for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
        let path = format!("/apis/{}/{}", layout().api_version(), layout().plural(kind));
        let is_served = || api.get(&path).is_ok_and(|answer| answer.status == 200);
        wait_until(&format!("{path} to be served"), is_served).unwrap();
    }
}
