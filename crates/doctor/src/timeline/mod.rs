//! What logs tell about sandboxes, put together: who was added and deleted when, what each call did to the records, and what went
//! wrong because of it.
//!
//! [`Timeline::of`] attributes events to calls: a line of the plugin names a pod, a handle, or nothing, and belongs to the call
//! that was last made for it on that node. [`Timeline::episodes`] names what operators search for by hand: stale DELs, retry loops,
//! pods that were replaced without a DEL.
//!
//! Logs are cut, rotated and filtered on their way, so silence proves nothing: an episode only says what its lines say.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod build;
mod episode;
mod sandboxes;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::civil::DateTime;
use model::{Cidr, HandleId, NodeName};

use evidence::log::{CniCommand, LogEvent, WrittenEndpoint};
use evidence::{Origin, PodName, Sighted};

use sandboxes::Sandboxes;

pub use episode::{Episode, Fate, Replaced, RetryLoop, StaleDel};

/// The history of every pod in the logs, by node.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub pods: Vec<PodHistory>,
}

/// One pod name on one node. A name outlives its pods: that is how things go wrong.
#[derive(Clone, Debug)]
pub struct PodHistory {
    /// `None`: no line says where.
    pub node: Option<NodeName>,
    pub pod: PodName,
    /// In the order of time.
    pub calls: Vec<Call>,
    pub sightings: Vec<Sighted<Sighting>>,
}

/// One call of the plugin, as far as it left lines.
#[derive(Clone, Debug)]
pub struct Call {
    pub command: CniCommand,
    /// `None`: its lines do not say.
    pub container_id: Option<String>,
    pub at: Option<DateTime>,
    /// The runtime had no namespace to give.
    pub is_without_netns: bool,
    pub effects: Vec<Sighted<Effect>>,
    /// `None`: nothing says that it failed.
    pub failure: Option<Sighted<String>>,
    /// The line that tells of the call, else of the first thing it did.
    pub origin: Origin,
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    AddressesAssigned(Vec<IpAddr>),
    /// By handle; what it freed is not said.
    ReleasedByHandle(HandleId),
    AddressReleased(IpAddr),
    HandleDecremented(HandleId),
    HandleDeleted(HandleId),
    BlockRead(Cidr),
    EndpointWritten(WrittenEndpoint),
    EndpointDeleted,
    /// There was none to delete.
    EndpointAbsent,
    /// It was another sandbox's and was left alone.
    EndpointSpared,
}

/// What kubelet or runtime said about the pod itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub at: Option<DateTime>,
    pub what: Seen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The kubelet was told of the pod.
    Added { uid: Option<String> },
    /// The kubelet was told that the pod is gone.
    Removed { uid: Option<String> },
    /// The pod's address, as the kubelet takes it.
    Address { uid: Option<String>, address: IpAddr, started_at: Option<DateTime> },
    /// The kubelet misses this interface inside.
    InterfaceMissing { interface: String },
    /// The runtime started a sandbox.
    SandboxStarted { container_id: String, uid: Option<String> },
    /// The runtime stopped a sandbox.
    SandboxStopped { container_id: String },
    /// The kubelet makes a new sandbox for a pod that had one.
    SandboxChanged { uid: Option<String> },
    /// The controllers took the address back as leaked.
    AddressCollected { address: IpAddr },
}

impl Timeline {
    pub fn of(log: &[Sighted<LogEvent>]) -> Timeline {
        build::build(log)
    }

    /// Everything that went wrong, in the order of time.
    pub fn episodes(&self) -> Vec<Episode> {
        let mut episodes: Vec<Episode> = self.pods.iter().flat_map(episode::of_pod).collect();
        episodes.sort_by_key(Episode::at);
        episodes
    }
}

impl PodHistory {
    /// The sandboxes that its calls name, in the order in which they appear.
    pub fn sandboxes(&self) -> Vec<&str> {
        let mut sandboxes = Sandboxes::default();
        self.calls.iter().filter_map(|call| call.container_id.as_deref()).for_each(|id| {
            sandboxes.number(id);
        });
        sandboxes.ids
    }
}

impl Call {
    pub fn is_of(&self, container_id: &str) -> bool {
        self.container_id.as_deref().is_some_and(|id| evidence::same_id(id, container_id))
    }

    pub fn has(&self, effect: &Effect) -> bool {
        self.effects.iter().any(|found| found.seen == *effect)
    }

