//! What logs of kubelet and plugin tell of sandboxes, one after the other.

pub(super) mod add_failing;
pub(super) mod del_retried;
pub(super) mod pod_replaced_without_del;
pub(super) mod stale_del;

use std::collections::BTreeMap;

use crate::evidence::log::CniCommand;
use crate::evidence::{Happening, LogEvent, PodName, same_id};
use crate::{Case, Sighted};

/// One call of the plugin, and everything that the log tells until the next.
pub(super) struct Call<'e> {
    pub command: CniCommand,
    pub container_id: &'e str,
    pub pod: Option<&'e PodName>,
    pub start: &'e Sighted<LogEvent>,
    pub events: Vec<&'e Sighted<LogEvent>>,
}

impl Call<'_> {
    fn is_of(&self, pod: &PodName) -> bool {
        self.pod.is_some_and(|own| own.may_be(pod))
    }

    fn happened(&self, what: impl Fn(&Happening) -> bool) -> bool {
        self.events.iter().any(|event| what(&event.seen.what))
    }
}

/// Calls in the order of the logs, per node. A network plugin calls its IPAM plugin: both are one call.
pub(super) fn calls<'e>(case: &Case<'e>) -> BTreeMap<&'e str, Vec<Call<'e>>> {
    let mut by_node: BTreeMap<&str, Vec<Call<'_>>> = BTreeMap::new();
    for event in case.evidence.log.iter().flatten() {
        let calls = by_node.entry(event.seen.node.as_deref().unwrap_or_default()).or_default();
        if let Happening::CniCall { command, container_id, pod, .. } = &event.seen.what {
            let is_same = |last: &Call<'_>| {
                last.command == *command
                    && same_id(last.container_id, container_id)
                    && last.start.seen.at == event.seen.at
            };
            match calls.last_mut().filter(|last| is_same(last)) {
                Some(last) => last.events.push(event),
                None => calls.push(Call {
                    command: *command,
                    container_id,
                    pod: pod.as_ref(),
                    start: event,
                    events: Vec::new(),
                }),
            }
        } else if let Some(last) = calls.last_mut()
            && concerns(&event.seen.what, last)
        {
            last.events.push(event);
        }
    }
    by_node
}

/// Lines of other pods come in between.
fn concerns(what: &Happening, call: &Call<'_>) -> bool {
    let pod = match what {
        Happening::EndpointDeleted { pod, .. }
        | Happening::EndpointAbsent { pod, .. }
        | Happening::EndpointOfAnother { pod, .. }
        | Happening::AddressReleased { pod, .. }
        | Happening::AddressesAssigned { pod, .. }
        | Happening::CniFailed { pod, .. } => pod.as_ref(),
        Happening::EndpointWritten { endpoint } => endpoint.pod.as_ref(),
        Happening::SandboxStopFailed { container_id, .. } => return same_id(container_id, call.container_id),
        Happening::HandleReleasing { .. }
        | Happening::HandleDecremented { .. }
        | Happening::HandleDeleted { .. }
        | Happening::BlockRead { .. }
        | Happening::KeyNotFound => None,
        _ => return false,
    };
    match (pod, call.pod) {
        (Some(one), Some(other)) => one.may_be(other),
        _ => true,
    }
}

/// The time of day, as operators compare it.
pub(super) fn clock(event: &LogEvent) -> String {
    event.at.map_or_else(|| "at an unknown time".to_owned(), |at| at.time().strftime("%H:%M:%S").to_string())
}

pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
