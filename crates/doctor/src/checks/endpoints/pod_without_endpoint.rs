//! No orphans, the other way round: a pod that runs and has no endpoint.

use std::net::IpAddr;

use ::ipam::Pool;
use ipnet::IpNet;
use model::names::host_interface_name;
use model::{Cidr, Kind};

use crate::checks::words::listed;
use crate::evidence::Pod;
use crate::{Case, Check, Finding, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-without-endpoint",
    severity: Severity::Error,
    title: "A running pod without an endpoint",
    explanation: "A pod runs and shows an address, and there is no endpoint record for it. Agents program \
                  what records say: its route and its neighbours are removed, or will be, and it is cut off \
                  both ways while Kubernetes calls it Running. Typically a late DEL of an older sandbox of \
                  that name removed the record.",
    remedy: "write the endpoint and allocation of the running sandbox anew (plumb repair endpoints), or \
             recreate the pod",
    needs: &[&[Need::Pods, Need::Endpoints]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if case.partial.endpoints {
        look.could_not_see(
            "endpoints are listed in part, so pod-without-endpoint cannot tell which pods have none",
        );
        return;
    }
    let records = case.evidence.records.of(Kind::IpPool);
    let pools: Option<Vec<Cidr>> = records.map(|records| {
        records.iter().filter_map(|pool| Pool::new(&pool.seen).ok()).map(|pool| pool.cidr).collect()
    });
    for pod in case.all_pods() {
        if !is_networked(case, &pod.seen) || case.endpoints_of(&pod.seen.name).next().is_some() {
            continue;
        }
        // Pods of another network have addresses of another network.
        let is_ours = |address: &IpAddr| {
            pools.as_ref().is_none_or(|pools| pools.iter().any(|pool| pool.contains(*address)))
        };
        if pod.seen.addresses.iter().any(is_ours) {
            tell(case, look, pod);
        }
    }
}

fn is_networked(case: &Case<'_>, pod: &Pod) -> bool {
    pod.status == "Running"
        && !pod.addresses.is_empty()
        && !case.is_in_flux(pod)
        && !case.is_on_host_network(pod)
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, pod: &Sighted<Pod>) {
    let name = &pod.seen.name;
    let place = pod.seen.node.as_deref().map_or_else(String::new, |node| format!(" on node {node}"));
    let addresses = listed(&pod.seen.addresses);
    let finding =
        look.found(name.clone(), format!("pod {name}{place} runs with {addresses} and has no endpoint"));
    finding
        .because(
            "what programs routes and neighbours knows pods by their endpoints, so nothing keeps those \
                  of this pod",
        )
        .seen(pod.exhibit(format!("pod {name} shows {addresses}")))
        .explains("pod-gateway-unresolved", name.clone());
    if let Some(node) = pod.seen.node.as_deref() {
        explain_kernel(case, finding, &pod.seen, node);
    }
}

/// What is left of it in the kernel looks like nobody's.
fn explain_kernel(case: &Case<'_>, finding: &mut Finding, pod: &Pod, node: &str) {
    for address in &pod.addresses {
        finding.explains(
            "route-without-endpoint",
            Subject::Route { node: node.to_owned(), destination: IpNet::from(*address) },
        );
    }
    let kernel = case.node(node).map(|node| &node.kernel);
    let routes = kernel
        .into_iter()
        .flat_map(|kernel| pod.addresses.iter().flat_map(|address| kernel.routes_to(IpNet::from(*address))));
    let routed = routes.filter_map(|route| route.seen.device.clone());
    let namespace = pod.name.namespace.as_deref().unwrap_or_default();
    let usual = host_interface_name(namespace, &pod.name.name).map(|device| device.to_string()).ok();
    for device in routed.chain(usual) {
        finding.explains("device-without-endpoint", Subject::device(node, &device));
        for address in &pod.addresses {
            let (node, device) = (node.to_owned(), device.clone());
            finding.explains(
                "neighbour-without-endpoint",
                Subject::Neighbour { node, address: *address, device },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use crate::sample::small;

    #[test]
    fn fires_for_a_running_pod() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap().remove(0);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on node worker-0000 runs with 10.0.0.0 and has no endpoint"
        );
        evidence.partial.endpoints = true;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn is_silent_for_those_who_need_none() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap().drain(..5);
        let pods = evidence.pods.as_mut().unwrap();
        pods[0].seen.status = "Completed".to_owned();
        pods[1].seen.status = "ContainerCreating".to_owned();
        pods[2].seen.deleted_at = evidence.taken_at;
        pods[3].seen.created_at = evidence.taken_at;
        pods[4].seen.addresses = vec!["192.0.2.1".parse().unwrap()];
        assert_eq!(subjects(&CHECK, &evidence), [] as [&str; 0]);
    }
}