    /// The addresses an ADD gave.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let (mut addresses, mut known) = (Vec::new(), BTreeSet::new());
        for effect in &self.effects {
            let told = match &effect.seen {
                Effect::AddressesAssigned(addresses) => addresses,
                Effect::EndpointWritten(endpoint) => &endpoint.addresses,
                _ => continue,
            };
            for address in told {
                if known.insert(*address) {
                    addresses.push(*address);
                }
            }
        }
        addresses
    }

    /// The device an ADD made.
    pub fn device(&self) -> Option<&str> {
        self.effects.iter().find_map(|effect| match &effect.seen {
            Effect::EndpointWritten(endpoint) => endpoint.device.as_deref(),
            _ => None,
        })
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list =
            |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Effect::AddressesAssigned(addresses) => write!(f, "assigned {}", list(addresses)),
            Effect::ReleasedByHandle(handle) => write!(f, "released all addresses of handle {handle}"),
            Effect::AddressReleased(address) => write!(f, "released {address}"),
            Effect::HandleDecremented(handle) => write!(f, "reduced the count of handle {handle}"),
            Effect::HandleDeleted(handle) => write!(f, "deleted handle {handle}"),
            Effect::BlockRead(block) => write!(f, "read block {block}"),
            Effect::EndpointWritten(endpoint) => {
                f.write_str("wrote the endpoint")?;
                match &endpoint.device {
                    Some(device) => write!(f, " with device {device}"),
                    None => Ok(()),
                }
            }
            Effect::EndpointDeleted => f.write_str("deleted the endpoint"),
            Effect::EndpointAbsent => f.write_str("found no endpoint to delete"),
            Effect::EndpointSpared => f.write_str(
                "left the endpoint alone, because it belongs to another \
                                                   sandbox",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence::Origin;
    use evidence::log::Happening;
    use evidence::node::COMPARED;

    fn event(second: i32, what: Happening) -> Sighted<LogEvent> {
        let at =
            jiff::civil::date(2024, 1, 1).at(0, 0, 0, 0) + jiff::SignedDuration::from_secs(i64::from(second));
        let event = LogEvent { at: Some(at), node: None, what, count: 1, last_at: None };
        Sighted::new(event, Origin::file("log"))
    }

    fn call(command: CniCommand, number: i32) -> Happening {
        let pod = Some(PodName::new("shop", "web-0"));
        let container_id = format!("{number:064x}");
        Happening::CniCall { command, container_id, pod, interface: None, netns: None }
    }

    /// One ADD, and then DELs of other sandboxes, each of which releases by the pod's handle, fails, and is tried again.
    fn dels(count: i32) -> Vec<Sighted<LogEvent>> {
        let mut log = vec![event(0, call(CniCommand::Add, 0))];
        for number in 1..=count {
            let at = number * 100;
            let container_id = format!("{:064x}", number / 2 + 1);
            log.push(event(at, call(CniCommand::Del, number / 2 + 1)));
            log.push(event(at, Happening::HandleReleasing { handle: "shop.web-0".into() }));
            let error = "no".to_owned();
            log.push(event(at, Happening::SandboxStopFailed { container_id, pod: None, error }));
        }
        log
    }

    fn comparisons(count: i32) -> u64 {
        let before = COMPARED.get();
        let timeline = Timeline::of(&dels(count));
        assert!(!timeline.episodes().is_empty());
        COMPARED.get() - before
    }

    /// Counts what is done, and takes no time: twice the log is twice the work.
    #[test]
    fn many_dels_of_one_pod_take_work_that_grows_with_their_number() {
        let (few, many) = (comparisons(1_000), comparisons(2_000));
        assert!(many <= few * 5 / 2, "{few} comparisons for 1000 DELs and {many} for 2000");
    }

    #[test]
    fn what_happens_again_and_again_is_counted() {
        let episodes = Timeline::of(&dels(1_000)).episodes();
        let stale: Vec<&StaleDel> = episodes
            .iter()
            .filter_map(|episode| match episode {
                Episode::StaleDel(stale) => Some(stale),
                _ => None,
            })
            .collect();
        assert_eq!((stale.len(), stale.iter().map(|stale| 1 + stale.more).sum::<usize>()), (100, 1_000));
        let retried = episodes.iter().filter(|episode| matches!(episode, Episode::RetryLoop(_))).count();
        assert_eq!(retried, 499, "the first and the last are tried once");
    }
}
