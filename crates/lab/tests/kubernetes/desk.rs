//! An operator of a lab on Kubernetes: what the doctor finds, what a repair does. Agents change only what a repair asks for, so that faults stay.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use lab::Programs;
use lab::cluster::{OwnCluster, Plan};
use lab::kubelet::{PodKey, PodReport};
use model::ipam::Block;
use model::{Cidr, Key};
use serde_json::{Value, json};
use store::Change;
use testkit::process::wait_until;

use crate::scene::{add, key, plan, up};

pub(crate) const NODES: [&str; 2] = ["node1", "node2"];
/// Seconds between the two observations that must show something as gone. Nothing here is that young when it matters.
const GRACE: &str = "1";

pub(crate) struct Desk {
    pub(crate) lab: OwnCluster,
    /// Two on each node, in the order of the nodes.
    pub(crate) pods: Vec<PodReport>,
    repairs: tempfile::TempDir,
}

/// An agent that changes nothing by itself.
pub(crate) const REPAIRS: [&str; 2] = ["--observe", "--repair"];

/// Findings, by code and subject.
pub(crate) type Findings = BTreeSet<(String, String)>;

pub(crate) fn found(code: &str, subject: impl std::fmt::Display) -> (String, String) {
    (code.to_owned(), subject.to_string())
}

pub(crate) fn subject(pod: &PodReport) -> String {
    format!("pod {}/{}", pod.namespace, pod.name)
}

impl Desk {
    /// `None`, with the reason reported, where such a lab cannot run.
    pub(crate) fn up(test: &str) -> Option<Desk> {
        let lab = up(test, || Plan { grace: Duration::from_secs(60), ..plan(NODES.len()) })?;
        let names = ["node1", "node1", "node2", "node2"].into_iter().zip(["web-0", "web-1", "db-0", "db-1"]);
        let pods = names.map(|(node, name)| add(&lab, node, &format!("shop/{name}"))).collect();
        let desk = Desk { lab, pods, repairs: tempfile::tempdir().unwrap() };
        // What agents that act have made stays when they are replaced.
        wait_until("the network to be complete", || desk.findings().is_empty())
            .unwrap_or_else(|error| panic!("{error}: {:?}", desk.findings()));
        for node in NODES {
            desk.restart_agent(node, &REPAIRS);
        }
        desk.sees(&[]);
        Some(desk)
    }

    pub(crate) fn restart_agent(&self, node: &str, how: &[&str]) {
        self.lab.stop(node, "agent").unwrap();
        self.lab.start(node, "agent", how).unwrap();
    }

    pub(crate) fn plumb(&self, words: &[&str]) -> Command {
        let first = NODES[0];
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.lab.network_of(first).unwrap().display())).arg("--");
        command.arg(Programs::of_test().unwrap().folder().join("plumb")).args(words);
        command.env_clear().envs(self.lab.environment_of(first).unwrap());
        command.env("PLUMB_REPAIRS", self.repairs.path());
        for node in NODES {
            let socket = self.lab.root_of(node).unwrap().join("run/plumb/agent.sock");
            command.arg("--agent-socket").arg(socket);
        }
        command
    }

    /// What the doctor reports, without what something else explains.
    pub(crate) fn report(&self) -> Value {
        let words = ["doctor", "-o", "json", "--settle", "0.1", "--grace", "0"];
        let output = self.plumb(&words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "plumb doctor says {}: {errors}", output.status);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn findings(&self) -> Findings {
        let report = self.report();
        let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|finding| (text(finding, "code"), text(finding, "subject"))).collect()
    }

    #[track_caller]
    pub(crate) fn sees(&self, expected: &[(String, String)]) {
        let expected: Findings = expected.iter().cloned().collect();
        // On a busy machine something else may be seen for a moment.
        wait_until("just these findings", || self.findings() == expected)
            .unwrap_or_else(|error| panic!("{error}: {expected:?}, not {:#}", self.report()));
    }

    fn repair(&self, words: &[&str]) -> Value {
        let mut repair = self.plumb(&[&["repair"], words].concat());
        let output = repair.args(["-o", "json", "--settle", "0.1", "--grace", GRACE]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "plumb repair says {}: {said}{errors}", output.status);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}{errors}"))
    }

    /// The ID of the repair.
    pub(crate) fn apply(&self) -> String {
        self.repair(&["--apply"])["id"].as_str().expect("something was repaired").to_owned()
    }

    pub(crate) fn undo(&self, id: &str) {
        self.repair(&["undo", id]);
    }

    /// Why findings are left to people.
    pub(crate) fn left(&self) -> Vec<String> {
        let plan = self.repair(&[]);
        assert_eq!(plan["steps"], json!([]), "{plan:#}");
        let left = plan["left"].as_array().unwrap().iter();
        left.map(|left| format!("{} {}", left["why"].as_str().unwrap(), left["commands"])).collect()
    }

    /// Found, repaired, taken back and found again, repaired again.
    #[track_caller]
    pub(crate) fn mends(&self, expected: &[(String, String)]) {
        self.sees(expected);
        let id = self.apply();
        self.sees(&[]);
        self.undo(&id);
        self.sees(expected);
        self.apply();
        self.sees(&[]);
    }

    pub(crate) fn patch(&self, path: &str, change: &Value) {
        let answer = self.lab.with_api(|api| api.patch("strategic-merge", path, change)).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }

    pub(crate) fn annotate(&self, pod: &PodReport, annotations: &Value) {
        self.patch(&path_of(&pod.key()), &json!({ "metadata": { "annotations": annotations } }));
    }

    /// What a kubelet reports.
    pub(crate) fn report_address(&self, pod: &PodReport, address: &str) {
        let list = json!([{ "$patch": "replace" }, { "ip": address }]);
        let path = format!("{}/status", path_of(&pod.key()));
        self.patch(&path, &json!({ "status": { "podIP": address, "podIPs": list } }));
    }

    pub(crate) fn edit_block(&self, address: &str, edit: impl FnOnce(&mut Block) + Send) {
        let cidr = Cidr::containing(address.parse().unwrap(), 26).unwrap();
        self.change(Key::Block(cidr), |text| {
            let mut block = Block::decode(&cidr, &text.expect("the block exists")).unwrap();
            edit(&mut block);
            ipam::count_write(&mut block);
            Some(block.encode())
        });
    }

    /// Writes a record as another program would.
    pub(crate) fn change(&self, key: Key, edit: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>> + Send) {
        let changed = self.lab.with_store(async |store| {
            let found = store.get(&key).await?;
            let (text, revision) = found.map(|found| (found.value.to_vec(), found.revision)).unzip();
            let change = match (revision, edit(text)) {
                (Some(revision), Some(value)) => Change::update(key, value, revision),
                (Some(revision), None) => Change::delete(key, revision),
                (None, Some(value)) => Change::create(key, value),
                (None, None) => return Ok(()),
            };
            store.commit(vec![change]).await?;
            Ok(())
        });
        changed.unwrap();
    }
}

pub(crate) fn path_of(pod: &PodKey) -> String {
    let PodKey { namespace, name } = pod;
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

pub(crate) fn pod_key(name: &str) -> PodKey {
    key(name)
}
