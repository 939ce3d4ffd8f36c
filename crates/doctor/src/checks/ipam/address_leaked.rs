//! No orphans: an address is allocated and nobody uses it.

use ::ipam::check::Problem;
use model::{AffinityOwner, HandleId, Key};

use super::{exhibit, problems};
use crate::{Allocation, Case, Check, FindingCode, Look, Need};
use evidence::{PartialList, same_id};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Allocated address is not in use",
    explanation: "An address is allocated in a block, but no endpoint, pod or tunnel has it. Usually its \
                  sandbox was removed, but the DEL never reached the IPAM records. Such leaks accumulate \
                  until a node has no free address left.",
    remedy: "run plumb repair ipam --apply, which releases the address once two witnesses confirm that its \
             sandbox is gone. Or release it by handle and sequence number: plumb ipam check -o FILE, then \
             plumb ipam release --from-report FILE",
    needs: &[&[Need::Ipam, Need::Endpoints], &[Need::Ipam, Need::Pods]],
    ..Check::warning(FindingCode::AddressLeaked, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.books_view().is_some_and(|view| view.knows_users) {
        look.could_not_run(PartialList::UsersOfAddresses);
        return;
    }
    for problem in problems(case) {
        let Problem::Leaked { address, handle, sequence_number } = problem else { continue };
        let Some(allocation) = case.allocation(*address) else { continue };
        if is_excused(case, &allocation) {
            continue;
        }
        let (block, holder) = (allocation.block.cidr, handle.as_ref().map_or("no handle", HandleId::as_str));
        let words = format!("{address} is allocated to {holder}, sequence number {sequence_number}");
        let finding = look.found(*address, format!("{address} is allocated but not in use"));
        // An address that is given back and given out again is not the same leak.
        finding.known_by(words.clone());
        if let Some(pod) = allocation.attribute.secondary.get(::ipam::POD_ATTRIBUTE) {
            let namespace = allocation.attribute.secondary.get(::ipam::NAMESPACE_ATTRIBUTE);
            let namespace = namespace.map(String::as_str).unwrap_or_default();
            let pod = format!("it was allocated to pod {namespace}/{pod}");
            finding.because(if case.knows_pods() {
                format!("{pod}, which no longer has it")
            } else {
                format!(
                    "{pod}, whose endpoints do not have it; whether the pod runs without an endpoint was \
                         not checked"
                )
            });
        }
        finding.seen(exhibit(case, Key::Block(block), words));
    }
}

/// Load balancers' addresses are services', which nobody listed; what is new may be on its way; a sandbox that runs still has
/// its address, even if its endpoint is gone.
fn is_excused(case: &Case<'_>, allocation: &Allocation<'_>) -> bool {
    let is_virtual = matches!(allocation.block.owner(), Some(AffinityOwner::Virtual(_)));
    is_virtual || case.is_young(allocation.age(case.taken_at)) || is_of_running_sandbox(case, allocation)
}

fn is_of_running_sandbox(case: &Case<'_>, allocation: &Allocation<'_>) -> bool {
    let Some(id) = allocation.attribute.handle().and_then(HandleId::container) else {
        return false;
    };
    let node = allocation.node().and_then(|node| case.node(&node));
    let sandboxes = node.and_then(|node| node.sandboxes.as_deref()).unwrap_or_default();
    sandboxes.iter().any(|sandbox| sandbox.seen.is_ready == Some(true) && same_id(&sandbox.seen.id, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::Sample;

    fn cluster() -> evidence::Evidence {
        Sample { nodes: 2, blocks_per_node: 1, pods_per_node: 2, has_kernels: false }.evidence()
    }

    #[test]
    fn fires_when_nobody_has_it() {
        let mut evidence = cluster();
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap().remove(0);
        silent(&CHECK, &evidence);
        evidence.pods.as_mut().unwrap().remove(0);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "10.0.0.0");
        assert!(finding.cause[0].contains("team-0/web-0"), "{finding:?}");
    }

    #[test]
    fn is_silent_for_the_young_the_running_and_where_users_are_not_known() {
        let mut evidence = evidence::sample::small();
        evidence.endpoints.as_mut().unwrap().remove(0);
        evidence.pods.as_mut().unwrap().remove(0);
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap().remove(0);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "10.0.0.0");
        let mut young = evidence.clone();
        young.taken_at = Some("2026-08-22T05:33:50Z".parse().unwrap());
        silent(&CHECK, &young);
        evidence.partial.endpoints = true;
        evidence.partial.pods = true;
        silent(&CHECK, &evidence);
        assert_eq!(CHECK.alone(&evidence).unseen().len(), 1);
    }
}
