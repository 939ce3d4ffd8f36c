//! Re-checks this node's address regularly, and probes from it whether other nodes answer. A network interface that flaps or is added does not
//! change the address; one that is missing in several observations in a row does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use evidence::node::{AddressChoice, AddressProbe};
use ipnet::IpNet;
use model::{IpVersion, Key, Kind, Resource};
use plan::address::{Choice, Doubt, OtherNode, Patience, Probe, Silences, Steady, Verdict};
use store::{Store, StoreError};
use tracing::{debug, info, warn};

use super::cache::Cache;
use crate::address::{self, AddressSettings, LocalAddresses};
use crate::services::Agent;
use crate::variables;

const START_WAIT: Duration = Duration::from_millis(100);
const PATIENCE: Patience = Patience { looks: 3 };
/// The pause after an observation in which other nodes did not answer.
const SOON: Duration = Duration::from_secs(3);
const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// Never ends.
pub(super) async fn keep(agent: &Agent, cache: &Cache, store: &Arc<dyn Store>) {
    let settings = match AddressSettings::read(&variables::text) {
        Ok(settings) => settings,
        Err(error) => {
            warn!(%error, "cannot re-check this node's address");
            return std::future::pending().await;
        }
    };
    let mut steady = VERSIONS.map(|_| Steady::new(None, PATIENCE));
    while !cache.lock().is_complete() {
        tokio::time::sleep(START_WAIT).await;
    }
    let internal = recorded_internal(&**store, &agent.node).await;
    let mut silences = VERSIONS.map(|_| Silences::default());
    for turn in 0_usize.. {
        if let Some((observed, now)) = observe(&settings, cache, &internal, turn, silences.clone()).await {
            log_silences(&silences, &now);
            silences = now;
            let mut doubts = 0;
            for (observed, steady) in observed.iter().zip(&mut steady) {
                if steady.current() != observed.recorded {
                    // Another program wrote the record, or this is the first observation.
                    *steady = Steady::new(observed.recorded, PATIENCE);
                }
                doubts += log_doubts(agent, &observed.choice);
                settle(agent, steady.look(&observed.choice), &**store).await;
            }
            agent.metrics().node_address_doubts.set(doubts);
            publish_doubts(cache, &observed);
            agent.health.set_address_choices(observed.iter().filter_map(Observed::evidence).collect());
        }
        let is_silent = silences.iter().any(Silences::is_any);
        let pause = if is_silent { settings.poll_every.min(SOON) } else { settings.poll_every };
        tokio::time::sleep(pause).await;
    }
}

/// Logs from which addresses other nodes stopped answering; a verdict takes several observations.
fn log_silences(before: &[Silences], now: &[Silences]) {
    for (before, now) in before.iter().zip(now) {
        for (address, observations) in now.iter().filter(|now| !before.iter().any(|before| before == *now)) {
            let needed = Silences::LOOKS;
            info!(%address, "other nodes answer to another address of this node but not to this one: observation {observations} of {needed}");
        }
    }
}

/// The addresses of one IP version.
struct Observed {
    /// In the node's record.
    recorded: Option<IpNet>,
    /// What would be chosen now.
    choice: Choice,
    probes: Vec<Probe>,
}

impl Observed {
    /// `None` if there is neither an address nor a doubt.
    fn evidence(&self) -> Option<AddressChoice> {
        let Choice { address, doubts, refused } = &self.choice;
        let probe = |probe: &Probe| AddressProbe {
            from: probe.from,
            asked: probe.asked.iter().copied().collect(),
            answered: probe.answered.iter().copied().collect(),
        };
        let evidence = AddressChoice {
            network: address.as_ref().map(|chosen| chosen.network),
            device: address.as_ref().and_then(|chosen| chosen.interface.clone()),
            why: address.as_ref().map(|chosen| chosen.why.to_string()).unwrap_or_default(),
            doubts: doubts.iter().map(ToString::to_string).collect(),
            unsettled: doubts
                .iter()
                .filter(|doubt| doubt.is_for_operator())
                .map(ToString::to_string)
                .collect(),
            refused: refused.iter().map(ToString::to_string).collect(),
            probes: self.probes.iter().map(probe).collect(),
        };
        (evidence != AddressChoice::default()).then_some(evidence)
    }
}

