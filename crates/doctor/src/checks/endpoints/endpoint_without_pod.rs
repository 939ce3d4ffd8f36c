//! No orphans: an endpoint whose pod does not exist.

use super::{is_of_pod, is_running};
use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{Endpoint, Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint's pod does not exist",
    explanation: "An endpoint record names a pod that does not exist, usually because its DEL never reached \
                  the store. The record still holds an address, a route and policy membership. If the \
                  address is allocated to another pod, two endpoints have it.",
    remedy: "run plumb repair endpoints --apply, which deletes the record once two witnesses confirm that \
             its sandbox is gone",
    needs: &[&[Need::Endpoints, Need::Pods]],
    ..Check::warning(FindingCode::EndpointWithoutPod, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints().iter().filter(|endpoint| is_of_pod(&endpoint.seen)) {
        let Some(name) = endpoint.seen.pod_name() else { continue };
        if case.pods_named(&name).next().is_some()
            || case.is_endpoint_in_flux(&endpoint.seen)
            || case.is_newer_than_pods(endpoint.seen.created_at)
            || is_running(case, &endpoint.seen)
        {
            continue;
        }
        let others = pods_at_its_addresses(case, &endpoint.seen);
        // Some lines of a list say something only about what they are lines of.
        if case.partial.pods && others.is_empty() {
            continue;
        }
        let place = endpoint.seen.node.as_ref().map_or_else(String::new, |node| format!(" on node {node}"));
        let addresses = listed(&endpoint.seen.addresses);
        let summary = if case.partial.pods {
            format!("endpoint {}{place} has {addresses}, but no pod of that name shows it", endpoint.seen)
        } else {
            format!("endpoint {}{place} has {addresses}, but pod {name} does not exist", endpoint.seen)
        };
        let finding = look.found(&endpoint.seen, summary);
        finding.of_sandbox(endpoint.seen.container_id.as_deref());
        finding
            .seen(endpoint_exhibit(endpoint))
            .explains(FindingCode::EndpointWithoutDevice, &endpoint.seen)
            .explains(FindingCode::EndpointWithoutSandbox, &endpoint.seen);
        if case.partial.pods {
            finding.because(format!(
                "the list of pods is incomplete, but contains others with the same address: {}",
                listed(others.iter().map(|pod| &pod.seen.name))
            ));
        }
    }
}

fn pods_at_its_addresses<'e>(case: &Case<'e>, endpoint: &Endpoint) -> Vec<&'e Sighted<Pod>> {
    endpoint.addresses.iter().flat_map(|address| case.pods_at(*address)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    fn without_first_pod() -> evidence::Evidence {
        let mut evidence = small();
        evidence.pods.as_mut().unwrap().remove(0);
        evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap().remove(0);
        evidence
    }

    /// A list of pods that is older than the endpoint cannot have its pod.
    #[test]
    fn is_silent_about_what_is_newer_than_the_list_and_names_it() {
        let mut evidence = without_first_pod();
        let taken_at = evidence.taken_at.unwrap();
        let ago = |seconds| Some(taken_at - jiff::SignedDuration::from_secs(seconds));
        evidence.endpoints.as_mut().unwrap()[0].seen.created_at = ago(3600);
        evidence.pods_at = ago(300);
        only(&CHECK, &evidence);
        evidence.pods_at = ago(7200);
        let report = crate::diagnose_with(&evidence, &[&CHECK], &crate::Options::default());
        assert_eq!((report.findings.len(), report.not_judged.len()), (0, 1), "{report:?}");
    }

    #[test]
    fn fires_when_the_pod_is_gone() {
        silent(&CHECK, &small());
        let finding = only(&CHECK, &without_first_pod());
        assert_eq!(finding.subject.to_string(), "endpoint team-0/worker--0000-k8s-web--0-eth0");
        assert!(finding.summary.ends_with("but pod team-0/web-0 does not exist"), "{}", finding.summary);
    }

    #[test]
    fn is_silent_while_the_sandbox_runs_and_for_the_young() {
        let mut evidence = small();
        evidence.pods.as_mut().unwrap().remove(0);
        silent(&CHECK, &evidence);
        let mut evidence = without_first_pod();
        let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
        endpoint.created_at = evidence.taken_at;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn of_a_part_of_the_pods_it_believes_what_shares_the_address() {
        let mut evidence = without_first_pod();
        evidence.partial.pods = true;
        silent(&CHECK, &evidence);
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["10.0.0.0".parse().unwrap()];
        assert!(only(&CHECK, &evidence).summary.ends_with("no pod of that name shows it"));
    }
}
