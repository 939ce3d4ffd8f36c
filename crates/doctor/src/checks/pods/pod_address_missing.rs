//! In the pod: it does not have the address that its endpoint says.

use super::views;
use crate::checks::words::endpoint_exhibit;
use crate::evidence::same_id;
use crate::{Case, Check, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-address-missing",
    severity: Severity::Error,
    title: "A pod does not have its address",
    explanation: "Inside a pod its interface does not have the address that the pod's endpoint record says. \
                  The node routes one address, the pod has another: nothing that is sent to it is taken.",
    remedy: "recreate the pod",
    needs: &[&[Need::PodViews, Need::Endpoints]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, view) in views(case) {
        let (Some(pod), Some(addresses)) = (&view.pod, view.kernel.addresses.as_ref()) else { continue };
        if view.kernel.partial.addresses {
            continue;
        }
        let is_of_view = |id: Option<&str>| match (id, view.container_id.as_deref()) {
            (Some(one), Some(other)) => same_id(one, other),
            _ => true,
        };
        for endpoint in
            case.endpoints_of(pod).filter(|endpoint| is_of_view(endpoint.seen.container_id.as_deref()))
        {
            let is_here =
                endpoint.seen.node.as_deref().is_none_or(|name| name.eq_ignore_ascii_case(&node.name));
            for address in endpoint.seen.addresses.iter().filter(|_| is_here) {
                // A text of one IP version says nothing of the other.
                let knows_version =
                    addresses.iter().any(|held| held.seen.net.addr().is_ipv4() == address.is_ipv4())
                        || address.is_ipv4();
                if !knows_version || addresses.iter().any(|held| held.seen.net.addr() == *address) {
                    continue;
                }
                let origin = addresses.first().map_or_else(
                    || Origin::probe(node.name.as_str(), "addresses of the pod"),
                    |held| held.origin.clone(),
                );
                look.found(
                    pod.clone(),
                    format!("pod {pod} does not have {address}, which its endpoint says"),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(origin.exhibit(format!("no {address}")))
                .seen(endpoint_exhibit(endpoint));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_another_address_inside() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.addresses.as_mut().unwrap()[0].seen.net = "10.0.0.50/32".parse().unwrap();
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "pod team-0/web-0 does not have 10.0.0.0, which its endpoint says"
        );
    }
}
