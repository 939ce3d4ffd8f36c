//! Events to calls: which call a line belongs to.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use jiff::{SignedDuration, Unit};
use model::NodeName;

use evidence::log::{CniCommand, Happening, LogEvent};
use evidence::{Origin, PodName, Sighted, same_id};

use super::{Call, Effect, PodHistory, Seen, Sighting, Timeline};

/// The network plugin and the IPAM plugin it calls both tell of the call; it takes no longer than this between them.
const ONE_CALL: SignedDuration = SignedDuration::from_secs(30);
/// As much is kept of what one call did.
const EFFECTS_MAX: usize = 200;

pub(super) fn build(log: &[Sighted<LogEvent>]) -> Timeline {
    let mut by_node: BTreeMap<Option<&NodeName>, Vec<&Sighted<LogEvent>>> = BTreeMap::new();
    for event in log {
        by_node.entry(event.seen.node.as_ref()).or_default().push(event);
    }
    let mut pods = Vec::new();
    for (node, mut events) in by_node {
        // Several programs write into one log, some with fractions of seconds and some without: only whole seconds tell an order
        // that the log does not have already.
        events.sort_by_key(|event| event.seen.at.and_then(|at| at.round(rounding()).ok()));
        let mut builder = Builder { node: node.cloned(), ..Builder::default() };
        // Whose a container is may be told only after it is spoken of, and it is never another's.
        for event in &events {
            if let Some((container_id, pod)) = owned(&event.seen.what) {
                builder.own(&container_id, &pod);
            }
        }
        for event in events {
            builder.event(event);
        }
        pods.extend(builder.pods.into_values());
    }
    Timeline { pods }
}

fn rounding() -> jiff::civil::DateTimeRound {
    jiff::civil::DateTimeRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor)
}

/// What is known of one node so far.
#[derive(Default)]
struct Builder {
    node: Option<NodeName>,
    pods: BTreeMap<PodName, PodHistory>,
    /// Whose pod a container is.
    owners: BTreeMap<String, PodName>,
    /// The pod that was last called for.
    last: Option<PodName>,
}

impl Builder {
    fn event(&mut self, event: &Sighted<LogEvent>) {
        let at = event.seen.at;
        match &event.seen.what {
            Happening::CniCall { command, container_id, pod, netns, .. } => {
                let Some(pod) = pod.clone().or_else(|| self.owner(container_id)) else { return };
                self.call(&pod, *command, container_id, netns.as_deref() == Some(""), event);
            }
            Happening::CniFailed { command, container_id, pod, error } => {
                self.failed(pod.as_ref(), *command, container_id.as_deref(), error, event);
            }
            Happening::SandboxStopFailed { container_id, pod, error } => {
                self.failed(pod.as_ref(), CniCommand::Del, Some(container_id), error, event);
            }
            Happening::KeyNotFound => self.key_not_found(at),
            other => match (effect(other), seen(other)) {
                (Some((pod, command, effect)), _) => {
                    let id = container(other);
                    let pod = pod.or_else(|| id.and_then(|id| self.owner(id)));
                    let pod = pod.or_else(|| self.pod_of_handle(other));
                    // A line that names a sandbox is about that, and nobody else's.
                    let last = || self.last.clone().filter(|_| id.is_none());
                    self.effect(pod.or_else(last), command, id, effect, event);
                }
                (None, Some((pod, what))) => {
                    let pod = pod.or_else(|| self.pod_of_container(&what));
                    if let Some(pod) = pod {
                        let sighting = Sighted::new(Sighting { at, what }, event.origin.clone());
                        self.history(&pod).sightings.push(sighting);
                    }
                }
                (None, None) => {}
            },
        }
    }

    fn history(&mut self, pod: &PodName) -> &mut PodHistory {
        let node = self.node.clone();
        let new = || PodHistory { node, pod: pod.clone(), calls: Vec::new(), sightings: Vec::new() };
        self.pods.entry(pod.clone()).or_insert_with(new)
    }

    fn own(&mut self, container_id: &str, pod: &PodName) {
        self.owners.insert(container_id.to_owned(), pod.clone());
    }

    fn owner(&self, container_id: &str) -> Option<PodName> {
        let after = self.owners.range(container_id.to_owned()..).next();
        after.filter(|(id, _)| same_id(id, container_id)).map(|(_, pod)| pod.clone())
    }

    fn pod_of_container(&self, what: &Seen) -> Option<PodName> {
        match what {
            Seen::SandboxStopped { container_id } | Seen::SandboxStarted { container_id, .. } => {
                self.owner(container_id)
            }
            _ => None,
        }
    }

