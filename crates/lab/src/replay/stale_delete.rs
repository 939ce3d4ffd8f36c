//! The old sandbox's DEL comes late, when a new pod of the same name runs already.
//!
//! In the outage the DEL went by the pod's name: it deleted the new pod's endpoint, and released its address.

use anyhow::{Context as _, Result, ensure};

use super::state::State;
use super::story::{Story, ping};
use crate::cluster::Cluster;
use crate::kubelet::{KubeletRequest, NewPod, PodKey, PodReport, SandboxKey};
use crate::pinger::Pinger;

/// How often the late DEL is repeated: kubelet's retries.
const LATE_DELS: usize = 5;

pub fn replay(cluster: &Cluster, tell: &dyn Fn(&str)) -> Result<()> {
    let node = cluster.description().nodes.first().context("a lab has nodes")?.name.clone();
    let key = PodKey { namespace: "lijiaob".into(), name: "etcd1-0".into() };
    Replay { cluster, node, story: Story(tell), key }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    node: String,
    story: Story<'a>,
    key: PodKey,
}

impl Replay<'_> {
    fn run(&self) -> Result<()> {
        self.story.step("The pod of a StatefulSet runs");
        let old = self.add()?;
        self.story.note(&describe(&old));
        self.story.step("It is deleted, but its DEL does not get through");
        self.kubelet(KubeletRequest::HoldDels { is_held: true })?;
        self.kubelet(KubeletRequest::Delete { pods: vec![self.key.clone()], waits: false })?;
        self.story.note(&format!("sandbox {} remains; the runtime will retry its DEL", short(&old)));
        self.story.step("The new pod of the same name starts");
        let new = self.add()?;
        self.story.note(&describe(&new));
        ensure!(new.container_id != old.container_id, "the new pod has the old sandbox");
        ensure!(new.addresses != old.addresses, "the new pod got an address that is still in use");
        let node_address = self.cluster.description().node(&self.node)?.address().context("an address")?;
        let from_node = ping(self.cluster, &self.node, &new)?;
        let inside = self.cluster.command_in(&self.node, &new.netns)?;
        let from_pod = Pinger::start("new pod to node", inside, &node_address.to_string())?;
        self.late_dels(&old, &new)?;
        from_node.wait_for_more(25)?;
        self.story.step("Traffic of the new pod during all of this");
        self.story.end_of_traffic([("node to new pod", from_node), ("new pod to node", from_pod)])?;
        self.look_after(&old, &new)?;
        self.end(&new)
    }

    fn late_dels(&self, old: &PodReport, new: &PodReport) -> Result<()> {
        self.story.step("The old sandbox's DEL arrives late, and again");
        self.kubelet(KubeletRequest::HoldDels { is_held: false })?;
        self.wait_until_ended(old)?;
        self.story.note("from the runtime: stop, stop again, remove; all succeeded");
        for _ in 0..LATE_DELS {
            self.kubelet(KubeletRequest::RepeatDel { sandbox: old.sandbox() })?;
        }
        self.story.note(&format!("{LATE_DELS} more with an empty CNI_NETNS: all succeeded"));
        // As a plugin that goes by names would be led astray: the old sandbox, but the new pod's UID.
        let sandbox = SandboxKey { uid: new.uid.clone(), ..old.sandbox() };
        self.kubelet(KubeletRequest::RepeatDel { sandbox })?;
        self.story.note("one more that carries the new pod's UID: succeeded");
        Ok(())
    }

    fn look_after(&self, old: &PodReport, new: &PodReport) -> Result<()> {
        self.story.step("Records, kernel and runtime afterwards");
        let state = State::look(self.cluster)?;
        ensure!(state.endpoints.contains(&new.container_id), "the new pod's endpoint is gone");
        ensure!(state.addresses.contains_key(&new.container_id), "the new pod's address is free");
        self.kubelet(KubeletRequest::Check)?;
        self.story.note("the new pod has its endpoint, its address and its device; CHECK finds no fault");
        self.ensure_gone(old)?;
        self.story.note("what the old sandbox had is released; records, kernel and runtime agree");
        Ok(())
    }

    fn end(&self, new: &PodReport) -> Result<()> {
        self.story.step("The new pod ends");
        self.kubelet(KubeletRequest::Delete { pods: vec![self.key.clone()], waits: true })?;
        self.kubelet(KubeletRequest::RepeatDel { sandbox: new.sandbox() })?;
        self.ensure_gone(new)?;
        self.story.note("nothing is left of either");
        Ok(())
    }

    /// What is removed behind a DEL takes a moment.
    fn ensure_gone(&self, pod: &PodReport) -> Result<()> {
        let state = super::wait_for("everything to be released", || {
            let state = State::look(self.cluster)?;
            state.ensure_in_order()?;
            Ok(state)
        })?;
        let is_left =
            state.endpoints.contains(&pod.container_id) || state.addresses.contains_key(&pod.container_id);
        ensure!(!is_left, "something of sandbox {} is left", pod.container_id);
        Ok(())
    }

    fn add(&self) -> Result<PodReport> {
        let request = KubeletRequest::Add { pods: vec![NewPod::new(&self.key)], waits: true };
        self.kubelet(request)?.pop().context("the pod runs")
    }

    fn wait_until_ended(&self, old: &PodReport) -> Result<()> {
        super::wait_for("the old pod to end", || {
            let pods = self.cluster.pods(&self.node)?;
            ensure!(pods.iter().all(|pod| pod.uid != old.uid), "the old pod is still ending");
            Ok(())
        })
    }

    fn kubelet(&self, request: KubeletRequest) -> Result<Vec<PodReport>> {
        self.cluster.kubelet(&self.node, &request)
    }
}

fn describe(pod: &PodReport) -> String {
    format!("{}: sandbox {}, {} on {}", pod.key(), short(pod), pod.addresses.join(", "), pod.device)
}

fn short(pod: &PodReport) -> String {
    pod.container_id.chars().take(12).collect()
}
