//! A cluster of Kubernetes that runs the pods of a [`Town`], and the records that its operator has.

use std::path::PathBuf;
use std::sync::Arc;

use model::ipam::CONFIG_NAME;
use model::kube::{Layout, definitions};
use model::names::EndpointName;
use model::{AffinityOwner, Key, Kind};
use serde_json::{Value, json};
use store::kube::{KubeConfig, KubeStore};
use store::{Change, Store};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};

use crate::harness::{Desk, runtime};
use crate::ipam::town::{Town, cidr};

/// Node, pod, address.
pub(super) const PODS: [(&str, &str, &str); 3] =
    [("node-a", "web-0", "10.65.0.0"), ("node-a", "web-1", "10.65.0.1"), ("node-b", "cart-0", "10.65.0.2")];

/// A town with records of every sort, locked.
pub(super) fn town() -> Town {
    let town = Town::new(Desk::on_sqlite());
    let resource = |kind: Kind, name: &str, spec: Value| {
        let document = json!({"apiVersion": "projectcalico.org/v3", "kind": kind.name(),
            "metadata": {"name": name, "uid": "6d0c7f3e-53a4-4b0f-9f0d-5b1d5f7c2a11", "labels": {"team": "x"}}, "spec": spec});
        Change::create(Key::cluster(kind, name), document.to_string())
    };
    let set = json!({"metadata": {"name": "nets", "namespace": "shop"}, "spec": {"nets": ["10.0.0.0/8"]}});
    let virtual_owner = AffinityOwner::Virtual("load-balancer".to_owned());
    let affinity = Key::Affinity { owner: virtual_owner, block: cidr("10.65.0.16/29") };
    town.desk.write(vec![
        resource(
            Kind::GlobalNetworkPolicy,
            "deny",
            json!({"selector": "all()", "order": 5.5, "types": ["Ingress"]}),
        ),
        // As releases before v3.32 stored it.
        resource(Kind::GlobalNetworkPolicy, "default.old", json!({"tier": "default", "selector": "has(x)"})),
        resource(
            Kind::Profile,
            "kns.shop",
            json!({"labelsToApply": {"pcns.projectcalico.org/name": "shop"}}),
        ),
        resource(Kind::BgpPeer, "rack", json!({"peerIP": "172.30.0.254", "asNumber": 64512})),
        resource(Kind::IpamConfiguration, CONFIG_NAME, json!({"strictAffinity": false})),
        Change::create(Key::namespaced(Kind::NetworkSet, "shop", "nets"), set.to_string()),
        Change::create(Key::IpamConfig, r#"{"strict_affinity":true,"auto_allocate_blocks":true}"#),
        Change::create(affinity, r#"{"state":"confirmed","deleted":false}"#),
    ]);
    for (node, pod, _) in PODS {
        town.set_spec(endpoint(node, pod), "containerID", format!("c-{pod}").into());
        town.set_spec(endpoint(node, pod), "mac", "02:00:00:00:00:01".into());
    }
    assert_eq!(town.desk.plumb(&["datastore", "migrate", "lock"]).code, Some(0));
    town
}

pub(super) fn endpoint(node: &str, pod: &str) -> Key {
    let name = EndpointName::of_pod(node, pod, "eth0").compute().unwrap();
    Key::namespaced(Kind::WorkloadEndpoint, "shop", name)
}

/// The cluster that the town's pods run in.
pub(super) struct Cluster {
    pub(super) server: KubeApiServer,
    pub(super) layout: Layout,
    pub(super) kubeconfig: PathBuf,
}

impl Cluster {
    /// `None` if the test is skipped.
    pub(super) fn start(test: &str, layout: Layout) -> Option<Cluster> {
        let cluster = Cluster::bare(test, layout, &definitions(layout))?;
        cluster.populate();
        Some(cluster)
    }

    /// Without objects, and with these definitions.
    pub(super) fn bare(test: &str, layout: Layout, definitions: &[Value]) -> Option<Cluster> {
        let server = start_or_skip(test, Setup::default())?;
        server.api().define(definitions).unwrap();
        let kubeconfig = server.kubeconfig().unwrap();
        Some(Cluster { server, layout, kubeconfig })
    }

    pub(super) fn api(&self) -> Api {
        self.server.api()
    }

    /// What Kubernetes itself has: the namespace, the nodes and the pods, without anything of Calico's.
    pub(super) fn populate(&self) {
        let api = self.api();
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).unwrap();
        for node in ["node-a", "node-b"] {
            let labels = json!({"kubernetes.io/hostname": node});
            api.create("/api/v1/nodes", &json!({"metadata": {"name": node, "labels": labels}})).unwrap();
        }
        for (node, pod, address) in PODS {
            self.run_pod(node, pod, address);
        }
    }

    pub(super) fn run_pod(&self, node: &str, pod: &str, address: &str) {
        let path = "/api/v1/namespaces/shop/pods";
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        let object = json!({"metadata": {"name": pod, "labels": {"app": pod}}, "spec": spec});
        let mut object = self.api().create(path, &object).unwrap();
        object["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        self.api().replace(&format!("{path}/{pod}/status"), &object).unwrap();
    }

    /// As `--from` and `--to` name it.
    pub(super) fn name(&self) -> String {
        format!("kubernetes:{}", self.kubeconfig.display())
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        let config = KubeConfig { kubeconfig: Some(self.kubeconfig.clone()), ..KubeConfig::default() };
        Arc::new(runtime().block_on(KubeStore::connect(config)).unwrap())
    }

    /// The object of a kind and name.
    pub(super) fn object(&self, kind: Kind, name: &str) -> Value {
        let (group, plural) = (self.layout.api_version(), self.layout.plural(kind));
        self.api().read(&format!("/apis/{group}/{plural}/{name}")).unwrap()
    }

    /// How many objects of a kind there are.
    pub(super) fn count(&self, kind: Kind) -> usize {
        let (group, plural) = (self.layout.api_version(), self.layout.plural(kind));
        let list = self.api().read(&format!("/apis/{group}/{plural}")).unwrap();
        list["items"].as_array().unwrap().len()
    }
}
