//! A cluster that runs, with agents that only observe: faults stay where they were put, and the doctor asks the real agents
//! over their sockets. Whatever a fault changed is put back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use lab::Programs;
use lab::cluster::{Cluster, OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod, PodReport};
use model::{Cidr, FindingCode, Key, KeyRange};
use serde_json::Value;
use store::Change;

use crate::{bird, kubernetes};

/// Nodes with pods. One more has none: it looks as if it was Calico's.
pub(crate) const BUSY_NODES: [&str; 2] = ["node1", "node2"];
pub(crate) const CALICO_NODE: &str = "node3";
pub(crate) const NODES: [&str; 3] = ["node1", "node2", "node3"];
const PODS: usize = 4;
/// So many pods may come and go on the third node.
pub(crate) const CHURNING: usize = 3;
pub(crate) const NAMESPACE: &str = "team";

pub(crate) struct Scene {
    lab: OwnCluster,
    pods: BTreeMap<&'static str, Vec<PodReport>>,
    texts: tempfile::TempDir,
    /// Where repairs are remembered.
    repairs: tempfile::TempDir,
    healthy: BTreeMap<Key, Vec<u8>>,
    /// Where a node's agent is asked, if not at its own socket.
    sockets: Mutex<BTreeMap<&'static str, PathBuf>>,
    /// Whether nodes send packets when they are looked at.
    probes: AtomicBool,
}

/// What the doctor said: each finding by code and subject, apart from what another explains.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) roots: BTreeSet<(FindingCode, String)>,
    pub(crate) symptoms: BTreeSet<(FindingCode, String)>,
    pub(crate) report: Value,
}

/// Why a scene cannot be made here.
pub(crate) fn missing(store: StoreKind) -> Option<String> {
    lab::missing_for_cluster(store, None).or_else(bird::missing)
}

pub(crate) fn plan(store: StoreKind, nodes: usize) -> Result<Plan> {
    Ok(Plan { nodes, store, ..Plan::new(&Programs::of_test()?) })
}

impl Scene {
    /// With agents that change nothing.
    pub(crate) fn up(store: StoreKind) -> Result<Scene> {
        Scene::up_with(store, |_| &["--observe"])
    }

    /// With agents that are started anew like this, once the pods are there.
    pub(crate) fn up_with(store: StoreKind, agent: fn(&str) -> &[&str]) -> Result<Scene> {
        let lab = OwnCluster::up(plan(store, NODES.len())?, &|_| {})?;
        let mut pods = BTreeMap::new();
        // An agent that acts has a pod, so that its node has a block from the start.
        let acts = NODES.into_iter().filter(|node| agent(node).is_empty()).map(|node| (node, 1));
        for (node, count) in BUSY_NODES.into_iter().map(|node| (node, PODS)).chain(acts) {
            let names = (0..count).map(|number| format!("{NAMESPACE}/{node}-{number}").parse());
            let new = names.map(|name| Ok(NewPod::new(&name?))).collect::<Result<_>>()?;
            let mut added = lab.kubelet(node, &KubeletRequest::Add { pods: new, waits: true })?;
            added.sort_by(|a, b| a.name.cmp(&b.name));
            pods.insert(node, added);
        }
        let texts = tempfile::tempdir()?;
        let (sockets, probes) = (Mutex::default(), AtomicBool::new(false));
        let (healthy, repairs) = (BTreeMap::new(), tempfile::tempdir()?);
        let mut scene = Scene { lab, pods, texts, repairs, healthy, sockets, probes };
        for node in NODES {
            scene.lab.stop(node, "agent")?;
            scene.lab.start(node, "agent", agent(node))?;
        }
        scene.lay_routes(agent)?;
        bird::start_all(&scene)?;
        scene.healthy = scene.records()?;
        scene.write_texts()?;
        Ok(scene)
    }

    /// Every node knows the way to the others' blocks.
    fn lay_routes(&self, agent: fn(&str) -> &[&str]) -> Result<()> {
        for node in self.pods.keys() {
            for other in NODES.into_iter().filter(|other| other != node && !agent(other).is_empty()) {
                self.on(other, &self.route_to_block_of(node))?;
            }
        }
        Ok(())
    }

