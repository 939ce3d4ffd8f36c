//! A node whose agent keeps its records in a real Kubernetes API server.

use lab::{CniCall, CniOutcome, Pod};
use model::Kind;
use serde_json::{Value, json};
use testkit::kube::Api;

use crate::common::Bench;
use crate::common::books::Books;
use crate::common::kubernetes::{Cluster, arguments, install};
use crate::running::Agent;

/// The API server runs on the node's own loopback, where the agent can reach it, and so must whoever looks at its records.
pub(crate) struct OnKubernetes<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) cluster: Cluster,
    pub(crate) books: Books,
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
        let Some(cluster) = Cluster::start_bare(test) else { return };
        let books = Books::on_kubernetes(&cluster.kubeconfig);
        act(OnKubernetes { bench: &bench, cluster, books });
    };
    bench.node.namespace().visit(run).unwrap();
}

impl OnKubernetes<'_> {
    pub(crate) fn api(&self) -> Api {
        self.cluster.api()
    }

    /// What the kubelet does.
    pub(crate) fn register_node(&self) {
        self.cluster.register_node(self.bench.node.name());
    }

    /// Starts the agent and does not wait.
    pub(crate) fn start_agent(&self, settings: &[(&str, &str)]) -> Agent {
        let kubeconfig = self.cluster.kubeconfig_of_agent().display().to_string();
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
        self.cluster.namespace(name, annotations);
    }

    /// A pod on the node, as the scheduler leaves it. Returns its UID.
    pub(crate) fn schedule(&self, namespace: &str, name: &str, annotations: Value) -> String {
        self.cluster.schedule(self.bench.node.name(), namespace, name, annotations)
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
        self.bench.agent_call(verb, pod).with("CNI_ARGS", &arguments(pod, uid))
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
