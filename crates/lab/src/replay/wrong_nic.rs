//! A second network card, a reboot, and the node goes by an address that nobody else can reach.
//!
//! In the outage the agent took the first card it found. BGP never came up, pods on that node were cut off, and for six days nothing
//! said why.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::story::{Story, add, ip};
use super::surgery::{Surgery, parsed};
use crate::cluster::Cluster;
use crate::kubelet::PodReport;
use crate::pinger::Pinger;
use crate::wait_for;

/// The new card, on a network where nobody else is.
const CARD: &str = "eth9";
const CARD_ADDRESS: &str = "10.9.9.9";
/// Nothing is said about the address, and looks at it follow each other quickly.
const UNSAID: [(&str, &str); 2] = [("IP", ""), ("AUTODETECT_POLL_INTERVAL", "500ms")];
const FORCED: [(&str, &str); 2] = [("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "interface=eth9")];

/// The lab needs three nodes, and BGP.
pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    let [first, .., moved] = cluster.description().node_names()[..] else {
        bail!("this replay needs two nodes at least")
    };
    let address = cluster.description().node(moved)?.address().context("an address")?.to_string();
    Replay { cluster, story: Story(tell), first, moved, address }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    story: Story<'a>,
    /// A node that stays as it is.
    first: &'a str,
    /// The one with the new card.
    moved: &'a str,
    /// By which everybody knows it.
    address: String,
}

impl Replay<'_> {
    fn run(&self) -> Result<()> {
        self.story.step("Pods on two nodes talk to each other");
        let (near, far) = (self.add(self.first)?, self.add(self.moved)?);
        let to = far.addresses.first().context("the pod has an address")?;
        // Their blocks are new, and have to get around first.
        wait_for("the first answer", || {
            let mut ping = self.cluster.command_in(self.first, &near.netns)?;
            let answered = ping.args(["ping", "-n", "-c", "1", "-W", "1", to]).output()?.status.success();
            ensure!(answered, "{to} does not answer");
            Ok(())
        })?;
        let there = Pinger::start("to the pod", self.cluster.command_in(self.first, &near.netns)?, to)?;
        let from = near.addresses.first().context("the pod has an address")?;
        let back = Pinger::start("from the pod", self.cluster.command_in(self.moved, &far.netns)?, from)?;
        there.wait_for_more(20)?;
        self.reboot()?;
        self.story.step("Traffic during all of this");
        [&there, &back].into_iter().try_for_each(|pinger| pinger.wait_for_more(50))?;
        self.story.end_of_traffic([("to the pod", there), ("from the pod", back)])?;
        self.force()?;
        self.put_right()
    }

    /// With our defaults.
    fn reboot(&self) -> Result<()> {
        self.story.step(&format!("{} gets a second NIC, and its agent and BIRD restart", self.moved));
        for words in [
            format!("link add {CARD} type veth peer name nowhere"),
            format!("address add {CARD_ADDRESS}/24 dev {CARD}"),
            "link set nowhere up".to_owned(),
            format!("link set {CARD} up"),
        ] {
            ip(self.cluster, self.moved, &words)?;
        }
        self.cluster.kill(self.moved, "agent")?;
        let bird = self.cluster.root_of(self.moved)?.join("run/plumb/bird.ctl");
        host::bird::ask(&bird, "graceful restart").context("BIRD does not end")?;
        self.cluster.launch(self.moved, "agent", &UNSAID)?;
        self.cluster.wait_for_service(self.moved, "agent")?;
        ensure!(self.recorded()?.starts_with(&self.address), "the node moved to {}", self.recorded()?);
        self.story.note(&format!(
            "it is registered with {} as before; agent and BIRD are ready again",
            self.address
        ));
        Ok(())
    }

    /// As it was in the outage.
    fn force(&self) -> Result<()> {
        self.story.step(&format!("Autodetection is set to use {CARD}"));
        self.cluster.stop(self.moved, "agent")?;
        self.cluster.launch(self.moved, "agent", &FORCED)?;
        let started = Instant::now();
        let within = |what: &str, look: &dyn Fn() -> Result<String>| -> Result<()> {
            let said =
                wait_for(what, look).with_context(|| self.cluster.log_tail(self.moved, "agent", 15))?;
            self.story.note(&format!("{what}, after {:.1} s: {said}", started.elapsed().as_secs_f64()));
            Ok(())
        };
        within("the record", &|| {
            let recorded = self.recorded()?;
            ensure!(recorded.starts_with(CARD_ADDRESS), "it says {recorded}");
            Ok(recorded.trim().to_owned())
        })?;
        let session = format!("Mesh_{}", CARD_ADDRESS.replace('.', "_"));
        within(&format!("readiness of {}", self.first), &|| self.readiness(self.first, &session))?;
        within(&format!("readiness of {}", self.moved), &|| {
            self.readiness(self.moved, "is not established")
        })?;
        within("plumb node status", &|| self.status())?;
        within("plumb doctor", &|| self.diagnosis())
    }

    fn put_right(&self) -> Result<()> {
        self.story.step("The operator sets the address");
        self.cluster.stop(self.moved, "agent")?;
        self.cluster.launch(self.moved, "agent", &[("IP", &self.address)])?;
        for node in [self.moved, self.first] {
            self.cluster.wait_for_service(node, "agent")?;
        }
        self.story.note("every session is up, and both nodes are ready");
        Ok(())
    }

    /// What the agent says is missing, if these words are in it.
    fn readiness(&self, node: &str, words: &str) -> Result<String> {
        match self.cluster.agent_readiness(node) {
            Ok(()) => bail!("{node} reports itself ready"),
            Err(error) => {
                let said = error.to_string();
                let line = said.lines().find(|line| line.contains(words));
                line.map(|line| line.trim().to_owned()).with_context(|| format!("it says: {said}"))
            }
        }
    }

    fn status(&self) -> Result<String> {
        let output = self.cluster.output_on(self.first, &["plumb", "node", "status"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(CARD_ADDRESS) && !line.contains("Established"));
        line.map(|line| line.trim().to_owned()).with_context(|| format!("it says: {text}"))
    }

    /// The doctor, with the store and every node's agent.
    fn diagnosis(&self) -> Result<String> {
        let surgery = Surgery::new(self.cluster)?;
        let report = parsed(&surgery.plumb(&["doctor", "-o", "json", "--settle", "0"])?)?;
        let findings = report["findings"].as_array().context("a list of findings")?;
        let is_it = |finding: &&Value| {
            finding["code"] == "node-address-wrong" && finding["subject"] == format!("node {}", self.moved)
        };
        let finding = findings.iter().find(is_it).with_context(|| format!("it finds {findings:#?}"))?;
        let symptoms = finding["symptoms"].as_array().map_or(0, Vec::len);
        Ok(format!("{} (and {symptoms} symptoms of it)", finding["summary"].as_str().unwrap_or_default()))
    }

    fn recorded(&self) -> Result<String> {
        self.cluster.plumb(&["get", "node", self.moved, "-o", "jsonpath={.spec.bgp.ipv4Address}"])
    }

    fn add(&self, node: &str) -> Result<PodReport> {
        add(self.cluster, node, &[&format!("web-{node}")])?.pop().context("the pod runs")
    }
}
