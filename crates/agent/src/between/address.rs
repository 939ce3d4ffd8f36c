//! Chooses this node's address again and again, and asks other nodes whether they answer to it. A card that flaps or is added does not move the node; one that it has lost for
//! several looks in a row does.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use doctor::evidence::node::{AddressChoice, AddressProbe};
use ipnet::IpNet;
use model::{IpVersion, Key, Kind, Resource};
use plan::address::{Choice, Doubt, OtherNode, Patience, Probe, Silences, Steady, Verdict};
use store::{Store, StoreError};
use tracing::{debug, info, warn};

use super::known::Known;
use crate::address::{self, Look, Wishes};
use crate::cni::Services;
use crate::variables;

const START_WAIT: Duration = Duration::from_millis(100);
const PATIENCE: Patience = Patience { looks: 3 };
/// The next look after one in which others did not answer: to be sure, and to know when they do again.
const SOON: Duration = Duration::from_secs(3);
const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// Never ends.
pub(super) async fn keep(services: &Services, known: &Known, store: &Arc<dyn Store>) {
    let wishes = match Wishes::read(&variables::text) {
        Ok(wishes) => wishes,
        Err(error) => {
            warn!("this node's address is not looked after: {error}");
            return std::future::pending().await;
        }
    };
    let agent = services.agent().expect("only the agent has an address to keep");
    let mut steady = VERSIONS.map(|_| Steady::new(None, PATIENCE));
    while !known.lock().is_complete() {
        tokio::time::sleep(START_WAIT).await;
    }
    let internal = recorded_internal(&**store, &agent.node).await;
    let mut silences = VERSIONS.map(|_| Silences::default());
    for turn in 0_usize.. {
        if let Some((looks, now)) = look(&wishes, known, &internal, turn, silences.clone()).await {
            say_silences(&silences, &now);
            silences = now;
            let mut doubts = 0;
            for (looked, steady) in looks.iter().zip(&mut steady) {
                if steady.current() != looked.recorded {
                    // Somebody else has written it, or this is the first look.
                    *steady = Steady::new(looked.recorded, PATIENCE);
                }
                doubts += say(services, &looked.choice);
                settle(services, steady.look(&looked.choice), &**store, &agent.node).await;
            }
            services.metrics().node_address_doubts.store(doubts, Ordering::Relaxed);
            tell_doubts(known, &looks);
            services.health().set_address_choices(looks.iter().filter_map(Looked::told).collect());
        }
        let is_silent = silences.iter().any(Silences::is_any);
        let pause = if is_silent { wishes.poll_every.min(SOON) } else { wishes.poll_every };
        tokio::time::sleep(pause).await;
    }
}

/// Says who has just fallen silent; a verdict takes several looks.
fn say_silences(before: &[Silences], now: &[Silences]) {
    for (before, now) in before.iter().zip(now) {
        for (address, looks) in now.iter().filter(|now| !before.iter().any(|before| before == *now)) {
            let needed = Silences::LOOKS;
            info!("other nodes do not answer to {address}, but to another address: look {looks} of {needed}");
        }
    }
}

/// A look at one IP version.
struct Looked {
    /// What the node's record says.
    recorded: Option<IpNet>,
    /// What would be chosen now.
    choice: Choice,
    probes: Vec<Probe>,
}

impl Looked {
    /// For whoever asks the agent; nothing where there is nothing to tell.
    fn told(&self) -> Option<AddressChoice> {
        let Choice { address, doubts, refused } = &self.choice;
        let probe = |probe: &Probe| AddressProbe {
            from: probe.from,
            asked: probe.asked.iter().copied().collect(),
            answered: probe.answered.iter().copied().collect(),
        };
        let told = AddressChoice {
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
        (told != AddressChoice::default()).then_some(told)
    }
}

/// At what is recorded and at what would be chosen now, of either IP version.
async fn look(
    wishes: &Wishes,
    known: &Known,
    internal: &[IpAddr],
    turn: usize,
    mut silences: [Silences; 2],
) -> Option<([Looked; 2], [Silences; 2])> {
    let (recorded, others) = {
        let state = known.lock();
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
    let (wishes, internal) = (wishes.clone(), internal.to_vec());
    // Asks the kernel, other nodes, and maybe the resolver.
    let work = move || {
        let look = Look::now()?.or_internal(internal);
        let [v4, v6] = recorded;
        let [silent_v4, silent_v6] = &mut silences;
        let of = |version, recorded: Option<IpNet>, silences: &mut Silences| {
            let (choice, probes) =
                wishes.choose_again(version, &look, recorded, others.clone(), turn, silences);
            Looked { recorded, choice, probes }
        };
        let looks = [of(IpVersion::V4, v4, silent_v4), of(IpVersion::V6, v6, silent_v6)];
        Ok::<_, host::HostError>((looks, silences))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(looks)) => Some(looks),
        Ok(Err(error)) => {
            debug!("this node's devices cannot be looked at: {error}");
            None
        }
        Err(_) => None,
    }
}

/// What Kubernetes calls the node's address, if its record says so.
async fn recorded_internal(store: &dyn Store, node: &str) -> Vec<IpAddr> {
    let key = Key::cluster(Kind::Node, node);
    let Ok(Some(record)) = store.get(&key).await else { return Vec::new() };
    let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
    decoded.map(|node| address::internal(&node)).unwrap_or_default()
}

/// For readiness, if they have consequences.
fn tell_doubts(known: &Known, looks: &[Looked]) {
    let doubts: Vec<Doubt> = looks.iter().flat_map(|looked| looked.choice.doubts.clone()).collect();
    let mut state = known.lock();
    if state.doubts != doubts {
        state.doubts = doubts;
        drop(state);
        known.changed.notify_one();
    }
}

/// How much speaks against the choice.
fn say(services: &Services, choice: &Choice) -> i64 {
    for doubt in &choice.doubts {
        services.say_once(format!("this node's address is doubtful: {doubt}"));
    }
    for refusal in &choice.refused {
        services.say_once(format!("an address was not taken: {refusal}"));
    }
    i64::try_from(choice.doubts.len() + choice.refused.len()).unwrap_or(i64::MAX)
}

async fn settle(services: &Services, verdict: Verdict, store: &dyn Store, node: &str) {
    match verdict {
        Verdict::Stay => {}
        Verdict::Wait { other: None, .. } => {
            services.say_once("this node has no address to be known by; the recorded one stays".to_owned());
        }
        Verdict::Wait { other, looks_left } => {
            info!(
                ?other,
                looks_left, "this node's address seems to be another one; waiting whether it stays so"
            );
        }
        Verdict::Move { from, to } => match record(store, node, to).await {
            Ok(()) => warn!("this node's address is {to} from now on; it was {from:?}"),
            Err(error) => warn!("this node's address {to} cannot be recorded: {error}; trying again"),
        },
    }
}

/// A record that changes meanwhile is read again at the next look.
async fn record(store: &dyn Store, node: &str, to: IpNet) -> Result<(), StoreError> {
    let key = Key::cluster(Kind::Node, node);
    let Some(record) = store.get(&key).await? else { return Err(StoreError::NotFound { key }) };
    let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
    let Ok(mut resource) = decoded else { return Ok(()) };
    address::write(&mut resource, to);
    store.update(record.key, resource.encode(), record.revision).await.map(|_| ())
}
