//! Books agree: an endpoint says another node than its pod does.

use super::{is_of_pod, is_running};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Endpoint is on a different node from its pod",
    explanation: "A pod's only endpoint record names a node on which the pod does not run. The node that \
                  runs the pod has no record of it and keeps no route to it. A machine that was cloned with \
                  another node's nodename file records its pods like this.",
    remedy: "compare /var/lib/calico/nodename with the name under which the node is registered, and correct \
             the file. Then run plumb repair finding endpoint-misplaced --apply, or recreate the pod",
    needs: &[&[Need::Endpoints, Need::Pods]],
    ..Check::error(FindingCode::EndpointMisplaced, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints().iter().filter(|endpoint| is_of_pod(&endpoint.seen)) {
        let (Some(name), Some(node)) = (endpoint.seen.pod_name(), endpoint.seen.node.as_ref()) else {
            continue;
        };
        // Namespaces that are not told could make two pods of one.
        let Some(pod) = case.pods_named(&name).next().filter(|pod| pod.seen.name == name) else { continue };
        let Some(real) = pod.seen.node.as_ref().filter(|real| *real != node) else {
            continue;
        };
        let is_alone = case.endpoints_of(&name).all(|other| other.seen.node == endpoint.seen.node);
        let is_settled = !pod.seen.is_finished() && !case.is_endpoint_in_flux(&endpoint.seen);
        if is_alone && is_settled && !is_running(case, &endpoint.seen) {
            let summary = format!("endpoint {} names node {node}, but its pod is on {real}", endpoint.seen);
            let finding = look.found(&endpoint.seen, summary);
            // Where the pod really is, nobody knows whose its device is.
            if let Some(device) = &endpoint.seen.device {
                finding.explains(FindingCode::DeviceWithoutEndpoint, Subject::device(real, device));
            }
            finding
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .seen(endpoint_exhibit(endpoint))
                .seen(pod.exhibit(format!("pod {name} is on {real}")))
                .explains(FindingCode::EndpointWithoutDevice, &endpoint.seen)
                .explains(FindingCode::EndpointWithoutSandbox, &endpoint.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::Sample;

    #[test]
    fn explains_the_device_where_the_pod_really_is() {
        let mut evidence = evidence::sample::small();
        let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
        assert_eq!(endpoint.node, Some("worker-0000".into()));
        endpoint.node = Some("worker-0001".into());
        // As on a node of Calico, which has no journal.
        evidence.nodes.values_mut().for_each(|node| node.attachments = None);
        let report = crate::diagnose(&evidence);
        let roots: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(roots, [CHECK.code]);
        let symptoms: Vec<_> = report.findings[0].symptoms.iter().map(|symptom| symptom.code).collect();
        assert!(symptoms.contains(&FindingCode::DeviceWithoutEndpoint), "{symptoms:?}");
    }

    #[test]
    fn fires_for_the_only_endpoint_of_a_pod() {
        let sample = Sample { nodes: 2, blocks_per_node: 1, pods_per_node: 1, has_kernels: false };
        let mut evidence = sample.evidence();
        silent(&CHECK, &evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        let right = endpoints[0].clone();
        endpoints[0].seen.node = Some("worker-0001".into());
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("names node worker-0001, but its pod is on worker-0000"),
            "{}",
            finding.summary
        );
        evidence.endpoints.as_mut().unwrap().push(right);
        silent(&CHECK, &evidence);
    }
}
