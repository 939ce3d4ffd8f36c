//! Kernel agrees: the two ends of a pod's veth have different MTUs.

use plan::{DifferenceKind, USUAL_INTERFACE};

use super::{Fault, faults};
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Two ends of a veth pair have different MTUs",
    explanation: "The pod's end and the node's end of a veth pair have different MTUs. Packets larger than \
                  the smaller MTU are dropped silently: small requests work, large responses hang.",
    remedy: "run plumb repair finding mtu-differs --apply, recreate the pod, or set both ends to the same \
             MTU",
    needs: &[&[Need::Endpoints, Need::Links, Need::PodViews]],
    ..Check::warning(FindingCode::MtuDiffers, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for Fault { host, endpoint, device, difference } in faults(case) {
        let DifferenceKind::Mtu { wanted: inner_mtu, found: outer_mtu } = &difference.kind else { continue };
        let interface = endpoint.seen.interface.as_deref().unwrap_or(USUAL_INTERFACE);
        let summary = format!(
            "{device} on {} has MTU {outer_mtu}, but {interface} of endpoint {} has {inner_mtu}",
            host.name(),
            endpoint.seen
        );
        let finding = look.found(Subject::device(host.name(), device), summary);
        finding.of_sandbox(endpoint.seen.container_id.as_deref());
        let ends = [(host.link(device), outer_mtu), (case.interface_of(host, &endpoint.seen), inner_mtu)];
        for (link, mtu) in ends.into_iter().filter_map(|(link, mtu)| Some((link?, mtu))) {
            finding.seen(link.exhibit(format!("{} has MTU {mtu}", link.seen.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_one_end_that_was_changed() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.links.as_mut().unwrap()[0].seen.mtu = Some(9000);
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("device cali"));
    }
}