    /// Handles are `namespace.pod` (2017) or `network.container` (since).
    fn pod_of_handle(&self, what: &Happening) -> Option<PodName> {
        let handle = match what {
            Happening::HandleReleasing { handle }
            | Happening::HandleDecremented { handle, .. }
            | Happening::HandleDeleted { handle } => handle,
            _ => return None,
        };
        let by_name = handle.pod().map(|(namespace, name)| PodName::new(namespace, name));
        by_name.filter(|pod| self.pods.contains_key(pod)).or_else(|| self.owner(handle.container()?))
    }

    fn call(
        &mut self,
        pod: &PodName,
        command: CniCommand,
        id: &str,
        is_without_netns: bool,
        event: &Sighted<LogEvent>,
    ) {
        self.last = Some(pod.clone());
        let at = event.seen.at;
        let calls = &mut self.history(pod).calls;
        if let Some(last) = calls.last_mut()
            && last.command == command
            && last.failure.is_none()
            && last.container_id.as_deref().is_none_or(|known| same_id(known, id))
            && is_near(last.at, at)
        {
            last.container_id.get_or_insert_with(|| id.to_owned());
            last.is_without_netns |= is_without_netns;
            return;
        }
        calls.push(Call {
            container_id: Some(id.to_owned()),
            is_without_netns,
            ..new_call(command, at, &event.origin)
        });
    }

    /// The last call for a pod, if a line can be about it; else a call that the log does not show, if it is known which.
    fn call_of(
        &mut self,
        pod: &PodName,
        command: Option<CniCommand>,
        id: Option<&str>,
        event: &Sighted<LogEvent>,
    ) -> Option<&mut Call> {
        let at = event.seen.at;
        let calls = &mut self.history(pod).calls;
        let fits = |call: &Call| {
            command.is_none_or(|command| command == call.command)
                && call.may_be_of(id)
                && is_near(call.at, at)
        };
        if !calls.last().is_some_and(fits) {
            calls.push(new_call(command?, at, &event.origin));
        }
        let call = calls.last_mut()?;
        call.container_id = call.container_id.take().or_else(|| id.map(str::to_owned));
        Some(call)
    }

    fn effect(
        &mut self,
        pod: Option<PodName>,
        command: Option<CniCommand>,
        id: Option<&str>,
        effect: Effect,
        event: &Sighted<LogEvent>,
    ) {
        let Some(pod) = pod else { return };
        let Some(call) = self.call_of(&pod, command, id, event) else { return };
        // No call leaves as many lines. What goes through all of them may do so for every line.
        if call.effects.len() < EFFECTS_MAX {
            call.effects.push(Sighted::new(effect, event.origin.clone()));
        }
        self.last = Some(pod);
    }

    fn failed(
        &mut self,
        pod: Option<&PodName>,
        command: CniCommand,
        id: Option<&str>,
        error: &str,
        event: &Sighted<LogEvent>,
    ) {
        let pod = pod.cloned().or_else(|| id.and_then(|id| self.owner(id)));
        let Some(pod) = pod.or_else(|| self.last.clone().filter(|_| id.is_none())) else { return };
        let Some(call) = self.call_of(&pod, Some(command), id, event) else { return };
        if error.contains("resource does not exist") {
            take_back_deletion(call);
        }
        call.failure.get_or_insert_with(|| Sighted::new(error.to_owned(), event.origin.clone()));
    }

    /// What was asked for last was not there: if that was a deletion, nothing was deleted.
    fn key_not_found(&mut self, at: Option<DateTime>) {
        let last = self
            .last
            .clone()
            .and_then(|pod| self.pods.get_mut(&pod))
            .and_then(|history| history.calls.last_mut());
        if let Some(call) = last
            && is_near(call.at, at)
            && matches!(call.effects.last().map(|effect| &effect.seen), Some(Effect::EndpointDeleted))
        {
            take_back_deletion(call);
        }
    }
}

impl Call {
    /// Both may be one call, as far as sandboxes are named.
    fn may_be_of(&self, id: Option<&str>) -> bool {
        self.container_id.as_deref().zip(id).is_none_or(|(known, id)| same_id(known, id))
    }
}

/// The sandbox that a line names beside what was done.
fn container(what: &Happening) -> Option<&str> {
    match what {
        Happening::AddressesAssigned { container_id, .. }
        | Happening::EndpointOfAnother { container_id, .. } => container_id.as_deref(),
        Happening::EndpointWritten { endpoint } => endpoint.container_id.as_deref(),
        _ => None,
    }
}

