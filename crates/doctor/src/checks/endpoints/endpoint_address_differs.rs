//! Books agree: a pod shows another address than its endpoint has.

use std::net::IpAddr;

use super::is_of_pod;
use crate::checks::words::{endpoint_exhibit, listed};
use crate::evidence::{Endpoint, Pod};
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    code: "endpoint-address-differs",
    severity: Severity::Error,
    title: "Pod and endpoint have different addresses",
    explanation: "Kubernetes shows an address for a pod that its endpoint record does not have. Services \
                  send traffic to the one, the network routes the other. It happens when a sandbox is made \
                  again and one of the two is not told, or when two calls for pods of the same name \
                  overtake each other.",
    remedy: "compare with the address inside the pod; recreate the pod",
    needs: &[&[Need::Endpoints, Need::Pods]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for pod in case.all_pods() {
        let seen = &pod.seen;
        let is_out = seen.addresses.is_empty() || seen.is_finished() || case.is_in_flux(seen);
        if is_out || case.is_on_host_network(seen) {
            continue;
        }
        let endpoints = endpoints_of(case, seen);
        let known: Vec<IpAddr> =
            endpoints.iter().flat_map(|endpoint| endpoint.seen.addresses.iter().copied()).collect();
        // A kubelet that knows one IP version shows one address of two.
        let is_missing = |shown: &IpAddr| {
            !known.contains(shown) && known.iter().any(|known| known.is_ipv4() == shown.is_ipv4())
        };
        let missing: Vec<IpAddr> = seen.addresses.iter().copied().filter(is_missing).collect();
        if !missing.is_empty() && !endpoints.iter().any(|endpoint| case.is_endpoint_in_flux(&endpoint.seen)) {
            tell(look, pod, &endpoints, &missing, &known);
        }
    }
}

/// Those of the node that the pod is on.
fn endpoints_of<'e>(case: &Case<'e>, pod: &Pod) -> Vec<&'e Sighted<Endpoint>> {
    let is_here = |node: Option<&str>| match (node, pod.node.as_deref()) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => true,
    };
    let mut endpoints: Vec<_> = case.endpoints_of(&pod.name).collect();
    endpoints.retain(|endpoint| {
        let seen = &endpoint.seen;
        is_of_pod(seen) && is_here(seen.node.as_deref()) && !seen.addresses.is_empty()
    });
    endpoints
}

fn tell(
    look: &mut Look<'_>,
    pod: &Sighted<Pod>,
    endpoints: &[&Sighted<Endpoint>],
    missing: &[IpAddr],
    known: &[IpAddr],
) {
    let name = &pod.seen.name;
    let summary = format!("pod {name} shows {}, and its endpoint has {}", listed(missing), listed(known));
    let finding = look.found(name.clone(), summary);
    finding
        .seen(pod.exhibit(format!("pod {name} shows {}", listed(&pod.seen.addresses))))
        .seen_all(endpoints.iter().map(|endpoint| endpoint_exhibit(endpoint)));
    for address in missing {
        finding.explains("address-used-but-free", *address).explains("address-outside-pools", *address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_another_address_of_the_same_version() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["10.0.0.63".parse().unwrap()];
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 shows 10.0.0.63, and its endpoint has 10.0.0.0");
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["fd00::1".parse().unwrap()];
        silent(&CHECK, &evidence);
    }
}
