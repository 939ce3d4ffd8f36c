//! Network policy in force on this node.
//!
//! ```text
//!   store, Kubernetes ──▶ records ──▶ engine: calculation, ruleset wanted ──▶ keep ──▶ kernel
//!   ADD ──▶ its endpoint ────────────▲                                         │  ◀── changes by others
//!    ▲                                                                         │
//!    └───────────────── answered once the endpoint's rules are in the kernel ◀─┘
//! ```
//!
//! Until every kind of record is cached, the kernel keeps what an earlier agent left there: nothing is opened by a restart, and nothing is
//! shut. A pod that is added meanwhile waits.

mod counts;
mod engine;
mod keep;
mod kubernetes;
mod records;
mod settings;
mod stand_in;
mod superseded;
mod wait;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use store::Store;
use tokio::sync::{Notify, watch};

use crate::journal::Entry;
use crate::services::Agent;
use crate::verbs::is_never_recorded;
use engine::Engine;
pub(crate) use wait::{TIMEOUT, Waiting};

/// The endpoints of this node whose rules are in the kernel: the addresses by the device.
pub(crate) type InForce = Arc<BTreeMap<Arc<str>, Enforced>>;

/// What the rules of a device are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Enforced {
    pub(super) nets: Vec<IpNet>,
    /// Profiles that the endpoint names and no record has.
    pub(super) missing_profiles: Vec<Arc<str>>,
}

/// What the parts of the agent know of policy.
#[derive(Debug)]
pub(crate) struct Enforcement {
    engine: Mutex<Engine>,
    /// Something in the engine has changed.
    changed: Notify,
    /// How often the engine started over.
    rounds: watch::Sender<u64>,
    /// `None` until rules were loaded for the first time.
    in_force: watch::Sender<Option<InForce>>,
}

impl Enforcement {
    pub(crate) fn new(node: &str) -> Enforcement {
        Enforcement {
            engine: Mutex::new(Engine::new(node)),
            changed: Notify::new(),
            rounds: watch::Sender::new(0),
            in_force: watch::Sender::new(None),
        }
    }

    /// Whether the rules of all policies that are cached are in the kernel. Waits for an agent that has just started.
    pub(crate) async fn settled(&self, patience: Duration) -> bool {
        let mut in_force = self.in_force.subscribe();
        let waited = tokio::time::timeout(patience, in_force.wait_for(Option::is_some)).await;
        matches!(waited, Ok(Ok(_)))
    }

    /// Records that cannot be read, and kinds that cannot be listed: what they ask for is not enforced.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        self.engine().unreadable()
    }

    /// After a change of the engine.
    fn tell(&self, engine: MutexGuard<'_, Engine>) {
        let round = engine.round();
        drop(engine);
        self.rounds.send_if_modified(|known| std::mem::replace(known, round) != round);
        self.changed.notify_one();
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Never ends.
pub(crate) async fn run(agent: &Arc<Agent>, store: &Arc<dyn Store>) {
    let are_records = store.capabilities().endpoints_are_records;
    {
        let mut engine = agent.enforcement.engine();
        for entry in agent.journal.all() {
            engine.attach(&entry);
            let Entry { attachment, pod, .. } = &entry;
            if !are_records && is_never_recorded(&agent.node, pod.as_ref(), &attachment.sandbox) {
                engine.put_bare(attachment.device.as_str(), &attachment.addresses);
            }
        }
    }
    tokio::join!(records::follow_all(agent, store), keep::run(agent));
}
