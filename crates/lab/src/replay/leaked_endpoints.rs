//! A runtime's upgrade loses every pod without completing the DELs: endpoints, addresses and devices stay behind.
//!
//! In the outage the records of over 600 endpoints outlived their pods, devices stood without endpoints, and new
//! pods had no network. Here: on each node pods are lost in several ways, others live on, new ones start, and the
//! agents must remove exactly what has no owner.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::state::State;
use super::story::{Story, ping};
use crate::cluster::{Cluster, StoreKind};
use crate::kubelet::{KubeletRequest, LeftBehind, NewPod, PodKey, PodReport};
use crate::pinger::Pinger;

/// On each node, besides those that leak.
const LIVING: [&str; 2] = ["steady-0", "steady-1"];
/// Lost by the runtime, but its namespace and whatever runs in it are still there.
const UNLISTED: &str = "unlisted-0";
/// Started after the upgrade; the first under the name of a pod that was lost.
const NEW: [&str; 2] = ["set-0", "fresh-0"];

/// The pods it has started stay.
pub fn replay(cluster: &Cluster, leaks: usize, tell: &dyn Fn(&str)) -> Result<()> {
    ensure!(cluster.description().has_agents, "this replay needs agents: they fix the fault");
    Replay { cluster, leaks, story: Story(tell) }.run()
}

struct Replay<'a> {
    cluster: &'a Cluster,
    leaks: usize,
    story: Story<'a>,
}

