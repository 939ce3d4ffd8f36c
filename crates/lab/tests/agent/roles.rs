//! A node's own role in a real etcd with authentication: the agent works with it, and etcd refuses everything else.

use std::io::Write as _;
use std::process::{Command, Stdio};

use lab::Pod;
use model::names::EndpointName;
use model::{AffinityOwner, HandleId, Key, KeyRange, Kind, Resource};
use serde_json::json;
use store::StoreError;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};

use crate::common::Bench;
use crate::common::books::Books;
use crate::running::{Agent, wait_until};

const ROOT_PASSWORD: &str = "only-the-operator-knows";
const NODE_PASSWORD: &str = "only-the-node-knows";
/// Where the node may have pods.
const NAMESPACE: &str = "shop";
const OTHER_NODE: &str = "node-a-2";

struct Guarded<'a> {
    bench: &'a Bench,
    etcd: EtcdCluster,
    operator: Books,
    /// What the node's own credentials can do.
    node: Books,
}

impl Guarded<'_> {
    fn name(&self) -> &str {
        self.bench.node.name()
    }

    fn start_agent_as(&self, user: &str, password: &str) -> Agent {
        let endpoint = self.etcd.endpoint(0);
        self.bench.start_agent(&[
            ("DATASTORE_TYPE", "etcdv3"),
            ("ETCD_ENDPOINTS", &endpoint),
            ("ETCD_USERNAME", user),
            ("ETCD_PASSWORD", password),
            ("IP", "198.18.0.1/24"),
        ])
    }

    fn agent_as(&self, user: &str, password: &str) -> Agent {
        let agent = self.start_agent_as(user, password);
        self.bench.wait_until_ready(&agent);
        agent
    }

    /// What the product prints, carried out by the operator.
    fn give_role(&self) {
        let plumb = self.bench.programs().plumb();
        let mut plumb = Command::new(plumb);
        plumb.args(["datastore", "etcd-role", self.name(), "-n", NAMESPACE]);
        let printed = testkit::process::run(&mut plumb).unwrap().stdout;
        let (name, role) = (self.name(), format!("plumb-node-{}", self.name()));
        // As an older version granted it: the new script narrows it.
        let mut script = format!(
            "etcdctl role add {role}\n\
             etcdctl role grant-permission --prefix {role} readwrite /calico/ipam/v2/handle/\n"
        );
        script.push_str(&String::from_utf8(printed).unwrap());
        script.push_str(&format!(
            "etcdctl user add {name}:{NODE_PASSWORD}\netcdctl user grant-role {name} {role}\n"
        ));
        let mut shell = Command::new("sh");
        shell.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", self.etcd.endpoint(0));
        shell.env("ETCDCTL_USER", format!("root:{ROOT_PASSWORD}"));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    }

    /// A node beside this one, with a block, as its own agent would have recorded them.
    fn add_other_node(&self) {
        self.operator.put(Kind::Node, OTHER_NODE, json!({"bgp": {"ipv4Address": "198.18.0.2/24"}}));
        let block = json!({
            "cidr": "10.244.9.0/26", "affinity": format!("host:{OTHER_NODE}"), "strictAffinity": false,
            "allocations": vec![None::<usize>; 64], "unallocated": (0..64).collect::<Vec<_>>(), "attributes": [],
        });
        let affinity = json!({"state": "confirmed", "deleted": "false"});
        self.operator.with_store(async |store| {
            for (key, value) in
                [(Key::Block("10.244.9.0/26".parse().unwrap()), block), (self.affinity(), affinity)]
            {
                store.create(key, value.to_string().into()).await.unwrap();
            }
        });
    }

    fn affinity(&self) -> Key {
        Key::Affinity {
            owner: AffinityOwner::Host(OTHER_NODE.to_owned()),
            block: "10.244.9.0/26".parse().unwrap(),
        }
    }

    fn has_route(&self) -> bool {
        self.bench
            .node
            .namespace()
            .ip(&["route"])
            .is_ok_and(|routes| routes.contains("10.244.9.0/26 via 198.18.0.2"))
    }
}