/// A container and whose it is, if a line tells both.
fn owned(what: &Happening) -> Option<(String, PodName)> {
    let (id, pod) = match what {
        Happening::CniCall { container_id, pod, .. }
        | Happening::SandboxStarted { container_id, pod, .. }
        | Happening::SandboxStopFailed { container_id, pod, .. } => (Some(container_id.as_str()), pod),
        Happening::CniFailed { container_id, pod, .. }
        | Happening::EndpointOfAnother { container_id, pod } => (container_id.as_deref(), pod),
        Happening::EndpointWritten { endpoint } => (endpoint.container_id.as_deref(), &endpoint.pod),
        Happening::PodKillFailed { pod, error, .. } => (sandbox_in(error), pod),
        _ => return None,
    };
    Some((id?.to_owned(), pod.clone()?))
}

/// `… failed to destroy network for sandbox \"ID\": …`, however often it was quoted.
fn sandbox_in(error: &str) -> Option<&str> {
    let rest = error.split_once("for sandbox ")?.1.trim_start_matches(['\\', '"']);
    let end = rest.find(|character: char| !character.is_ascii_hexdigit())?;
    rest.get(..end).filter(|id| id.len() >= 12)
}

fn take_back_deletion(call: &mut Call) {
    for effect in &mut call.effects {
        if effect.seen == Effect::EndpointDeleted {
            effect.seen = Effect::EndpointAbsent;
        }
    }
}

fn new_call(command: CniCommand, at: Option<DateTime>, origin: &Origin) -> Call {
    Call {
        command,
        container_id: None,
        at,
        is_without_netns: false,
        effects: Vec::new(),
        failure: None,
        origin: origin.clone(),
    }
}

/// Times that are not known are no reason against it.
fn is_near(a: Option<DateTime>, b: Option<DateTime>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a.duration_until(b).abs() <= ONE_CALL)
}

/// What a line says that a call did, for whom, and in which call that can be.
fn effect(what: &Happening) -> Option<(Option<PodName>, Option<CniCommand>, Effect)> {
    use CniCommand::{Add, Del};
    Some(match what {
        Happening::AddressesAssigned { addresses, pod, .. } => {
            (pod.clone(), Some(Add), Effect::AddressesAssigned(addresses.clone()))
        }
        Happening::HandleReleasing { handle } => (None, Some(Del), Effect::ReleasedByHandle(handle.clone())),
        Happening::AddressReleased { address: Some(address), pod } => {
            (pod.clone(), None, Effect::AddressReleased(*address))
        }
        Happening::HandleDecremented { handle, .. } => {
            (None, None, Effect::HandleDecremented(handle.clone()))
        }
        Happening::HandleDeleted { handle } => (None, None, Effect::HandleDeleted(handle.clone())),
        Happening::BlockRead { block } => (None, None, Effect::BlockRead(*block)),
        Happening::EndpointWritten { endpoint } => {
            (endpoint.pod.clone(), Some(Add), Effect::EndpointWritten(endpoint.clone()))
        }
        Happening::EndpointDeleted { pod, .. } => (pod.clone(), Some(Del), Effect::EndpointDeleted),
        Happening::EndpointAbsent { pod, .. } => (pod.clone(), Some(Del), Effect::EndpointAbsent),
        Happening::EndpointOfAnother { pod, .. } => (pod.clone(), Some(Del), Effect::EndpointSpared),
        _ => return None,
    })
}

/// What a line says about a pod itself.
fn seen(what: &Happening) -> Option<(Option<PodName>, Seen)> {
    Some(match what {
        Happening::PodAdded { pod, pod_uid } => (Some(pod.clone()), Seen::Added { uid: pod_uid.clone() }),
        Happening::PodRemoved { pod, pod_uid } => (Some(pod.clone()), Seen::Removed { uid: pod_uid.clone() }),
        Happening::PodAddress { pod, pod_uid, address, started_at, .. } => (
            Some(pod.clone()),
            Seen::Address { uid: pod_uid.clone(), address: *address, started_at: *started_at },
        ),
        Happening::InterfaceMissing { pod, interface } => {
            (Some(pod.clone()), Seen::InterfaceMissing { interface: interface.clone() })
        }
        Happening::SandboxStarted { container_id, pod, pod_uid } => {
            (pod.clone(), Seen::SandboxStarted { container_id: container_id.clone(), uid: pod_uid.clone() })
        }
        Happening::SandboxStopped { container_id, pod } => {
            (pod.clone(), Seen::SandboxStopped { container_id: container_id.clone() })
        }
        Happening::AddressCollected { address, pod } => {
            (pod.clone(), Seen::AddressCollected { address: *address })
        }
        Happening::SandboxChanged { pod, pod_uid } => {
            (Some(pod.clone()), Seen::SandboxChanged { uid: pod_uid.clone() })
        }
        _ => return None,
    })
}
