//! Identity is the sandbox: one pod has endpoints on two nodes.

use std::collections::BTreeSet;

use model::NodeName;

use super::is_of_pod;
use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::{Endpoint, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod has endpoints on several nodes",
    explanation: "The same pod has endpoint records on more than one node, but a pod runs on only one node \
                  at a time. Usually the pod moved, and the record on its former node was never deleted. \
                  That node may still route the old address, and a program that looks up the pod by name may \
                  find the wrong record.",
    remedy: "run plumb repair endpoints --apply to delete the record of the node on which the pod does not \
             run",
    needs: &[&[Need::Endpoints]],
    ..Check::warning(FindingCode::EndpointOnTwoNodes, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let of_pods = case.all_endpoints().iter().filter(|endpoint| is_of_pod(&endpoint.seen));
    let mut endpoints: Vec<&Sighted<Endpoint>> = of_pods.collect();
    endpoints.sort_by(|a, b| (&a.seen.pod, &a.seen.namespace).cmp(&(&b.seen.pod, &b.seen.namespace)));
    for endpoints in endpoints
        .chunk_by(|a, b| (&a.seen.pod, &a.seen.namespace) == (&b.seen.pod, &b.seen.namespace))
        .filter(|endpoints| endpoints.len() > 1)
    {
        let nodes: BTreeSet<&NodeName> =
            endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_ref()).collect();
        if nodes.len() > 1 && !endpoints.iter().any(|endpoint| case.is_endpoint_in_flux(&endpoint.seen)) {
            tell(case, look, endpoints);
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, endpoints: &[&Sighted<Endpoint>]) {
    let Some(name) = endpoints[0].seen.pod_name() else { return };
    let nodes: BTreeSet<&NodeName> =
        endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_ref()).collect();
    let summary = format!("pod {name} has endpoints on {} nodes: {}", nodes.len(), listed(&nodes));
    let finding = look.found(Subject::Pod(name.clone()), summary);
    finding.seen_all(endpoints.iter().map(|endpoint| endpoint_exhibit(endpoint)));
    let pod = case.pods_named(&name).find(|pod| pod.seen.node.is_some());
    match pod.and_then(|pod| Some((pod, pod.seen.node.as_ref()?))) {
        Some((pod, node)) => {
            let stale = nodes.iter().filter(|other| **other != node);
            finding
                .because(format!(
                    "Kubernetes has the pod on {node}, so the record of {} is left over",
                    listed(stale)
                ))
                .seen(pod.exhibit(format!("pod {name} is on {node}")));
            for endpoint in endpoints.iter().filter(|endpoint| endpoint.seen.node.as_ref() != Some(node)) {
                finding
                    .explains(FindingCode::EndpointWithoutDevice, &endpoint.seen)
                    .explains(FindingCode::EndpointWithoutSandbox, &endpoint.seen);
            }
        }
        None => {
            finding.because(
                "the pod's node was not collected, so the evidence does not show which record is left over",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_pod_that_was_moved() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        let mut second = endpoints[0].clone();
        second.seen.interface = Some("eth1".to_owned());
        endpoints.push(second.clone());
        silent(&CHECK, &evidence);
        second.seen.node = Some("worker-0001".into());
        evidence.endpoints.as_mut().unwrap().push(second);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 has endpoints on 2 nodes: worker-0000, worker-0001");
        assert!(finding.cause[0].contains("record of worker-0001 is left over"), "{:?}", finding.cause);
    }
}
