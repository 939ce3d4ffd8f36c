//! What every replay does: it tells its steps, starts pods, and counts what their traffic loses.

use anyhow::{Context as _, Result, ensure};
use model::HandleId;

use crate::cluster::{Cluster, NETWORK};
use crate::kubelet::{KubeletRequest, NewPod, PodKey, PodReport};
use crate::pinger::Pinger;

/// Whoever hears what happens.
pub(super) struct Story<'a>(pub(super) &'a dyn Fn(&str));

impl Story<'_> {
    pub(super) fn step(&self, title: &str) {
        (self.0)(&format!("\n== {title}"));
    }

    pub(super) fn note(&self, line: &str) {
        (self.0)(&format!("   {line}"));
    }

    /// Stops pings, each with its name, and fails if a packet got no answer.
    pub(super) fn end_of_traffic<'p>(
        &self,
        pingers: impl IntoIterator<Item = (&'p str, Pinger)>,
    ) -> Result<()> {
        for (what, pinger) in pingers {
            let tally = pinger.stop()?;
            self.note(&format!("{what}: {} pings answered, {} lost", tally.answered, tally.lost));
            ensure!(tally.lost == 0 && tally.answered > 0, "{what}: {} pings were lost", tally.lost);
        }
        Ok(())
    }

    /// The same for many, as one sum.
    pub(super) fn end_of_all_traffic(&self, pingers: impl IntoIterator<Item = Pinger>) -> Result<()> {
        let (mut answered, mut lost) = (0, 0);
        for pinger in pingers {
            let tally = pinger.stop()?;
            (answered, lost) = (answered + tally.answered, lost + tally.lost);
        }
        self.note(&format!("{answered} pings answered, {lost} lost"));
        ensure!(lost == 0 && answered > 0, "{lost} pings of running pods were lost");
        Ok(())
    }
}

/// Starts pods in the namespace `shop`, and waits until they run.
pub(super) fn add(cluster: &Cluster, node: &str, names: &[&str]) -> Result<Vec<PodReport>> {
    let key = |name: &&str| PodKey { namespace: "shop".to_owned(), name: (*name).to_owned() };
    let pods = names.iter().map(|name| NewPod::new(&key(name))).collect();
    let mut added = cluster.kubelet(node, &KubeletRequest::Add { pods, waits: true })?;
    added.retain(|pod| names.contains(&pod.name.as_str()));
    added.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(added)
}

/// Pings a pod from its node.
pub(super) fn ping(cluster: &Cluster, node: &str, pod: &PodReport) -> Result<Pinger> {
    let address = pod.addresses.first().with_context(|| format!("{} has an address", pod.key()))?;
    Pinger::start(&pod.key().to_string(), cluster.command_on_node_only(node)?, address)
}

/// `ip` on a node.
pub(super) fn ip(cluster: &Cluster, node: &str, words: &str) -> Result<String> {
    let words: Vec<&str> = std::iter::once("ip").chain(words.split(' ')).collect();
    cluster.run_on(node, &words)
}

/// Starts every agent again, with arguments for this one time.
pub(super) fn restart_agents(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    cluster.description().node_names().into_iter().try_for_each(|node| {
        cluster.stop(node, "agent")?;
        cluster.start(node, "agent", arguments)
    })
}

/// The handle of a pod's sandbox.
pub(super) fn handle_of(pod: &PodReport) -> HandleId {
    HandleId::of_sandbox(NETWORK, &pod.container_id)
}
