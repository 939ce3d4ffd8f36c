//! What replays need that break records and kernels past all checks: the store itself, the doctor's findings, repairs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use model::ipam::Block;
use model::{Cidr, Key, Kind};
use serde_json::{Value, json};
use store::Change;

use super::story::handle_of;
use crate::cluster::Cluster;
use crate::kubelet::PodReport;

/// How far apart two looks are in replays, in seconds: pods here are as old as that when it matters.
const GRACE: &str = "2";

pub(super) struct Surgery<'a> {
    cluster: &'a Cluster,
    /// In the first node's own folder, which goes with the lab.
    history: PathBuf,
    /// Texts that are looked at besides, such as what Kubernetes says.
    texts: Vec<PathBuf>,
}

impl<'a> Surgery<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Result<Surgery<'a>> {
        let first = &cluster.description().nodes.first().context("a lab has nodes")?.name;
        Ok(Surgery {
            cluster,
            history: cluster.root_of(first)?.join("var/lib/plumb/repairs"),
            texts: Vec::new(),
        })
    }

    /// From now on somebody says this, too.
    pub(super) fn say(&mut self, name: &str, text: &str) -> Result<()> {
        std::fs::create_dir_all(&self.history)?;
        let path = self.history.join(name);
        std::fs::write(&path, text)?;
        self.texts.push(path);
        Ok(())
    }

    pub(super) fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.cluster.with_store(async |store| Ok(store.get(key).await?.map(|record| record.value.to_vec())))
    }

    /// Writes a record, whatever stands there; `None` deletes it.
    pub(super) fn put(&self, key: &Key, value: Option<Vec<u8>>) -> Result<()> {
        self.cluster.with_store(async |store| {
            let change = match (store.get(key).await?, value) {
                (Some(found), Some(value)) => Change::update(key.clone(), value, found.revision),
                (Some(found), None) => Change::delete(key.clone(), found.revision),
                (None, Some(value)) => Change::create(key.clone(), value),
                (None, None) => return Ok(()),
            };
            store.commit(vec![change]).await?;
            Ok(())
        })
    }

    pub(super) fn edit_block(&self, block: Cidr, edit: impl FnOnce(&mut Block)) -> Result<()> {
        let key = Key::Block(block);
        let text = self.get(&key)?.with_context(|| format!("there is no block {block}"))?;
        let mut found = Block::decode(&block, &text)?;
        edit(&mut found);
        ipam::count_write(&mut found);
        self.put(&key, Some(found.encode()))
    }

    /// Marks a pod's address as free, and deletes its handle.
    pub(super) fn free(&self, pod: &PodReport) -> Result<()> {
        let address = pod.addresses[0].parse()?;
        self.edit_block(self.block_of(&pod.addresses[0])?, |block| {
            let ordinal = block.ordinal(address);
            ordinal.into_iter().for_each(|ordinal| ipam::give_back(block, &[ordinal], None));
        })?;
        self.put(&Key::Handle(handle_of(pod)), None)
    }

    /// What a kubelet reports of a pod to Kubernetes, where it counts for more than what the plugin noted.
    pub(super) fn report_address(&self, pod: &PodReport, address: &str) -> Result<()> {
        let list = json!([{ "$patch": "replace" }, { "ip": address }]);
        let status = json!({ "status": { "podIP": address, "podIPs": list } });
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
        let answer = self.cluster.with_api(|api| api.patch("strategic-merge", &path, &status))?;
        ensure!(answer.status == 200, "{path}: {}", answer.text);
        Ok(())
    }

    /// The block that holds an address.
    pub(super) fn block_of(&self, address: &str) -> Result<Cidr> {
        Cidr::containing(address.parse()?, 26).context("an address lies in a block")
    }

    /// `plumb …` with this lab's store and every node's agent.
    pub(super) fn plumb(&self, words: &[&str]) -> Result<Output> {
        let first = &self.cluster.description().nodes[0].name;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.cluster.network_of(first)?.display()))
            .arg("--")
            .arg("plumb")
            .args(words);
        for node in &self.cluster.description().nodes {
            command.arg("--agent-socket").arg(self.cluster.root_of(&node.name)?.join("run/plumb/agent.sock"));
        }
        // Whoever asks lists the pods right before; an older list says nothing about newer records.
        for text in &self.texts {
            std::fs::File::options().append(true).open(text)?.set_modified(std::time::SystemTime::now())?;
        }
        if !self.texts.is_empty() {
            command.arg("--from").args(&self.texts);
        }
        command.env_clear().envs(self.cluster.environment_of(first)?).env("PLUMB_REPAIRS", &self.history);
        command.output().context("cannot run plumb")
    }

    /// What the doctor finds, and its summaries: by code and subject, with whatever it explains.
    pub(super) fn findings(&self) -> Result<BTreeMap<(String, String), String>> {
        let live: &[&str] = if self.texts.is_empty() { &[] } else { &["--live"] };
        let words = ["doctor", "-o", "json", "--settle", "0.5", "--grace", GRACE];
        let report = parsed(&self.plumb(&[&words, live].concat())?)?;
        let mut found = BTreeMap::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for finding in report["findings"].as_array().context("a list of findings")? {
            let symptoms = finding["symptoms"].as_array().into_iter().flatten();
            for told in std::iter::once(finding).chain(symptoms) {
                found.insert((text(&told["code"]), text(&told["subject"])), text(&told["summary"]));
            }
        }
        Ok(found)
    }

    /// Plans and repairs; the repair's ID and how many steps were done.
    pub(super) fn repair(&self, scope: &[&str]) -> Result<(String, u64)> {
        let words =
            [&["repair"], scope, &["--apply", "-o", "json", "--settle", "0.5", "--grace", GRACE]].concat();
        let output = self.plumb(&words)?;
        let printed = [&output.stderr[..], &output.stdout].concat();
        ensure!(output.status.success(), "the repair failed: {}", String::from_utf8_lossy(&printed));
        let outcome = parsed(&output)?;
        let id = outcome["id"].as_str().context("a repair has an ID")?.to_owned();
        Ok((id, outcome["done"].as_u64().unwrap_or_default()))
    }

    /// What would be left to people: each finding with the commands.
    pub(super) fn left_to_people(&self) -> Result<Vec<(String, String, Vec<String>)>> {
        let plan = parsed(&self.plumb(&["repair", "-o", "json", "--settle", "0.5", "--grace", GRACE])?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let left = plan["left"].as_array().context("a list")?.iter();
        Ok(left
            .map(|left| {
                let commands = left["commands"].as_array().into_iter().flatten().map(text).collect();
                (text(&left["code"]), text(&left["why"]), commands)
            })
            .collect())
    }

    /// The key of a pod's endpoint.
    pub(super) fn endpoint_of(node: &str, pod: &PodReport) -> Result<Key> {
        let name = model::names::EndpointName::of_pod(node, &pod.name, "eth0").compute()?;
        Ok(Key::namespaced(Kind::WorkloadEndpoint, &pod.namespace, name))
    }

    pub(super) fn undo(&self, id: &str) -> Result<()> {
        let output = self.plumb(&["repair", "undo", id])?;
        let said = [&output.stdout[..], &output.stderr].concat();
        ensure!(output.status.success(), "undo failed: {}", String::from_utf8_lossy(&said));
        Ok(())
    }

    /// Nothing is found, in two tries at most: what an agent is just about to do may take a moment.
    pub(super) fn ensure_clean(&self) -> Result<()> {
        super::wait_for("a clean audit", || {
            let found = self.findings()?;
            ensure!(found.is_empty(), "still found: {found:#?}");
            Ok(())
        })
    }
}

/// What a program printed; if that is no JSON, what it said about it.
pub(super) fn parsed(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}
