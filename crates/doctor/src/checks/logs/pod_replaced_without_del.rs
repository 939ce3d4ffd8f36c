//! DEL loops: a pod was replaced by another of its name, and nothing tells of the old one's DEL.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::clock;
use crate::evidence::log::CniCommand;
use crate::evidence::{Happening, LogEvent, PodName};
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-replaced-without-del",
    severity: Severity::Warning,
    title: "A pod was replaced, and the old one was never deleted",
    explanation: "A log shows a pod of the same name with one address, and later with another, and no DEL of the first in between. Its address, \
                  endpoint and device are probably still there. A kubelet that is upgraded or restarted may make sandboxes anew \
                  without ending the old ones.",
    remedy: "look whether the old address is still allocated and its device still there (plumb ipam check, plumb doctor on the node), and release what is left",
    needs: &[&[Need::Log]],
    settles: Settles::AtOnce,
    look,
};

struct Seen<'e> {
    address: IpAddr,
    uid: Option<&'e str>,
    event: &'e Sighted<LogEvent>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut pods: BTreeMap<(&str, &PodName), Vec<Seen<'_>>> = BTreeMap::new();
    for event in case.evidence.log.iter().flatten() {
        if let Happening::PodAddress { pod, pod_uid, address, .. } = &event.seen.what {
            let node = event.seen.node.as_deref().unwrap_or_default();
            pods.entry((node, pod)).or_default().push(Seen {
                address: *address,
                uid: pod_uid.as_deref(),
                event,
            });
        }
    }
    for ((node, pod), mut seen) in pods {
        seen.sort_by_key(|seen| seen.event.seen.at);
        for pair in seen.windows(2).filter(|pair| pair[0].address != pair[1].address) {
            if !was_deleted(case, node, pod, &pair[0]) && !is_free(case, pair[0].address) {
                tell(look, pod, &pair[0], &pair[1]);
            }
        }
    }
}

fn was_deleted(case: &Case<'_>, node: &str, pod: &PodName, old: &Seen<'_>) -> bool {
    let here = case
        .evidence
        .log
        .iter()
        .flatten()
        .filter(|event| event.seen.node.as_deref().unwrap_or_default() == node);
    let mut later = here.filter(|event| event.seen.at >= old.event.seen.at);
    later.any(|event| match &event.seen.what {
        Happening::CniCall { command: CniCommand::Del, pod: Some(own), .. } => own.may_be(pod),
        Happening::EndpointDeleted { pod: Some(own), .. }
        | Happening::SandboxStopped { pod: Some(own), .. } => own.may_be(pod),
        Happening::AddressReleased { address, pod: own } => {
            *address == Some(old.address) || own.as_ref().is_some_and(|own| own.may_be(pod))
        }
        _ => false,
    })
}

/// The books, where they are at hand, know better.
fn is_free(case: &Case<'_>, address: IpAddr) -> bool {
    case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.blocks) && case.allocation(address).is_none()
}

fn tell(look: &mut Look<'_>, pod: &PodName, old: &Seen<'_>, new: &Seen<'_>) {
    let uid = |seen: &Seen<'_>| {
        seen.uid.map_or_else(String::new, |uid| format!(" (UID {})", uid.get(..8).unwrap_or(uid)))
    };
    let summary = format!(
        "pod {pod} with {}{} was replaced by one with {}{}, and no DEL of the old one is in the log",
        old.address,
        uid(old),
        new.address,
        uid(new)
    );
    look.found(Subject::Pod(pod.clone()), summary)
        .because(format!("{} it had {}, {} it has {}", clock(&old.event.seen), old.address, clock(&new.event.seen), new.address))
        .because(format!("{} is suspected to be leaked, with its endpoint and device; the evidence does not show the books", old.address))
        .seen(old.event.exhibit(format!("{pod} has {}", old.address)))
        .seen(new.event.exhibit(format!("{pod} has {}", new.address)))
        .explains("address-leaked", old.address)
        .explains("pod-interface-missing", pod.clone());
}

#[cfg(test)]
mod tests {
    use super::super::stale_del::tests::{call, log, pod};
    use super::*;
    use crate::checks::testing::{only, silent};

    fn has(address: &str, uid: &str) -> Happening {
        Happening::PodAddress {
            pod: pod(),
            pod_uid: Some(uid.to_owned()),
            address: address.parse().unwrap(),
            containers: Vec::new(),
        }
    }

    #[test]
    fn fires_unless_a_del_is_seen() {
        silent(&CHECK, &log(vec![has("10.0.0.1", "u1"), has("10.0.0.1", "u1")]));
        let finding = only(&CHECK, &log(vec![has("10.0.0.1", "u1"), has("10.0.0.2", "u2")]));
        assert_eq!(
            finding.summary,
            "pod lijiaob/etcd1-0 with 10.0.0.1 (UID u1) was replaced by one with 10.0.0.2 (UID u2), and no DEL of the old one is in the log"
        );
        silent(
            &CHECK,
            &log(vec![has("10.0.0.1", "u1"), call(CniCommand::Del, "old1"), has("10.0.0.2", "u2")]),
        );
    }
}