fn with_etcd(test: &str, act: impl FnOnce(Guarded<'_>) + Send) {
    let Some(bench) = Bench::empty(test) else { return };
    let run = || {
        let Some(etcd) = start_or_skip(test, Setup::with_root_password(ROOT_PASSWORD)) else { return };
        for arguments in [
            "link add uplink type veth peer name beyond",
            "address add 198.18.0.1/24 dev uplink",
            "link set uplink up",
            "link set beyond up",
        ] {
            bench.node.namespace().ip(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let operator = Books::on_etcd_as(etcd.endpoint(0), "root", ROOT_PASSWORD);
        operator.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        let node = Books::on_etcd_as(etcd.endpoint(0), bench.node.name(), NODE_PASSWORD);
        let guarded = Guarded { bench: &bench, etcd, operator, node };
        // The cluster's own records are made with the operator's credentials, by the first start of the first agent.
        guarded.agent_as("root", ROOT_PASSWORD).stop();
        guarded.give_role();
        guarded.add_other_node();
        act(guarded);
    };
    bench.node.namespace().visit(run).unwrap();
}

#[test]
fn an_agent_works_with_its_nodes_own_role() {
    with_etcd("an_agent_works_with_its_nodes_own_role", |guarded| {
        let bench = guarded.bench;
        let agent = guarded.agent_as(guarded.name(), NODE_PASSWORD);
        wait_until(|| guarded.has_route(), || agent.log());
        let pods: Vec<Pod> = (0..3).map(|number| bench.pod(NAMESPACE, &format!("web-{number}"))).collect();
        let addresses: Vec<String> =
            pods.iter().map(|pod| bench.agent_add(pod).address().unwrap().to_string()).collect();
        assert!(pods[0].netns().can_ping(&addresses[2]).unwrap());
        let outcome = bench.agent_del(&pods[0]);
        assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
        assert_eq!((guarded.operator.endpoints().len(), guarded.operator.handles().len()), (2, 2));
        agent.stop();
        bench.node.namespace().ip(&["route", "del", "10.244.9.0/26"]).unwrap();
        let agent = guarded.agent_as(guarded.name(), NODE_PASSWORD);
        wait_until(|| guarded.has_route(), || agent.log());
        for pod in &pods[1..] {
            let outcome = bench.agent_del(pod);
            assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
        }
        assert_eq!([guarded.operator.endpoints(), guarded.operator.handles()].concat(), [] as [String; 0]);
        let log = agent.log();
        assert!(!log.contains("refuses access"), "{log}");
    });
}

#[test]
fn etcd_refuses_a_node_what_is_not_its_own() {
    with_etcd("etcd_refuses_a_node_what_is_not_its_own", |guarded| {
        let own = guarded.name().to_owned();
        let endpoint = |node: &str, namespace: &str| {
            let name = EndpointName::of_pod(node, "web", "eth0").compute().unwrap();
            Key::namespaced(Kind::WorkloadEndpoint, namespace, name)
        };
        let mut forbidden = vec![
            Key::cluster(Kind::Node, OTHER_NODE),
            endpoint(OTHER_NODE, NAMESPACE),
            endpoint(&own, "kube-system"),
            guarded.affinity(),
            Key::IpamConfig,
            Key::namespaced(Kind::NetworkPolicy, NAMESPACE, "default.allow-all"),
            Key::cluster(Kind::FelixConfiguration, format!("node.{OTHER_NODE}")),
            Key::cluster(Kind::CalicoNodeStatus, OTHER_NODE),
        ];
        let tunnel = |node: &str| {
            HandleId::TUNNEL_DEVICES.map(|device| Key::Handle(HandleId::of_tunnel(device, node)))
        };
        forbidden.extend(tunnel(OTHER_NODE));
        let ours = [Kind::BlockAffinity, Kind::IpamBlock, Kind::IpamHandle];
        forbidden.extend(
            Kind::all()
                .filter(|kind| !kind.is_namespaced() && !ours.contains(kind))
                .flat_map(|kind| ["default", "intruder"].map(|name| Key::cluster(kind, name))),
        );
        guarded.node.with_store(async |store| {
            for key in &forbidden {
                for refused in [
                    store.create(key.clone(), "{}".into()).await.map(drop),
                    store.delete(key.clone(), 1.into()).await.map(drop),
                ] {
                    let error = refused.expect_err(&format!("{key} was written"));
                    assert!(matches!(error, StoreError::AccessDenied { .. }), "{key}: {error:?}");
                    assert!(error.to_string().contains(&key.to_string()), "{error}");
                }
            }
            // What is its own it can write.
            let resource = Resource::new(Kind::Node, own.as_str());
            let known = store.get(&resource.key()).await.unwrap().unwrap();
            store.update(known.key, known.value.to_vec(), known.revision).await.unwrap();
            store.create(endpoint(&own, NAMESPACE), "{}".into()).await.unwrap();
            for key in tunnel(&own) {
                let made = store.create(key.clone(), "{}".into()).await.unwrap();
                store.delete(key, made).await.unwrap();
            }
            // All nodes share those of sandboxes, and may read every one.
            store.create(Key::Handle("k8s-pod-network.0f3a".into()), "{}".into()).await.unwrap();
            assert_eq!(store.list_all(KeyRange::Handles).await.unwrap().0.len(), 1);
            assert!(store.get(&tunnel(OTHER_NODE)[0]).await.unwrap().is_none());
        });
    });
}

#[test]
fn a_permission_that_is_missing_is_reported_by_name() {
    with_etcd("a_permission_that_is_missing_is_reported_by_name", |guarded| {
        let agent = guarded.agent_as(guarded.name(), NODE_PASSWORD);
        let outcome = guarded.bench.agent_add(&guarded.bench.pod("kube-system", "dns"));
        assert!(!outcome.success, "{}", outcome.stdout);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("do not allow") && said.contains("WorkloadEndpoint(kube-system/"), "{said}");
        assert_eq!(guarded.operator.handles(), [] as [String; 0], "an address is left");
        agent.stop();
        // A record of the cluster that the node would have to make.
        let key = Key::cluster(Kind::Tier, "kube-baseline");
        guarded.operator.with_store(async |store| {
            let known = store.get(&key).await.unwrap().unwrap();
            store.delete(key.clone(), known.revision).await.unwrap();
        });
        let agent = guarded.start_agent_as(guarded.name(), NODE_PASSWORD);
        let expected = "do not allow writing Tier(kube-baseline)";
        wait_until(|| agent.log().contains(expected), || agent.log());
    });
}
