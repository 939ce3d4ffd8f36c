//! The other outages as they happened: with agents that keep nothing in order, as beside Calico. They only observe, and repair what they are told to.
//!
//! A late DEL took a running pod's endpoint and address, a runtime lost pods without a DEL, and a node went by the wrong card's address. Found, repaired,
//! taken back, repaired again, while the other pods notice nothing.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use model::{Key, Kind};
use serde_json::{Value, json};

use super::ipam_drift::add_to;
use super::surgery::Surgery;
use crate::cluster::{Cluster, NETWORK};
use crate::kubelet::{KubeletRequest, LeftBehind, PodReport};
use crate::pinger::Pinger;

/// The lab needs two nodes with agents.
pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    let nodes: Vec<String> = cluster.description().nodes.iter().map(|node| node.name.clone()).collect();
    ensure!(nodes.len() >= 2, "this replay needs two nodes at least");
    Replay { cluster, surgery: Surgery::new(cluster)?, nodes, tell }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    surgery: Surgery<'a>,
    nodes: Vec<String>,
    tell: &'a dyn Fn(&str),
}

impl Replay<'_> {
    fn run(mut self) -> Result<()> {
        self.step("Pods run");
        let first = add_to(self.cluster, &self.nodes[0], &["etcd1-0", "web-0"])?;
        let second = add_to(self.cluster, &self.nodes[1], &["lost-0", "lost-1", "web-1"])?;
        for node in &self.nodes {
            self.cluster.stop(node, "agent")?;
            self.cluster.start(node, "agent", &["--observe", "--repair"])?;
        }
        for pod in first.iter().chain(&second) {
            self.note(&format!("{} has {}", pod.key(), pod.addresses.join(", ")));
        }
        let (victim, healthy) = (first[0].clone(), [first[1].clone(), second[2].clone()]);
        self.kubernetes_says(&[&first[..], &second[2..]])?;
        let pingers: Vec<Pinger> = [(0, &healthy[0]), (1, &healthy[1])]
            .into_iter()
            .map(|(node, pod)| self.ping(node, pod))
            .collect::<Result<_>>()?;
        self.step("A late DEL takes a running pod's endpoint, address, route and neighbours");
        self.stale_delete(&victim)?;
        self.step("A runtime loses two pods without a DEL");
        let request = KubeletRequest::Lose {
            pods: second[..2].iter().map(PodReport::key).collect(),
            leaves: LeftBehind::Nothing,
        };
        self.cluster.kubelet(&self.nodes[1], &request)?;
        self.step("A node is registered with the address of the wrong NIC");
        self.wrong_card()?;
        let found = self.find()?;
        self.step("plumb repair --apply");
        let repairs = self.until_clean()?;
        self.answers(&victim)?;
        self.note("the audit is clean, and the pod answers again");
        self.step("Undo, the last repair first");
        for id in repairs.iter().rev() {
            self.surgery.undo(id)?;
        }
        let again = self.find()?;
        ensure!(found == again, "before: {found:?}; after undo: {again:?}");
        self.step("And repaired again");
        self.until_clean()?;
        self.answers(&victim)?;
        self.note("the audit is clean, and the pod answers again");
        self.step("Traffic of the other pods during all of this");
        for pinger in pingers {
            let tally = pinger.stop()?;
            self.note(&format!("{} pings answered, {} lost", tally.answered, tally.lost));
            ensure!(tally.lost == 0 && tally.answered > 0, "{} pings were lost", tally.lost);
        }
        Ok(())
    }

    /// Every outage has its finding; which, by code.
    fn find(&self) -> Result<BTreeSet<String>> {
        super::wait_for("the doctor to find all three", || {
            let found = self.surgery.findings()?;
            let codes: BTreeSet<String> = found.keys().map(|(code, _)| code.clone()).collect();
            for wanted in ["pod-without-endpoint", "endpoint-without-pod", "node-address-unfit"] {
                ensure!(codes.contains(wanted), "{wanted} is not among {found:#?}");
            }
            Ok(codes)
        })
        .inspect(|codes| {
            self.note(&format!("found: {}", codes.iter().cloned().collect::<Vec<_>>().join(", ")))
        })
    }

    /// What a repair of records brings to light in the kernel is repaired next.
    fn until_clean(&self) -> Result<Vec<String>> {
        let mut repairs = Vec::new();
        for _ in 0..4 {
            let (id, steps) = self.surgery.repair(&[])?;
            self.note(&format!("{id}: {steps} steps applied"));
            repairs.push(id);
            if self.surgery.findings()?.is_empty() {
                return Ok(repairs);
            }
        }
        self.surgery.ensure_clean()?;
        Ok(repairs)
    }

    fn stale_delete(&self, pod: &PodReport) -> Result<()> {
        let (own, node) = (pod.addresses[0].clone(), &self.nodes[0]);
        let address = own.parse()?;
        let name = model::names::EndpointName::of_pod(node, &pod.name, "eth0").compute()?;
        self.surgery.put(&Key::namespaced(Kind::WorkloadEndpoint, &pod.namespace, name), None)?;
        self.surgery.edit_block(self.surgery.block_of(&own)?, |block| {
            let ordinal = block.ordinal(address);
            ordinal.into_iter().for_each(|ordinal| ipam::give_back(block, &[ordinal], None));
        })?;
        self.surgery.put(&Key::Handle(format!("{NETWORK}.{}", pod.container_id)), None)?;
        for words in [format!("route del {own}"), format!("neigh del {own} dev {}", pod.device)] {
            self.cluster.run_on(node, &[&["ip"], &words.split(' ').collect::<Vec<_>>()[..]].concat())?;
        }
        Ok(())
    }

    fn wrong_card(&self) -> Result<()> {
        let key = Key::cluster(Kind::Node, self.nodes[1].clone());
        let text = self.surgery.get(&key)?.context("the node has a record")?;
        let mut record: Value = serde_json::from_slice(&text)?;
        record["spec"]["bgp"]["ipv4Address"] = json!("10.9.9.9/24");
        self.surgery.put(&key, Some(record.to_string().into_bytes()))
    }

    /// The pods that it lists, as `kubectl get pods -o json` would.
    fn kubernetes_says(&mut self, pods: &[&[PodReport]]) -> Result<()> {
        // A list of all namespaces has Kubernetes' own pods in it.
        let own = json!({"namespace": "kube-system", "name": "kube-proxy-x7k2p", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut items = vec![json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": own,
            "spec": {"nodeName": self.nodes[0], "hostNetwork": true, "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        })];
        for (node, pods) in self.nodes.iter().zip(pods) {
            for pod in *pods {
                items.push(json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
                    "spec": {"nodeName": node, "containers": [{"name": "c"}]},
                    "status": {"phase": "Running", "podIP": pod.addresses[0], "podIPs": [{"ip": pod.addresses[0]}],
                        "containerStatuses": [{"name": "c", "ready": true, "restartCount": 0}]},
                }));
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.surgery.say("pods.json", &list.to_string())
    }

    fn answers(&self, pod: &PodReport) -> Result<()> {
        super::wait_for("the pod to answer", || {
            let mut ping = self.cluster.command_on_node_only(&self.nodes[0])?;
            let output = ping.args(["ping", "-n", "-c", "1", "-W", "1", &pod.addresses[0]]).output()?;
            ensure!(output.status.success(), "{} does not answer", pod.key());
            Ok(())
        })
    }

    fn ping(&self, node: usize, pod: &PodReport) -> Result<Pinger> {
        Pinger::start(
            &pod.key().to_string(),
            self.cluster.command_on_node_only(&self.nodes[node])?,
            &pod.addresses[0],
        )
    }

    fn step(&self, title: &str) {
        (self.tell)(&format!("\n== {title}"));
    }

    fn note(&self, line: &str) {
        (self.tell)(&format!("   {line}"));
    }
}
