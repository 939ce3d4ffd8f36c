//! In the pod: it does not have the address that its endpoint says.

use plan::DifferenceKind;

use super::{ends, origin};
use crate::case::PodEnd;
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod does not have its address",
    explanation: "Inside a pod, the interface lacks the address in the pod's endpoint record. The node \
                  routes that address to the pod, but the pod accepts none of the traffic sent to it.",
    remedy: "run plumb repair finding pod-address-missing --apply, or recreate the pod",
    needs: &[&[Need::PodViews, Need::Endpoints]],
    ..Check::error(FindingCode::PodAddressMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for PodEnd { node, view, differences } in ends(case) {
        let Some(pod) = &view.pod else { continue };
        for difference in differences {
            let DifferenceKind::AddressMissing { address } = &difference.kind else { continue };
            let address = address.addr();
            let mut recorded = case.endpoints_of(pod);
            let Some(endpoint) = recorded.find(|endpoint| endpoint.seen.addresses.contains(&address)) else {
                continue;
            };
            let origin = origin(view.kernel.addresses.as_ref(), node, "addresses of the pod");
            let summary = format!("pod {pod} does not have {address}, which is in its endpoint record");
            look.found(pod.clone(), summary)
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(origin.exhibit(format!("no {address}")))
                .seen(endpoint_exhibit(endpoint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_another_address_inside() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.addresses.as_mut().unwrap()[0].seen.net = "10.0.0.50/32".parse().unwrap();
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "pod team-0/web-0 does not have 10.0.0.0, which is in its endpoint record"
        );
    }
}
