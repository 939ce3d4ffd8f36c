//! Eleven endpoints, one address: whoever pings it is answered, and that proves nothing.
//!
//! In the outage nothing checked that an address has one owner. Our own agents refuse a second one, so here they only observe, as they would
//! beside Calico, and repair what they are told to.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::story::{Story, add, ip, ping, restart_agents};
use super::surgery::Surgery;
use crate::cluster::{Cluster, StoreKind};
use crate::kubelet::{KubeletRequest, PodReport};

/// As many as in the outage; one of them has no pod any more.
const HOLDERS: usize = 11;

/// The lab needs one node with an agent.
pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    let node = cluster.description().nodes.first().context("a lab has nodes")?.name.clone();
    Replay { cluster, surgery: Surgery::new(cluster)?, node, story: Story(tell) }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    surgery: Surgery<'a>,
    node: String,
    story: Story<'a>,
}

impl Replay<'_> {
    fn run(&self) -> Result<()> {
        self.story.step("Eleven pods run, each with an address of its own");
        let names: Vec<String> = (0..HOLDERS).map(|number| format!("store-{number:02}")).collect();
        let pods = add(self.cluster, &self.node, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let (rightful, others) = pods.split_first().context("pods run")?;
        let shared = rightful.addresses[0].clone();
        self.surgery.ensure_clean()?;
        restart_agents(self.cluster, &["--observe", "--repair"])?;
        let pinger = ping(self.cluster, &self.node, rightful)?;
        pinger.wait_for_more(10)?;
        self.share(&shared, others)?;
        self.find(&shared)?;
        let lost = &others[others.len() - 1];
        self.story.step("One of the pods is lost without a DEL");
        self.lose(lost)?;
        let recreate = match self.cluster.description().store {
            // There an endpoint is its Pod, and went with it.
            StoreKind::Kubernetes => self.plan(&shared, rightful)?,
            StoreKind::Sqlite | StoreKind::Etcdv3 => self.repair_twice(&shared, rightful, lost)?,
        };
        self.story.step("The operator recreates the pods that the plan lists");
        restart_agents(self.cluster, &[])?;
        self.recreate(others, &recreate)?;
        self.surgery.ensure_clean()?;
        self.story.note("every pod has an address of its own, and the audit is clean");
        self.story.end_of_traffic([("the rightful owner during all of this", pinger)])
    }

    /// Everybody's record, pod and neighbour say the same address; the node has one route.
    fn share(&self, shared: &str, others: &[PodReport]) -> Result<()> {
        self.story.step(&format!("{} more endpoints get the address {shared}", others.len()));
        for pod in others {
            let own = pod.addresses[0].clone();
            self.surgery.free(pod)?;
            self.edit_endpoint(pod, |spec| spec["ipNetworks"] = json!([format!("{shared}/32")]))?;
            if self.cluster.description().store == StoreKind::Kubernetes {
                self.surgery.report_address(pod, shared)?;
            }
            let inside = |words: &str| -> Result<()> {
                let mut command = self.cluster.command_in(&self.node, &pod.netns)?;
                let output = command.arg("ip").args(words.split(' ')).output()?;
                ensure!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
                Ok(())
            };
            inside(&format!("address add {shared}/32 dev eth0"))?;
            inside(&format!("address del {own}/32 dev eth0"))?;
            let mac = self.field(pod, "mac")?;
            let on_node = |words: String| ip(self.cluster, &self.node, &words);
            on_node(format!("neigh replace {shared} lladdr {mac} dev {} nud permanent", pod.device))?;
            on_node(format!("neigh del {own} dev {}", pod.device))?;
            on_node(format!("route del {own}"))?;
        }
        Ok(())
    }

    fn find(&self, shared: &str) -> Result<()> {
        let found = self.surgery.findings()?;
        let codes: BTreeSet<&str> = found.keys().map(|(code, _)| code.as_str()).collect();
        let summary = found.get(&("address-shared".to_owned(), shared.to_owned()));
        let summary = summary.with_context(|| format!("it finds {found:#?}"))?;
        ensure!(summary.contains(&HOLDERS.to_string()), "it says {summary}");
        ensure!(
            codes.iter().all(|code| ["address-shared", "route-to-wrong-device"].contains(code)),
            "it finds {found:#?}"
        );
        self.story.note(&format!("found: {summary}"));
        Ok(())
    }

    /// Its sandbox, device and namespace are gone; its record is not.
    fn lose(&self, pod: &PodReport) -> Result<()> {
        let request =
            KubeletRequest::Lose { pods: vec![pod.key()], leaves: crate::kubelet::LeftBehind::Nothing };
        self.cluster.kubelet(&self.node, &request)?;
        super::wait_for("the device to go", || {
            let links = self.cluster.run_on(&self.node, &["ip", "-o", "link", "show"])?;
            ensure!(!links.contains(&pod.device), "{} still exists", pod.device);
            Ok(())
        })
    }

    /// The record of the one that is gone goes; the others are named. Who is to be recreated.
    fn repair_twice(&self, shared: &str, rightful: &PodReport, lost: &PodReport) -> Result<BTreeSet<String>> {
        let recreate = self.plan(shared, rightful)?;
        self.story.step("plumb repair --apply");
        let (id, steps) = self.surgery.repair(&[])?;
        ensure!(!self.has_endpoint(lost)?, "the record of {} still exists", lost.key());
        self.story.note(&format!(
            "steps applied: {steps}; the record of {}, which two witnesses report gone, is deleted",
            lost.key()
        ));
        self.story.step(&format!("plumb repair undo {id}, and repair again"));
        self.surgery.undo(&id)?;
        ensure!(self.has_endpoint(lost)?, "undo did not restore the record");
        self.surgery.repair(&[])?;
        ensure!(!self.has_endpoint(lost)?, "the second repair did not delete the record");
        self.story.note("undo restored the record, and the repair deleted it again");
        Ok(recreate)
    }

    /// Who is to be recreated.
    fn plan(&self, shared: &str, rightful: &PodReport) -> Result<BTreeSet<String>> {
        self.story.step("plumb repair");
        let left = self.surgery.left_to_people()?;
        let commands =
            left.iter().filter(|(code, ..)| code == "address-shared").flat_map(|(_, _, commands)| commands);
        let recreate: BTreeSet<String> = commands.cloned().collect();
        for command in recreate.iter().take(2) {
            self.story.note(&format!("left to the operator: {command}"));
        }
        self.story.note(&format!(
            "and {} more; {} keeps {shared}: the block's allocation refers to its sandbox",
            recreate.len().saturating_sub(2),
            rightful.key()
        ));
        ensure!(recreate.len() == HOLDERS - 2, "the plan lists {recreate:?}");
        ensure!(
            !recreate.iter().any(|command| command.ends_with(&rightful.name)),
            "the plan recreates the rightful owner: {recreate:?}"
        );
        Ok(recreate)
    }

    /// What `kubectl delete pod` leads to.
    fn recreate(&self, pods: &[PodReport], commands: &BTreeSet<String>) -> Result<()> {
        for pod in pods
            .iter()
            .filter(|pod| commands.contains(&format!("kubectl delete pod -n {} {}", pod.namespace, pod.name)))
        {
            self.cluster
                .kubelet(&self.node, &KubeletRequest::Delete { pods: vec![pod.key()], waits: true })?;
            let again = add(self.cluster, &self.node, &[&pod.name])?;
            ensure!(again.len() == 1, "{} does not run again", pod.key());
        }
        Ok(())
    }

    fn record(&self, pod: &PodReport) -> Result<Option<Value>> {
        let text = self.surgery.get(&Surgery::endpoint_of(&self.node, pod)?)?;
        Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
    }

    fn has_endpoint(&self, pod: &PodReport) -> Result<bool> {
        Ok(self.record(pod)?.is_some())
    }

    fn field(&self, pod: &PodReport, field: &str) -> Result<String> {
        let record = self.record(pod)?.context("it has a record")?;
        Ok(record["spec"][field].as_str().context("the field is there")?.to_owned())
    }

    fn edit_endpoint(&self, pod: &PodReport, edit: impl FnOnce(&mut Value)) -> Result<()> {
        let mut record = self.record(pod)?.context("it has a record")?;
        edit(&mut record["spec"]);
        self.surgery.put(&Surgery::endpoint_of(&self.node, pod)?, Some(record.to_string().into_bytes()))
    }
}
