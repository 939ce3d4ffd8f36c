//! DEL loops: a pod was replaced by another of its name, and nothing tells of the old one's DEL.

use std::net::IpAddr;

use crate::timeline::{Episode, Replaced};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod was replaced without a DEL of the old sandbox",
    explanation: "A log shows a pod with one address, and later a pod of the same name with another address, \
                  but no DEL of the first in between. The old address, endpoint and device probably still \
                  exist. A kubelet that is upgraded or restarted may recreate sandboxes without stopping the \
                  old ones.",
    remedy: "check whether the old address is still allocated and its device still exists (plumb ipam check, \
             plumb doctor on the node). Then remove what is left: plumb repair endpoints --apply and plumb \
             repair ipam --apply",
    needs: &[&[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::PodReplacedWithoutDel, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for episode in case.timeline().episodes() {
        if let Episode::Replaced(replaced) = episode
            && !is_free(case, replaced.old_address)
        {
            tell(look, replaced);
        }
    }
}

/// The books, where they are at hand, know better.
fn is_free(case: &Case<'_>, address: IpAddr) -> bool {
    case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.blocks) && case.allocation(address).is_none()
}

fn tell(look: &mut Look<'_>, replaced: Replaced) {
    let uid = |uid: &str| uid.get(..8).unwrap_or(uid).to_owned();
    let Replaced { pod, old_address, new_address, .. } = &replaced;
    let within = replaced.within.map_or_else(String::new, |within| format!(" within {} s", within.as_secs()));
    let summary = format!(
        "pod {pod} (UID {}) with {old_address} was replaced{within} by UID {} with {new_address}, but the \
         log has no DEL of the old one",
        uid(&replaced.old_uid),
        uid(&replaced.new_uid)
    );
    let finding = look.found(Subject::Pod(pod.clone()), summary);
    if replaced.more > 0 {
        finding.because(format!("the log shows this {} more times", replaced.more));
    }
    finding
        .because(format!(
            "{old_address} is probably leaked, with its endpoint and device: nothing in the log releases it"
        ))
        .explains(FindingCode::AddressLeaked, *old_address)
        .explains(FindingCode::PodInterfaceMissing, pod.clone())
        .seen_all(replaced.evidence.clone());
}

#[cfg(test)]
mod tests {
    use super::super::stale_del::tests::{call, log, pod};
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Happening;
    use evidence::log::CniCommand;

    fn has(address: &str, uid: &str) -> Happening {
        Happening::PodAddress {
            pod: pod(),
            pod_uid: Some(uid.to_owned()),
            address: address.parse().unwrap(),
            containers: Vec::new(),
            started_at: None,
        }
    }

    #[test]
    fn fires_unless_a_del_is_seen() {
        silent(&CHECK, &log(vec![has("10.0.0.1", "u1"), has("10.0.0.1", "u1")]));
        let finding = only(&CHECK, &log(vec![has("10.0.0.1", "u1"), has("10.0.0.2", "u2")]));
        assert_eq!(
            finding.summary,
            "pod lijiaob/etcd1-0 (UID u1) with 10.0.0.1 was replaced by UID u2 with 10.0.0.2, but the log \
             has no DEL of the old one"
        );
        silent(
            &CHECK,
            &log(vec![has("10.0.0.1", "u1"), call(CniCommand::Del, "old1"), has("10.0.0.2", "u2")]),
        );
    }
}