impl Replay<'_> {
    fn run(&self) -> Result<()> {
        let unlisted = self.before()?;
        self.upgrade()?;
        let leaked = self.look_at_damage()?;
        let pingers = self.ping_the_living(&unlisted)?;
        let ready = self.agents_again()?;
        let more = self.start_new_pods()?;
        let swept = self.wait_until_swept(&unlisted, ready)?;
        self.say_what_was_swept(&leaked, &swept, ready)?;
        self.story.step("Traffic of the running pods during all of this");
        self.story.end_of_all_traffic(pingers.into_iter().chain(more))?;
        self.on_every_node(|node| self.kubelet(node, KubeletRequest::Check).map(|_| ()))?;
        self.story.note("CHECK of every sandbox finds no fault");
        self.last_namespaces_go(&unlisted)
    }

    /// Whoever lived on unseen ends, too: then nothing vouches for the rest any more.
    fn last_namespaces_go(&self, unlisted: &[(String, PodReport)]) -> Result<()> {
        self.story.step("The namespaces that no runtime lists are removed as well");
        for (node, pod) in unlisted {
            let name = pod.netns.rsplit('/').next().unwrap_or_default();
            self.cluster.run_on(node, &["ip", "netns", "del", name])?;
        }
        super::wait_for("records, kernels and runtimes to agree", || {
            State::look(self.cluster)?.ensure_in_order()
        })?;
        self.story.note("what was recorded of them follows; records, kernels and runtimes agree");
        Ok(())
    }

    /// The pods of an ordinary day. Returns those that the runtime is going to lose sight of.
    fn before(&self) -> Result<Vec<(String, PodReport)>> {
        self.story.step("Before the outage");
        let mut unlisted = Vec::new();
        for (index, node) in self.nodes().into_iter().enumerate() {
            let names = self.leaking(index).into_iter().chain([key(UNLISTED, node)]);
            let all = names.chain(LIVING.iter().map(|name| key(name, node)));
            let pods = all.map(|key| NewPod::new(&key)).collect();
            let running = self.kubelet(node, KubeletRequest::Add { pods, waits: true })?;
            let found = running.into_iter().find(|pod| pod.name.starts_with(UNLISTED));
            unlisted.push((node.to_owned(), found.context("the pod runs")?));
        }
        let state = State::look(self.cluster)?;
        state.ensure_in_order()?;
        self.story.note(&format!("{} pods run on {} nodes", state.pods.len(), self.nodes().len()));
        Ok(unlisted)
    }

    fn upgrade(&self) -> Result<()> {
        self.story.step("The upgrade: agents and kubelets are killed, pods are lost without a DEL");
        self.on_every_node(|node| self.cluster.kill(node, "agent"))?;
        self.on_every_node(|node| self.cluster.kill(node, "kubelet"))?;
        for (index, node) in self.nodes().into_iter().enumerate() {
            self.cluster.start(node, "kubelet", &[])?;
            let ways = [
                (self.leaking_with_device(index), LeftBehind::Devices),
                (self.leaking_without_device(index), LeftBehind::Nothing),
                (vec![key(UNLISTED, node)], LeftBehind::Namespace),
            ];
            for (pods, leaves) in ways {
                self.kubelet(node, KubeletRequest::Lose { pods, leaves })?;
            }
        }
        Ok(())
    }

    fn look_at_damage(&self) -> Result<State> {
        let nodes = self.nodes().len();
        let leaking: usize = (0..nodes).map(|index| self.leaking(index).len()).sum();
        let expected = Ownerless {
            endpoints: self.recorded(leaking + nodes),
            addresses: leaking + nodes,
            devices: self.leaks + nodes,
        };
        // The kernel removes a namespace, and what is in it, behind the scenes.
        let state = super::wait_for("the lost namespaces to go", || {
            let state = State::look(self.cluster)?;
            let found = Ownerless::of(&state);
            ensure!(found == expected, "leaked: {found:?}, expected {expected:?}");
            Ok(state)
        })?;
        let Ownerless { endpoints, addresses, devices } = expected;
        self.story.note(&format!(
            "the runtimes list {} sandboxes; beyond them the store holds {endpoints} endpoints and {addresses} \
             addresses, the kernels {devices} devices",
            state.living().len()
        ));
        if !self.endpoints_are_records() {
            self.story.note("on Kubernetes an endpoint is its Pod, and went with it");
        }
        self.story.note(&format!(
            "{nodes} of each are of sandboxes that no runtime lists, but whose namespaces exist: they have an owner"
        ));
        Ok(state)
    }

    /// One pod of each sort on each node.
    fn ping_the_living(&self, unlisted: &[(String, PodReport)]) -> Result<Vec<Pinger>> {
        let mut pingers = Vec::new();
        for (node, pod) in unlisted {
            pingers.push(ping(self.cluster, node, pod)?);
            let pods = self.cluster.pods(node)?;
            pingers.push(ping(self.cluster, node, pods.first().context("pods live on")?)?);
        }
        Ok(pingers)
    }

    fn agents_again(&self) -> Result<Instant> {
        self.story.step("The agents restart, and pods start");
        self.on_every_node(|node| self.cluster.start(node, "agent", &[]))?;
        self.story.note(&format!(
            "agents are ready; grace between two observations: {} s",
            self.cluster.description().grace.as_secs_f32()
        ));
        Ok(Instant::now())
    }

    fn start_new_pods(&self) -> Result<Vec<Pinger>> {
        let mut pingers = Vec::new();
        for node in self.nodes() {
            let pods = NEW.iter().map(|name| NewPod::new(&key(name, node))).collect();
            let running = self.kubelet(node, KubeletRequest::Add { pods, waits: true })?;
            for pod in &running {
                pingers.push(ping(self.cluster, node, pod)?);
            }
        }
        let count = pingers.len();
        self.story.note(&format!(
            "{count} new pods run, half of them under names of lost ones; each is pinged from now on"
        ));
        Ok(pingers)
    }

    /// Until what is left without a runtime's word is exactly what lives nevertheless.
    fn wait_until_swept(&self, unlisted: &[(String, PodReport)], ready: Instant) -> Result<State> {
        self.story.step("The agents fix it");
        let limit = 2 * self.cluster.description().grace + crate::wait::PATIENCE;
        loop {
            let state = State::look(self.cluster)?;
            let (kept, left) = (unlisted.len(), Ownerless::of(&state));
            for (_, pod) in unlisted {
                let has_endpoint =
                    !self.endpoints_are_records() || state.endpoints.contains(&pod.container_id);
                ensure!(has_endpoint, "{} has lost its endpoint", pod.key());
                let has_address = state.addresses.contains_key(&pod.container_id);
                ensure!(has_address, "{} has lost its address", pod.key());
            }
            if left == (Ownerless { endpoints: self.recorded(kept), addresses: kept, devices: kept }) {
                return Ok(state);
            }
            ensure!(
                ready.elapsed() < limit,
                "after {} s, what no runtime lists still exists: {left:?}",
                limit.as_secs()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn say_what_was_swept(&self, before: &State, after: &State, ready: Instant) -> Result<()> {
        let gone = before.endpoints.difference(&after.endpoints).count();
        let addresses = before.addresses.keys().filter(|id| !after.addresses.contains_key(*id)).count();
        let devices = before.indexes.difference(&after.indexes).count();
        self.story.note(&format!(
            "{gone} endpoints, {addresses} addresses and {devices} devices without an owner were removed, {:.1} s after the \
             agents were ready",
            ready.elapsed().as_secs_f32()
        ));
        let living = after.living();
        ensure!(living.iter().all(|id| after.endpoints.contains(id)), "a running pod has lost its endpoint");
        ensure!(
            living.iter().all(|id| after.addresses.contains_key(id)),
            "a running pod has lost its address"
        );
        self.story.note(&format!(
            "all {} sandboxes that the runtimes list have kept their endpoint, address and device",
            living.len()
        ));
        Ok(())
    }

    /// The pods of a node whose records and devices are going to stay; on some nodes one more, so that all together
    /// are as many as asked for.
    fn leaking_with_device(&self, node_index: usize) -> Vec<PodKey> {
        let nodes = self.nodes();
        let count = self.leaks / nodes.len() + usize::from(node_index < self.leaks % nodes.len());
        (0..count).map(|number| key(&format!("set-{number}"), nodes[node_index])).collect()
    }

    /// Those whose records stay while the kernel takes their devices away: a few more.
    fn leaking_without_device(&self, node_index: usize) -> Vec<PodKey> {
        let count = self.leaking_with_device(node_index).len().div_ceil(10);
        (0..count).map(|number| key(&format!("bare-{number}"), self.nodes()[node_index])).collect()
    }

    /// On Kubernetes an endpoint is a Pod, and nothing is left of a Pod that was deleted.
    fn endpoints_are_records(&self) -> bool {
        self.cluster.description().store != StoreKind::Kubernetes
    }

    /// How many endpoints remain of so many sandboxes whose pods are gone.
    fn recorded(&self, sandboxes: usize) -> usize {
        if self.endpoints_are_records() { sandboxes } else { 0 }
    }

    fn leaking(&self, node_index: usize) -> Vec<PodKey> {
        [self.leaking_with_device(node_index), self.leaking_without_device(node_index)].concat()
    }

    fn nodes(&self) -> Vec<&str> {
        self.cluster.description().node_names()
    }

    fn on_every_node(&self, act: impl Fn(&str) -> Result<()>) -> Result<()> {
        self.nodes().iter().try_for_each(|node| act(node))
    }

    fn kubelet(&self, node: &str, request: KubeletRequest) -> Result<Vec<PodReport>> {
        self.cluster.kubelet(node, &request)
    }
}

/// How much there is that no runtime knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ownerless {
    endpoints: usize,
    addresses: usize,
    devices: usize,
}

impl Ownerless {
    fn of(state: &State) -> Ownerless {
        Ownerless {
            endpoints: state.ownerless_endpoints(),
            addresses: state.ownerless_addresses(),
            devices: state.ownerless_devices(),
        }
    }
}

fn key(name: &str, node: &str) -> PodKey {
    PodKey { namespace: "xxxxx-system".to_owned(), name: format!("{name}.{node}") }
}
