//! The one API server of these tests. Who has it has it alone, and empty.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use model::Kind;
use model::kube::{Layout, definitions, is_custom_resource};
use serde_json::{Value, json};
use testkit::kube::{Api, KubeApiServer, Setup, User, start_or_skip};

use crate::harness::Desk;

/// A user who may do what a test grants, and nothing else.
pub(crate) const JOE: &str = "joe";
pub(crate) const TOKEN_OF_JOE: &str = "token-of-joe";
/// The namespace of all pods.
pub(crate) const SHOP: &str = "shop";

/// The server, as long as a test uses it.
static SERVER: Mutex<Weak<KubeApiServer>> = Mutex::new(Weak::new());
static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Cluster {
    _turn: MutexGuard<'static, ()>,
    pub(crate) server: Arc<KubeApiServer>,
    pub(crate) api: Api,
}

impl Cluster {
    /// `None` if the test is skipped.
    pub(crate) fn for_test(test: &str) -> Option<Cluster> {
        let server = server(test)?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster { _turn: turn, api: server.api(), server };
        cluster.clear();
        Some(cluster)
    }

    /// The administrator's desk.
    pub(crate) fn desk(&self) -> Desk {
        self.desk_with(self.server.kubeconfig().unwrap())
    }

    /// The desk of a user with few rights.
    pub(crate) fn desk_of_joe(&self) -> Desk {
        let user = json!({ "token": TOKEN_OF_JOE });
        self.desk_with(self.server.write_kubeconfig(JOE, &self.server.url(), user).unwrap())
    }

    pub(crate) fn desk_with(&self, kubeconfig: PathBuf) -> Desk {
        Desk::on_kubernetes(kubeconfig, self.api.clone())
    }

    pub(crate) fn node(&self, name: &str, annotations: &Value) {
        let node = json!({ "metadata": { "name": name, "annotations": annotations } });
        self.api.create("/api/v1/nodes", &node).unwrap();
    }

    /// A pod as the plugin has attached it.
    pub(crate) fn pod(&self, name: &str, node: &str, address: &str) {
        let network = format!("{address}/32");
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": name }, "annotations": {
                "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network,
                "cni.projectcalico.org/containerID": format!("{name}-sandbox") } },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] } });
        self.api.create(&format!("/api/v1/namespaces/{SHOP}/pods"), &pod).unwrap();
    }

    /// What Calico has noted on a node.
    pub(crate) fn annotation(&self, node: &str, name: &str) -> Value {
        self.api.read(&format!("/api/v1/nodes/{node}")).unwrap()["metadata"]["annotations"][name].clone()
    }

    fn clear(&self) {
        for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
            let group = Layout::V1.api_version();
            let plural = Layout::V1.plural(kind);
            let path = match kind.is_namespaced() {
                true => format!("/apis/{group}/namespaces/{SHOP}/{plural}"),
                false => format!("/apis/{group}/{plural}"),
            };
            self.api.delete(&path).unwrap();
        }
        self.api.delete(&format!("/api/v1/namespaces/{SHOP}/pods?gracePeriodSeconds=0")).unwrap();
        self.api.delete("/api/v1/nodes").unwrap();
    }
}

fn server(test: &str) -> Option<Arc<KubeApiServer>> {
    let mut known = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = known.upgrade() {
        return Some(server);
    }
    let users = vec![User { name: JOE.to_owned(), token: TOKEN_OF_JOE.to_owned() }];
    let server = Arc::new(start_or_skip(test, Setup { users, ..Setup::default() })?);
    server.api().define(&definitions(Layout::V1)).unwrap();
    server.api().create("/api/v1/namespaces", &json!({ "metadata": { "name": SHOP } })).unwrap();
    *known = Arc::downgrade(&server);
    Some(server)
}