    pub(crate) fn route_to_block_of(&self, node: &str) -> String {
        format!("ip route replace {} via {} dev eth0 proto bird", self.block_of(node), address_of(node))
    }

    /// What Kubernetes would tell, in files of their own.
    fn write_texts(&self) -> Result<()> {
        let mut pods = kubernetes::pods(self.pods.iter());
        let coming = (0..CHURNING)
            .map(|number| kubernetes::coming(NAMESPACE, &format!("churn-{number}"), CALICO_NODE));
        pods["items"].as_array_mut().context("a list")?.extend(coming);
        self.write_text("pods.json", &pods.to_string())?;
        self.write_text("nodes.json", &kubernetes::nodes().to_string())
    }

    pub(crate) fn write_text(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.texts.path().join(name), text)?)
    }

    pub(crate) fn read_text(&self, name: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.texts.path().join(name))?)
    }

    pub(crate) fn lab(&self) -> &OwnCluster {
        &self.lab
    }

    pub(crate) fn pod(&self, node: &str, number: usize) -> &PodReport {
        &self.pods[node][number]
    }

    pub(crate) fn pods_of(&self, node: &str) -> usize {
        self.pods.get(node).map_or(0, Vec::len)
    }

    pub(crate) fn block_of(&self, node: &str) -> Cidr {
        let address = self.pod(node, 0).addresses[0].parse().expect("an address");
        Cidr::containing(address, 26).expect("a block")
    }

    /// Runs a line of a shell on a node.
    pub(crate) fn on(&self, node: &str, line: &str) -> Result<String> {
        self.lab.run_on(node, &["sh", "-ec", line])
    }

    /// Runs a line of a shell on a node, in the network of a pod.
    pub(crate) fn inside(&self, node: &str, pod: &PodReport, line: &str) -> Result<String> {
        let namespace = pod.netns.rsplit('/').next().unwrap_or_default();
        self.lab.run_on(node, &["ip", "netns", "exec", namespace, "sh", "-ec", line])
    }

    pub(crate) fn records(&self) -> Result<BTreeMap<Key, Vec<u8>>> {
        self.lab.with_store(async |store| {
            let (records, _) = store.list_all(KeyRange::Everything).await?;
            Ok(records.into_iter().map(|record| (record.key, record.value.to_vec())).collect())
        })
    }

    /// All records, before anything was changed.
    pub(crate) fn healthy(&self) -> &BTreeMap<Key, Vec<u8>> {
        &self.healthy
    }

    pub(crate) fn change(&self, key: Key, value: Option<Vec<u8>>) -> Result<()> {
        self.change_all(vec![(key, value)])
    }

    /// Writes records as they are said, whatever they were.
    fn change_all(&self, changes: Vec<(Key, Option<Vec<u8>>)>) -> Result<()> {
        self.lab.with_store(async |store| {
            for (key, value) in changes {
                let known = store.get(&key).await?;
                let change = match (known, value) {
                    (Some(known), Some(value)) => Change::update(key, value, known.revision),
                    (None, Some(value)) => Change::create(key, value),
                    (Some(known), None) => Change::delete(key, known.revision),
                    (None, None) => continue,
                };
                store.commit(vec![change]).await?;
            }
            Ok(())
        })
    }

    /// From now on a node's agent is asked there, or at its own socket again.
    pub(crate) fn ask_at(&self, node: &'static str, socket: Option<PathBuf>) {
        let mut sockets = self.sockets.lock().expect("no panic");
        match socket {
            Some(socket) => sockets.insert(node, socket),
            None => sockets.remove(node),
        };
    }

    /// Records and texts as they were. What was changed elsewhere, whoever changed it puts back.
    pub(crate) fn restore_records(&self) -> Result<()> {
        let now = self.records()?;
        let gone = now.keys().filter(|key| !self.healthy.contains_key(key)).map(|key| (key.clone(), None));
        let changed = self.healthy.iter().filter(|(key, value)| now.get(key) != Some(value));
        let changed = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
        self.change_all(gone.chain(changed).collect())?;
        for entry in std::fs::read_dir(self.texts.path())? {
            std::fs::remove_file(entry?.path())?;
        }
        self.write_texts()
    }

    /// Whether looks send packets from now on.
    pub(crate) fn send_packets(&self, probes: bool) {
        self.probes.store(probes, Ordering::Relaxed);
    }

    /// What the doctor finds now: two looks, and nothing is too young.
    pub(crate) fn audit(&self) -> Result<Verdict> {
        self.audit_with("0")
    }

    /// The same, where what is younger than so many seconds may still be on its way.
    pub(crate) fn audit_with(&self, grace: &str) -> Result<Verdict> {
        let mut doctor = self.plumb(&["doctor", "-o", "json"])?;
        if self.probes.load(Ordering::Relaxed) {
            doctor.arg("--probe");
        }
        doctor.args(["--grace", grace, "--settle", "0.02", "--live", "--from"]).arg(self.texts.path());
        Verdict::of(doctor)
    }

    /// `plumb repair` with these words, and whatever Kubernetes says.
    pub(crate) fn repair(&self, words: &[&str], grace: &str) -> Result<Command> {
        let mut repair = self.plumb(&["repair", "-o", "json"])?;
        repair.args(words).args(["--grace", grace, "--settle", "0.02", "--from"]).arg(self.texts.path());
        repair.env("PLUMB_REPAIRS", self.repairs.path());
        Ok(repair)
    }

    fn plumb(&self, words: &[&str]) -> Result<Command> {
        plumb_at(&self.lab, &self.sockets.lock().expect("no panic"), words)
    }
}

