//! Kernel agrees: the two ends of a pod's veth have different MTUs.

use super::settled;
use crate::evidence::kernel::PodView;
use crate::evidence::{Endpoint, same_id};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "mtu-differs",
    severity: Severity::Warning,
    title: "Two ends of a veth with different MTUs",
    explanation: "The pod's end and the node's end of a veth have different MTUs. Packets that fit the one \
                  and not the other are dropped without a word: small requests work, large answers hang.",
    remedy: "recreate the pod, or set both ends to the same MTU",
    needs: &[&[Need::Endpoints, Need::Links, Need::PodViews]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        let views = host.node.pod_views.as_deref().unwrap_or_default();
        if views.is_empty() {
            continue;
        }
        for (endpoint, device) in settled(case, host) {
            let Some(link) = host.link(device) else { continue };
            let interface = endpoint.seen.interface.as_deref().unwrap_or("eth0");
            let view = views.iter().find(|view| is_of(view, &endpoint.seen));
            let Some(inner) = view.and_then(|view| view.kernel.link(interface)) else { continue };
            if let (Some(outer_mtu), Some(inner_mtu)) = (link.seen.mtu, inner.seen.mtu)
                && outer_mtu != inner_mtu
            {
                look.found(
                    Subject::device(host.name(), device),
                    format!(
                        "{device} on {} has MTU {outer_mtu}, and {interface} of endpoint {} has {inner_mtu}",
                        host.name(),
                        endpoint.seen
                    ),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(link.exhibit(format!("{device} has MTU {outer_mtu}")))
                .seen(inner.exhibit(format!("{interface} has MTU {inner_mtu}")));
            }
        }
    }
}

fn is_of(view: &PodView, endpoint: &Endpoint) -> bool {
    match (&view.container_id, &endpoint.container_id) {
        (Some(one), Some(other)) => same_id(one, other),
        _ => match (&view.pod, endpoint.pod_name()) {
            (Some(one), Some(other)) => one.may_be(&other),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_one_end_that_was_changed() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.links.as_mut().unwrap()[0].seen.mtu = Some(9000);
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("device cali"));
    }
}
