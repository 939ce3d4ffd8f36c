//! No orphans, the other way round: a pod that runs and has no endpoint.

use std::net::IpAddr;

use ipnet::IpNet;
use model::names::host_interface_name;
use model::{Kind, NodeName};

use super::Sandboxes;
use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, Finding, FindingCode, Look, Need, Subject};
use evidence::kernel::PodView;
use evidence::kubernetes::age;
use evidence::node::RuntimeSandbox;
use evidence::{Endpoint, PartialList, Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Running pod has no endpoint",
    explanation: "A pod runs and has an address, but it has no endpoint record, or one without an address. \
                  Agents program only what is recorded, so the pod's route and neighbour entries have been \
                  or will be removed. The pod loses traffic in both directions while Kubernetes still shows \
                  it as Running. Typically, a late DEL of an older sandbox of the same pod name deleted the \
                  record. In a Kubernetes store the record is the pod itself, and such a DEL empties its \
                  annotation cni.projectcalico.org/podIP.",
    remedy: "run plumb repair endpoints --apply to write the endpoint and allocation of the running sandbox \
             again, or recreate the pod",
    needs: &[&[Need::Pods, Need::Endpoints], &[Need::Runtime, Need::PodViews, Need::Endpoints]],
    ..Check::error(FindingCode::PodWithoutEndpoint, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if case.partial.endpoints {
        look.could_not_run(PartialList::Endpoints);
        return;
    }
    // Pods of another network have addresses of another network.
    let knows_none = case.evidence.records.of(Kind::IpPool).is_none();
    let is_ours =
        |address: &IpAddr| knows_none || case.pools().iter().any(|(pool, _)| pool.cidr.contains(*address));
    let lacks_one =
        |pod: &Pod| case.endpoints_of(&pod.name).all(is_emptied) && pod.addresses.iter().any(is_ours);
    for pod in case.all_pods() {
        if is_networked(case, &pod.seen) && lacks_one(&pod.seen) && !is_between_sandboxes(case, &pod.seen) {
            let words = format!("pod {} shows {}", pod.seen.name, listed(&pod.seen.addresses));
            tell(case, look, pod, words);
        }
    }
    for (pod, id) in unlisted(case).filter(|(pod, _)| lacks_one(&pod.seen)) {
        let (name, addresses) = (&pod.seen.name, listed(&pod.seen.addresses));
        let words = format!("sandbox {id} of pod {name} is ready and has {addresses} inside");
        tell(case, look, &pod, words);
    }
}

/// Whether an endpoint gives its pod no address: as good as none.
fn is_emptied(endpoint: &Sighted<Endpoint>) -> bool {
    endpoint.seen.addresses.is_empty() && !endpoint.seen.has_unread_addresses()
}

/// Whether the endpoint is empty because the pod's sandbox has ended, and the next one is still to come: Kubernetes shows the address of the
/// former until then. A runtime that was not asked does not say.
fn is_between_sandboxes(case: &Case<'_>, pod: &Pod) -> bool {
    let has_endpoint = case.endpoints_of(&pod.name).next().is_some();
    let node = pod.node.as_ref().and_then(|node| case.node(node));
    let Some(sandboxes) = node.and_then(Sandboxes::of).filter(|_| has_endpoint) else { return false };
    let is_settled = |sandbox: &&Sighted<RuntimeSandbox>| {
        let seen = &sandbox.seen;
        !case.is_young(age(seen.created_at, seen.age, case.taken_at)) && !case.is_at_work_on(&seen.id)
    };
    !sandboxes.ready(&pod.name).iter().any(is_settled)
}

/// Sandboxes that run, as the pods that nobody listed. Where all pods are listed, theirs have been judged.
fn unlisted<'c>(case: &'c Case<'_>) -> impl Iterator<Item = (Sighted<Pod>, &'c str)> {
    let knows_pods = case.knows_pods();
    let nodes = case.all_nodes().filter(move |_| !knows_pods);
    let sandboxes = nodes.flat_map(|node| node.sandboxes.iter().flatten().map(move |found| (node, found)));
    sandboxes.filter_map(|(node, found)| {
        let sandbox = &found.seen;
        let age = age(sandbox.created_at, sandbox.age, case.taken_at);
        let is_settled = sandbox.is_ready == Some(true)
            && !case.is_young(age)
            && !case.is_at_work_on(&sandbox.id)
            && case.pods_named(&sandbox.pod).next().is_none();
        let (_, view) = is_settled.then(|| case.view_of(&sandbox.id))??;
        let pod = Pod {
            name: sandbox.pod.clone(),
            node: Some(node.name.clone()),
            addresses: given_to(view),
            ..Pod::default()
        };
        Some((Sighted::new(pod, found.origin.clone()), sandbox.id.as_str()))
    })
}

/// The addresses inside a pod that the kernel did not make itself.
fn given_to(view: &PodView) -> Vec<IpAddr> {
    let held = view.kernel.addresses.iter().flatten().map(|held| held.seen.net.addr());
    held.filter(|address| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    })
    .collect()
}