impl Verdict {
    /// Everything, whether something else explains it or not.
    pub(crate) fn told(&self) -> BTreeSet<(FindingCode, String)> {
        self.roots.union(&self.symptoms).cloned().collect()
    }

    /// What a root explains.
    pub(crate) fn symptoms_of(&self, root: &(FindingCode, String)) -> BTreeSet<(FindingCode, String)> {
        let findings = self.report["findings"].as_array().into_iter().flatten();
        let of_root = findings.filter(|finding| named(finding) == *root);
        of_root.filter_map(|finding| finding["symptoms"].as_array()).flatten().map(named).collect()
    }

    pub(crate) fn of(mut doctor: Command) -> Result<Verdict> {
        let output = doctor.output().context("cannot run plumb doctor")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(matches!(output.status.code(), Some(0 | 1)), "plumb doctor could not look: {errors}");
        let report: Value = serde_json::from_slice(&output.stdout).context("a report")?;
        let findings = report["findings"].as_array().context("findings")?;
        let symptoms = findings.iter().filter_map(|finding| finding["symptoms"].as_array()).flatten();
        Ok(Verdict {
            roots: findings.iter().map(named).collect(),
            symptoms: symptoms.map(named).collect(),
            report: report.clone(),
        })
    }
}

fn named(finding: &Value) -> (FindingCode, String) {
    let text = |name: &str| finding[name].as_str().unwrap_or_default();
    (text("code").parse().expect("a code"), text("subject").to_owned())
}

/// `plumb doctor` with the lab's store and every node's agent.
pub(crate) fn doctor(lab: &Cluster) -> Result<Command> {
    plumb_at(lab, &BTreeMap::new(), &["doctor", "-o", "json"])
}

pub(crate) fn plumb_at(lab: &Cluster, sockets: &BTreeMap<&str, PathBuf>, words: &[&str]) -> Result<Command> {
    let nodes = &lab.description().nodes;
    let first = &nodes.first().context("a lab has nodes")?.name;
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", lab.network_of(first)?.display())).arg("--");
    command.arg(Programs::of_test()?.folder().join("plumb")).args(words);
    command.env_clear().envs(lab.environment_of(first)?);
    for node in nodes {
        let other = sockets.get(&*node.name).cloned();
        command.arg("--agent-socket").arg(match other {
            Some(socket) => socket,
            None => agent_socket(lab, &node.name)?,
        });
    }
    Ok(command)
}

pub(crate) fn agent_socket(lab: &Cluster, node: &str) -> Result<PathBuf> {
    Ok(lab.root_of(node)?.join("run/plumb/agent.sock"))
}

/// The address of a node in every lab.
pub(crate) fn address_of(node: &str) -> String {
    format!("172.30.0.{}", node.trim_start_matches("node"))
}
