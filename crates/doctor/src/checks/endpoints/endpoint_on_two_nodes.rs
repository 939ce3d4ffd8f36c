//! Identity is the sandbox: one pod has endpoints on two nodes.

use std::collections::BTreeSet;

use super::is_of_pod;
use crate::checks::words::{endpoint_exhibit, endpoint_subject, listed};
use crate::evidence::Endpoint;
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "endpoint-on-two-nodes",
    severity: Severity::Warning,
    title: "A pod with endpoints on two nodes",
    explanation: "The same pod has endpoint records on more than one node. A pod runs on one node at a \
                  time: it was moved, and the record of its former place was never removed. That node may \
                  still route the old address, and whoever finds the pod by its name may find the wrong \
                  record.",
    remedy: "remove the record of the node where the pod does not run (plumb repair endpoints)",
    needs: &[&[Need::Endpoints]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let of_pods = case.all_endpoints().iter().filter(|endpoint| is_of_pod(&endpoint.seen));
    let mut endpoints: Vec<&Sighted<Endpoint>> = of_pods.collect();
    endpoints.sort_by(|a, b| (&a.seen.pod, &a.seen.namespace).cmp(&(&b.seen.pod, &b.seen.namespace)));
    for endpoints in endpoints
        .chunk_by(|a, b| (&a.seen.pod, &a.seen.namespace) == (&b.seen.pod, &b.seen.namespace))
        .filter(|endpoints| endpoints.len() > 1)
    {
        let nodes: BTreeSet<String> = endpoints
            .iter()
            .filter_map(|endpoint| Some(endpoint.seen.node.as_ref()?.to_lowercase()))
            .collect();
        if nodes.len() > 1 && !endpoints.iter().any(|endpoint| case.is_endpoint_in_flux(&endpoint.seen)) {
            tell(case, look, endpoints);
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, endpoints: &[&Sighted<Endpoint>]) {
    let Some(name) = endpoints[0].seen.pod_name() else { return };
    let nodes: BTreeSet<&str> =
        endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_deref()).collect();
    let finding = look.found(
        Subject::Pod(name.clone()),
        format!("pod {name} has endpoints on {} nodes: {}", nodes.len(), listed(&nodes)),
    );
    finding.seen_all(endpoints.iter().map(|endpoint| endpoint_exhibit(endpoint)));
    let pod = case.pods_named(&name).find(|pod| pod.seen.node.is_some());
    match pod.and_then(|pod| Some((pod, pod.seen.node.as_deref()?))) {
        Some((pod, node)) => {
            let stale: Vec<&&str> = nodes.iter().filter(|other| !other.eq_ignore_ascii_case(node)).collect();
            finding
                .because(format!(
                    "Kubernetes has the pod on {node}, so the record of {} is a leftover",
                    listed(stale)
                ))
                .seen(pod.exhibit(format!("pod {name} is on {node}")));
            let is_elsewhere = |other: &Option<String>| {
                !other.as_ref().is_some_and(|other| other.eq_ignore_ascii_case(node))
            };
            for endpoint in endpoints.iter().filter(|endpoint| is_elsewhere(&endpoint.seen.node)) {
                let subject = endpoint_subject(&endpoint.seen);
                finding
                    .explains("endpoint-without-device", subject.clone())
                    .explains("endpoint-without-sandbox", subject);
            }
        }
        None => {
            finding.because(
                "where the pod runs was not collected, so the evidence does not tell which \
                             record is the leftover",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_a_pod_that_was_moved() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        let mut second = endpoints[0].clone();
        second.seen.interface = Some("eth1".to_owned());
        endpoints.push(second.clone());
        silent(&CHECK, &evidence);
        second.seen.node = Some("worker-0001".to_owned());
        evidence.endpoints.as_mut().unwrap().push(second);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 has endpoints on 2 nodes: worker-0000, worker-0001");
        assert!(finding.cause[0].contains("record of worker-0001 is a leftover"), "{:?}", finding.cause);
    }
}