fn is_networked(case: &Case<'_>, pod: &Pod) -> bool {
    pod.status == "Running"
        && !pod.addresses.is_empty()
        && !case.is_in_flux(pod)
        && !case.is_on_host_network(pod)
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, pod: &Sighted<Pod>, words: String) {
    let name = &pod.seen.name;
    let place = pod.seen.node.as_ref().map_or_else(String::new, |node| format!(" on node {node}"));
    let addresses = listed(&pod.seen.addresses);
    let endpoint = case.endpoints_of(name).next();
    let lacks = if endpoint.is_some() { "its endpoint has no address" } else { "has no endpoint" };
    let finding = look.found(name.clone(), format!("pod {name}{place} runs with {addresses} but {lacks}"));
    if let Some(endpoint) = endpoint {
        finding.seen(endpoint_exhibit(endpoint));
        finding.explains(FindingCode::EndpointWithoutContainerId, &endpoint.seen);
    }
    finding
        .because(
            "agents program routes and neighbour entries from endpoint records, so nothing maintains those \
             of this pod",
        )
        .seen(pod.exhibit(words))
        .explains(FindingCode::PodGatewayUnresolved, name.clone());
    // Whoever deleted the endpoint released its addresses, too.
    for address in &pod.seen.addresses {
        finding.explains(FindingCode::AddressUsedButFree, *address);
    }
    if let Some(node) = pod.seen.node.as_ref() {
        explain_kernel(case, finding, &pod.seen, node);
    }
}

/// What is left of it in the kernel looks like nobody's.
fn explain_kernel(case: &Case<'_>, finding: &mut Finding, pod: &Pod, node: &NodeName) {
    for address in &pod.addresses {
        finding.explains(FindingCode::RouteWithoutEndpoint, Subject::route(node, *address));
    }
    let kernel = case.node(node).map(|node| &node.kernel);
    let routes = kernel
        .into_iter()
        .flat_map(|kernel| pod.addresses.iter().flat_map(|address| kernel.routes_to(IpNet::from(*address))));
    let routed = routes.filter_map(|route| route.seen.device.clone());
    let namespace = pod.name.namespace.as_deref().unwrap_or_default();
    let usual = host_interface_name(namespace, &pod.name.name).map(|device| device.to_string()).ok();
    for device in routed.chain(usual) {
        finding.explains(FindingCode::DeviceWithoutEndpoint, Subject::device(node, &device));
        for address in &pod.addresses {
            let neighbour = Subject::neighbour(node, *address, &device);
            finding.explains(FindingCode::NeighbourWithoutEndpoint, neighbour);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_running_pod() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap().remove(0);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on node worker-0000 runs with 10.0.0.0 but has no endpoint"
        );
        evidence.partial.endpoints = true;
        silent(&CHECK, &evidence);
    }

    /// As a late DEL leaves a pod that is its own endpoint.
    #[test]
    fn fires_for_an_endpoint_without_an_address() {
        let mut evidence = small();
        let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
        let id = endpoint.container_id.take().unwrap();
        endpoint.addresses.clear();
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on node worker-0000 runs with 10.0.0.0 but its endpoint has no address"
        );
        let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
        endpoint.unread.push("ipNetworks 7".to_owned());
        silent(&CHECK, &evidence);
        evidence.endpoints.as_mut().unwrap()[0].seen.unread.clear();
        // Its sandbox was restarted, and the kubelet has not reported the new one yet.
        let sandboxes = evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap();
        sandboxes.iter_mut().filter(|sandbox| sandbox.seen.id == id).for_each(|sandbox| {
            sandbox.seen.is_ready = Some(false);
        });
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").sandboxes = None;
        only(&CHECK, &evidence);
    }

    /// A cluster whose nodes were asked, but not its API.
    fn without_pods() -> evidence::Evidence {
        let mut evidence = small();
        evidence.pods = None;
        evidence
    }

    #[test]
    fn fires_for_a_sandbox_that_runs_where_nobody_listed_pods() {
        let mut evidence = without_pods();
        silent(&CHECK, &evidence);
        let lost = evidence.endpoints.as_mut().unwrap().remove(0).seen;
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pod team-0/web-0 on node worker-0000 runs with 10.0.0.0 but has no endpoint"
        );
        let id = lost.container_id.unwrap();
        assert!(finding.evidence[0].text.starts_with(&format!("sandbox {id} of pod")), "{finding:?}");
        let sandbox = |evidence: &mut evidence::Evidence, change: fn(&mut evidence::node::RuntimeSandbox)| {
            let sandboxes = evidence.node_mut("worker-0000").sandboxes.as_mut().unwrap().iter_mut();
            sandboxes.filter(|sandbox| sandbox.seen.id == id).for_each(|sandbox| change(&mut sandbox.seen));
        };
        for change in [
            (|sandbox| sandbox.is_ready = Some(false)) as fn(&mut evidence::node::RuntimeSandbox),
            |sandbox| (sandbox.created_at, sandbox.age) = (None, Some(jiff::SignedDuration::from_secs(5))),
        ] {
            let mut evidence = evidence.clone();
            sandbox(&mut evidence, change);
            silent(&CHECK, &evidence);
        }
    }

    #[test]
    fn is_silent_for_sandboxes_of_others_and_of_pods_that_are_listed() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap().remove(0);
        let pods = evidence.pods.as_mut().unwrap();
        pods[0].seen.deleted_at = evidence.taken_at;
        silent(&CHECK, &evidence);
        evidence.partial.pods = true;
        silent(&CHECK, &evidence);
        let mut evidence = without_pods();
        evidence.endpoints.as_mut().unwrap().remove(0);
        for view in evidence.node_mut("worker-0000").pod_views.as_mut().unwrap() {
            for held in view.kernel.addresses.as_mut().unwrap() {
                held.seen.net = "192.0.2.7/32".parse().unwrap();
            }
        }
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