/// The recorded address and the one that would be chosen now, for both IP versions.
async fn observe(
    settings: &AddressSettings,
    cache: &Cache,
    internal: &[IpAddr],
    turn: usize,
    mut silences: [Silences; 2],
) -> Option<([Observed; 2], [Silences; 2])> {
    let (recorded, others) = {
        let state = cache.lock();
        let own = state.between.own_node().cloned().unwrap_or_default();
        let recorded = VERSIONS.map(|version| own.of(version).address);
        let nodes = state.between.nodes().filter(|(name, _)| *name != state.between.own_name());
        let others: Vec<OtherNode> = nodes
            .flat_map(|(name, node)| {
                let addresses = [node.v4.address, node.v6.address].into_iter().flatten();
                addresses.map(|address| OtherNode { name: name.to_owned(), address })
            })
            .collect();
        (recorded, others)
    };
    let (settings, internal) = (settings.clone(), internal.to_vec());
    // Asks the kernel, other nodes, and maybe the resolver.
    let work = move || {
        let local = LocalAddresses::read()?.or_internal(internal);
        let [v4, v6] = recorded;
        let [silent_v4, silent_v6] = &mut silences;
        let of = |version, recorded: Option<IpNet>, silences: &mut Silences| {
            let (choice, probes) =
                settings.choose_again(version, &local, recorded, others.clone(), turn, silences);
            Observed { recorded, choice, probes }
        };
        let observed = [of(IpVersion::V4, v4, silent_v4), of(IpVersion::V6, v6, silent_v6)];
        Ok::<_, host::HostError>((observed, silences))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(observed)) => Some(observed),
        Ok(Err(error)) => {
            debug!(%error, "cannot read this node's network interfaces");
            None
        }
        Err(_) => None,
    }
}

/// Kubernetes' InternalIP in the node's record.
async fn recorded_internal(store: &dyn Store, node: &str) -> Vec<IpAddr> {
    let key = Key::cluster(Kind::Node, node);
    let Ok(Some(record)) = store.get(&key).await else { return Vec::new() };
    let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
    decoded.map(|node| address::internal(&node)).unwrap_or_default()
}

/// For readiness, if they have consequences.
fn publish_doubts(cache: &Cache, observed: &[Observed]) {
    let doubts: Vec<Doubt> = observed.iter().flat_map(|observed| observed.choice.doubts.clone()).collect();
    let mut state = cache.lock();
    if state.doubts != doubts {
        state.doubts = doubts;
        drop(state);
        cache.changed.notify_one();
    }
}

/// Returns how many doubts and refusals there are.
fn log_doubts(agent: &Agent, choice: &Choice) -> usize {
    for doubt in &choice.doubts {
        agent.warn_once(format!("this node's address may be wrong: {doubt}"));
    }
    for refusal in &choice.refused {
        agent.warn_once(format!("refused an address for this node: {refusal}"));
    }
    choice.doubts.len() + choice.refused.len()
}

async fn settle(agent: &Agent, verdict: Verdict, store: &dyn Store) {
    match verdict {
        Verdict::Stay => {}
        Verdict::Wait { other: None, .. } => {
            agent.warn_once("found no address for this node; kept the recorded one".to_owned());
        }
        Verdict::Wait { other, looks_left } => {
            info!(
                ?other,
                observations_left = looks_left,
                "found another address for this node; confirming it"
            );
        }
        Verdict::Move { from, to } => match record(store, &agent.node, to).await {
            Ok(()) => warn!(%to, ?from, "changed this node's address"),
            Err(error) => warn!(%to, %error, "cannot record this node's new address; retrying"),
        },
    }
}

/// A record that changes at the same time is read again at the next observation.
async fn record(store: &dyn Store, node: &str, to: IpNet) -> Result<(), StoreError> {
    let key = Key::cluster(Kind::Node, node);
    let Some(record) = store.get(&key).await? else { return Err(StoreError::NotFound { key }) };
    let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
    let Ok(mut resource) = decoded else { return Ok(()) };
    address::write(&mut resource, to);
    store.update(record.key, resource.encode(), record.revision).await.map(|_| ())
}
