//! A node whose agent keeps its records in a real Kubernetes API server.

use std::path::PathBuf;

use lab::{CniCall, CniOutcome, Pod};
use model::Kind;
use model::kube::{Layout, definitions, is_custom_resource};
use serde_json::{Value, json};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};
use testkit::process::wait_until;

use crate::common::Bench;
use crate::common::books::Books;
use crate::running::Agent;

const LAYOUT: Layout = Layout::V1;

/// The API server runs on the node's own loopback, where the agent can reach it, and so must whoever looks at its records.
pub(crate) struct OnKubernetes<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) server: KubeApiServer,
    pub(crate) books: Books,
    pub(crate) kubeconfig: PathBuf,
}

/// Runs a test on the node, with one pool of IPv4 addresses. Kubernetes knows the node already.
pub(crate) fn on_kubernetes(test: &str, act: impl FnOnce(OnKubernetes<'_>) + Send) {
    on_bare_kubernetes(test, |place| {
        install(&place.api());
        place.books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        place.register_node();
        act(place);
    });
}

/// Without nodes, pools and even Calico's definitions.
pub(crate) fn on_bare_kubernetes(test: &str, act: impl FnOnce(OnKubernetes<'_>) + Send) {
    let Some(bench) = Bench::empty(test) else { return };
    let run = || {
        let Some(server) = start_or_skip(test, Setup::default()) else { return };
        let kubeconfig = server.kubeconfig().unwrap();
        let books = Books::on_kubernetes(&kubeconfig);
        act(OnKubernetes { bench: &bench, server, books, kubeconfig });
    };
    bench.node.namespace().visit(run).unwrap();
}

/// Makes the server serve Calico's kinds, and waits until it does.
pub(crate) fn install(api: &Api) {
    for definition in definitions(LAYOUT) {
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).unwrap();
    }
    for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
        let path = format!("/apis/{}/{}", LAYOUT.api_version(), LAYOUT.plural(kind));
        let is_served = || api.get(&path).is_ok_and(|answer| answer.status == 200);
        wait_until(&format!("{path} to be served"), is_served).unwrap();
    }
}

impl OnKubernetes<'_> {
    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// What the kubelet does.
    pub(crate) fn register_node(&self) {
        let node = json!({"metadata": {"name": self.bench.node.name()}});
        self.api().create("/api/v1/nodes", &node).unwrap();
    }

    /// Starts the agent and does not wait.
    pub(crate) fn start_agent(&self, settings: &[(&str, &str)]) -> Agent {
        let kubeconfig = self.kubeconfig.display().to_string();
        let mut all = vec![("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.as_str())];
        all.extend_from_slice(settings);
        self.bench.start_agent(&all)
    }

    /// Starts the agent and waits until it is ready.
    pub(crate) fn agent(&self, settings: &[(&str, &str)]) -> Agent {
        let agent = self.start_agent(settings);
        self.bench.wait_until_ready(&agent);
        agent
    }

    /// Creates a namespace, and pods later.
    pub(crate) fn namespace(&self, name: &str, annotations: Value) {
        let namespace = json!({"metadata": {"name": name, "annotations": annotations}});
        self.api().create("/api/v1/namespaces", &namespace).unwrap();
    }

    /// A pod on the node, as the scheduler leaves it. Returns its UID.
    pub(crate) fn schedule(&self, namespace: &str, name: &str, annotations: Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": self.bench.node.name(), "containers": [{"name": "c", "image": "i"}]},
        });
        let made = self.api().create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).unwrap();
        made["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn read_pod(&self, namespace: &str, name: &str) -> Value {
        self.api().read(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).unwrap()
    }

    /// At once, as the kubelet does when nothing of the pod is left.
    pub(crate) fn delete_pod(&self, namespace: &str, name: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0");
        self.api().delete(&path).unwrap();
    }

    /// A call of the runtime to the agent, which names the pod's UID.
    pub(crate) fn call(&self, verb: &str, pod: &Pod, uid: &str) -> CniCall {
        let arguments = format!(
            "K8S_POD_UID={uid};IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
            pod.namespace, pod.name, pod.container_id
        );
        self.bench.agent_call(verb, pod).with("CNI_ARGS", &arguments)
    }

    pub(crate) fn add(&self, pod: &Pod, uid: &str) -> CniOutcome {
        self.call("ADD", pod, uid).run(&self.bench.node).unwrap()
    }

    pub(crate) fn del(&self, pod: &Pod, uid: &str) -> CniOutcome {
        self.call("DEL", pod, uid).run(&self.bench.node).unwrap()
    }
}

/// An annotation of the plugin on a pod, or an empty text.
pub(crate) fn noted(pod: &Value, name: &str) -> String {
    let text = &pod["metadata"]["annotations"][format!("cni.projectcalico.org/{name}")];
    text.as_str().unwrap_or_default().to_owned()
}
