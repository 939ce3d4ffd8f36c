//! A cluster made of what `plumb install` prints, and the agents of two nodes in it.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use model::ipam::Block;
use model::kube::{Layout, encode, place};
use model::{AffinityOwner, Key, Kind};
use serde_json::{Value, json};
use store::Store;
use store::kube::{KubeConfig, KubeStore};
use testkit::kube::{Api, KubeApiServer, Setup, User, start_or_skip};
use testkit::process::wait_until;

use crate::acts::Act;

pub(crate) const LAYOUTS: [Layout; 2] = [Layout::V1, Layout::V3];
/// The user whose client certificate, in a real cluster, would name node-a.
pub(crate) const CERTIFIED: &str = "token-of-certified";
const SYSTEM: &str = "kube-system";

pub(crate) struct Cluster {
    pub(crate) server: KubeApiServer,
    pub(crate) layout: Layout,
}

impl Cluster {
    /// Definitions and roles, two nodes with a pod each, and no policy yet. `None` if the test is skipped.
    pub(crate) fn start(test: &str, layout: Layout) -> Option<Cluster> {
        let certified = User { name: "plumb:node:node-a".into(), token: CERTIFIED.into() };
        let groups = vec![(certified.name.clone(), "plumb:nodes".to_owned())];
        let server = start_or_skip(test, Setup { users: vec![certified], groups, ..Setup::default() })?;
        let cluster = Cluster { server, layout };
        let output = cluster.plumb(&cluster.server.kubeconfig().unwrap(), &["install", "--crds", "--apply"]);
        assert!(output.status.success(), "{output:?}");
        cluster.apply("rbac");
        let api = cluster.api();
        api.create("/api/v1/namespaces", &json!({ "metadata": { "name": "blue" } })).unwrap();
        for node in ["node-a", "node-b"] {
            let kept = json!({ "annotations": { "somebody.example/else": "stays" }, "name": node });
            api.create("/api/v1/nodes", &json!({ "metadata": kept })).unwrap();
            let spec = |account: &str| {
                json!({ "nodeName": node, "serviceAccountName": account,
                    "containers": [{ "name": "c", "image": "i" }] })
            };
            for (namespace, name, account) in [("blue", "web", "default"), (SYSTEM, "plumbd", "plumb-node")] {
                let metadata = json!({ "name": format!("{name}-{node}") });
                let pod = json!({ "metadata": metadata, "spec": spec(account) });
                api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).unwrap();
            }
        }
        Some(cluster)
    }

    /// The administrator's way.
    pub(crate) fn api(&self) -> Api {
        self.server.api()
    }

    /// Runs the program with somebody's kubeconfig.
    pub(crate) fn plumb(&self, kubeconfig: &Path, arguments: &[&str]) -> Output {
        let mut plumb = Command::new(env!("CARGO_BIN_EXE_plumb"));
        plumb.env_clear().env("DATASTORE_TYPE", "kubernetes").env("KUBECONFIG", kubeconfig);
        plumb.env("CALICO_API_GROUP", self.layout.api_version()).args(arguments).output().unwrap()
    }

    /// What `plumb install --print` prints, given to the server as `kubectl apply --server-side` would: first to look only.
    pub(crate) fn apply(&self, part: &str) {
        let print = format!("--print={part}");
        let output = self.plumb(Path::new("/nowhere"), &["install", &print]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let manifests: Vec<Value> =
            text.split("---\n").skip(1).map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        assert!(manifests.len() > 5, "{text}");
        for query in ["&dryRun=All", ""] {
            manifests.iter().for_each(|manifest| self.api().apply(manifest, query).unwrap());
        }
    }

    /// The policies, in force.
    pub(crate) fn add_policies(&self) {
        self.apply("admission");
        let (api, probes) = (self.server.api_as(&self.token("node-a")), self.probes());
        let open =
            || probes.iter().filter(|probe| probe.try_out(&api).status != 403).map(|probe| &probe.what);
        wait_until("the policies to be in force", || open().next().is_none())
            .unwrap_or_else(|error| panic!("{error}: {:?}", open().collect::<Vec<_>>()));
    }

    /// For each policy an act that it refuses.
    fn probes(&self) -> [Act; 6] {
        let owner = AffinityOwner::Host("node-b".to_owned());
        let block = Block::new("10.9.0.0/26".parse().unwrap(), Some(&owner), 1);
        let affinity = Key::Affinity { owner, block: block.cidr };
        let handle = Key::Handle("vxlan-tunnel-addr-node-b".into());
        let annotation = json!({ "metadata": { "annotations": { "plumbline.io/x": "y" } } });
        [
            Act::merge("nodes", "/api/v1/nodes/node-b/status", annotation.clone()),
            Act::merge("pods", "/api/v1/namespaces/blue/pods/web-node-b/status", annotation),
            self.creation("affinities", &affinity, br#"{"state":"pending"}"#),
            self.creation("blocks", &block.key(), &block.encode()),
            self.creation("handles", &handle, br#"{"block":{}}"#),
            self.creation("records", &Key::cluster(Kind::Tier, "x"), br#"{"spec":{}}"#),
        ]
    }

    /// Creating a record past the store.
    pub(crate) fn creation(&self, what: &str, key: &Key, value: &[u8]) -> Act {
        let document = Value::Object(encode(self.layout, key, value).unwrap());
        Act::create(what, &self.collection(place(key).unwrap().kind), document)
    }

    pub(crate) fn collection(&self, kind: Kind) -> String {
        format!("/apis/{}/{}", self.layout.api_version(), self.layout.plural(kind))
    }

    /// A credential of the agent of a node, bound to the node.
    pub(crate) fn token(&self, node: &str) -> String {
        self.api().token_of(SYSTEM, "plumb-node", "Node", node).unwrap()
    }

    pub(crate) async fn store(&self, name: &str, token: &str) -> Arc<dyn Store> {
        let kubeconfig = self.server.write_kubeconfig(name, &self.server.url(), json!({ "token": token }));
        let config = KubeConfig {
            kubeconfig: Some(kubeconfig.unwrap()),
            api_group: Some(self.layout.api_version()),
            ..KubeConfig::default()
        };
        Arc::new(KubeStore::connect(config).await.unwrap())
    }
}
