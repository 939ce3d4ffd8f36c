//! The other outages as they happened: with agents that keep nothing in order, as beside Calico. They only observe, and repair what they are told to.
//!
//! A late DEL took a running pod's endpoint and address, a runtime lost pods without a DEL, and a node went by the wrong card's address. Found, repaired,
//! taken back, repaired again, while the other pods notice nothing.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use model::{Key, Kind};
use serde_json::{Value, json};

use super::story::{Story, add, ip, ping, restart_agents};
use super::surgery::Surgery;
use crate::cluster::Cluster;
use crate::kubelet::{KubeletRequest, LeftBehind, PodReport};

/// The lab needs two nodes with agents.
pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    let nodes = cluster.description().node_names();
    ensure!(nodes.len() >= 2, "this replay needs two nodes at least");
    Replay { cluster, surgery: Surgery::new(cluster)?, nodes, story: Story(tell) }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    surgery: Surgery<'a>,
    nodes: Vec<&'a str>,
    story: Story<'a>,
}

impl Replay<'_> {
    fn run(mut self) -> Result<()> {
        self.story.step("Pods run");
        let first = add(self.cluster, self.nodes[0], &["etcd1-0", "web-0"])?;
        let second = add(self.cluster, self.nodes[1], &["lost-0", "lost-1", "web-1"])?;
        restart_agents(self.cluster, &["--observe", "--repair"])?;
        for pod in first.iter().chain(&second) {
            self.story.note(&format!("{} has {}", pod.key(), pod.addresses.join(", ")));
        }
        let victim = first[0].clone();
        self.kubernetes_says(&[&first[..], &second[2..]])?;
        let pingers =
            [ping(self.cluster, self.nodes[0], &first[1])?, ping(self.cluster, self.nodes[1], &second[2])?];
        self.story.step("A late DEL takes a running pod's endpoint, address, route and neighbours");
        self.stale_delete(&victim)?;
        self.story.step("A runtime loses two pods without a DEL");
        let request = KubeletRequest::Lose {
            pods: second[..2].iter().map(PodReport::key).collect(),
            leaves: LeftBehind::Nothing,
        };
        self.cluster.kubelet(self.nodes[1], &request)?;
        self.story.step("A node is registered with the address of the wrong NIC");
        self.wrong_card()?;
        let found = self.find()?;
        self.story.step("plumb repair --apply");
        let repairs = self.until_clean()?;
        self.answers(&victim)?;
        self.story.note("the audit is clean, and the pod answers again");
        self.story.step("Undo, the last repair first");
        for id in repairs.iter().rev() {
            self.surgery.undo(id)?;
        }
        let again = self.find()?;
        ensure!(found == again, "before: {found:?}; after undo: {again:?}");
        self.story.step("And repaired again");
        self.until_clean()?;
        self.answers(&victim)?;
        self.story.note("the audit is clean, and the pod answers again");
        self.story.step("Traffic of the other pods during all of this");
        self.story.end_of_all_traffic(pingers)
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
            self.story.note(&format!("found: {}", codes.iter().cloned().collect::<Vec<_>>().join(", ")))
        })
    }

    /// What a repair of records brings to light in the kernel is repaired next.
    fn until_clean(&self) -> Result<Vec<String>> {
        let mut repairs = Vec::new();
        for _ in 0..4 {
            let (id, steps) = self.surgery.repair(&[])?;
            self.story.note(&format!("{id}: {steps} steps applied"));
            repairs.push(id);
            if self.surgery.findings()?.is_empty() {
                return Ok(repairs);
            }
        }
        self.surgery.ensure_clean()?;
        Ok(repairs)
    }

    fn stale_delete(&self, pod: &PodReport) -> Result<()> {
        let (own, node) = (&pod.addresses[0], self.nodes[0]);
        self.surgery.put(&Surgery::endpoint_of(node, pod)?, None)?;
        self.surgery.free(pod)?;
        ip(self.cluster, node, &format!("route del {own}"))?;
        ip(self.cluster, node, &format!("neigh del {own} dev {}", pod.device))?;
        Ok(())
    }

    fn wrong_card(&self) -> Result<()> {
        let key = Key::cluster(Kind::Node, self.nodes[1]);
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
            let mut ping = self.cluster.command_on_node_only(self.nodes[0])?;
            let output = ping.args(["ping", "-n", "-c", "1", "-W", "1", &pod.addresses[0]]).output()?;
            ensure!(output.status.success(), "{} does not answer", pod.key());
            Ok(())
        })
    }
}
