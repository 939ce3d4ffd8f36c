//! One owner: an address belongs to at most one sandbox. Finds endpoints, pods and neighbours that break it, and says where
//! traffic really goes and, if the books are at hand, who is entitled to the address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::explain_not_inside;
use super::owners::{Owners, neighbours_at_several_devices, workload_neighbours};
use crate::checks::words::{described as described_endpoint, listed};
use crate::{Case, Check, Finding, FindingCode, Look, Need, Subject};
use evidence::kernel::{Neighbour, NeighbourState};
use evidence::{Endpoint, Exhibit, Pod, Sighted};
use model::HandleId;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Several endpoints have the same address",
    explanation: "Several sandboxes have the same address, according to their endpoint records, their pods' \
                  status or the node's neighbour entries. A node uses only one route per address, so all \
                  traffic to that address reaches just one of them. A successful ping therefore proves \
                  nothing.",
    remedy: "run plumb repair endpoints --apply, which keeps the sandbox that the address is allocated to \
             and lists the commands that recreate the pods of the others",
    needs: &[&[Need::Endpoints], &[Need::Pods], &[Need::Neighbours]],
    ..Check::error(FindingCode::AddressShared, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints() {
        for unread in &endpoint.seen.unread {
            look.skipped(format_args!("WorkloadEndpoint({})", endpoint.seen), unread);
        }
    }
    let mut told: BTreeSet<IpAddr> = BTreeSet::new();
    let by_pods =
        case.pods_by_address().groups().filter(|(_, pods)| pods.len() > 1).map(|(address, _)| address);
    let by_endpoints = case.endpoints_by_address().groups().map(|(address, _)| address);
    let by_neighbours = case.all_nodes().flat_map(neighbours_at_several_devices);
    for address in by_endpoints.chain(by_pods).chain(by_neighbours) {
        // Nearly every address has one endpoint and one pod, and that is that.
        let pods = case.pods_at(address);
        if case.endpoints_at(address).len() == 1
            && pods.len() < 2
            && pods.iter().all(|pod| is_of(pod, case.endpoints_at(address)[0]))
        {
            continue;
        }
        if may_be_host_network(case, address) {
            continue;
        }
        let owners = Owners::of(case, address);
        if owners.count() > 1 && told.insert(address) {
            tell(case, look, address, owners);
        }
    }
}

/// Pods of one node with one address may just use their node's network: a table does not tell, and neither an endpoint nor a pool
/// says that the address is a pod's.
fn may_be_host_network(case: &Case<'_>, address: IpAddr) -> bool {
    let pods = case.pods_at(address);
    let nodes: BTreeSet<_> = pods.iter().filter_map(|pod| pod.seen.node.as_ref()).collect();
    case.endpoints_at(address).is_empty()
        && nodes.len() == 1
        && pods.iter().all(|pod| pod.seen.host_network.is_none() && pod.seen.annotations.is_empty())
        && !case.pools().iter().any(|(pool, _)| pool.cidr.contains_cidr(&model::Cidr::single(address)))
}

fn is_of(pod: &Sighted<Pod>, endpoint: &Sighted<Endpoint>) -> bool {
    endpoint.seen.pod.as_deref() == Some(&pod.seen.name.name)
        && (pod.seen.name.namespace.is_none() || endpoint.seen.namespace == pod.seen.name.namespace)
}

fn tell<'e>(case: &Case<'e>, look: &mut Look<'_>, address: IpAddr, owners: Owners<'e>) {
    let nodes = owners.nodes();
    let place = match nodes.len() {
        0 => String::new(),
        1 => format!(" on node {}", nodes.iter().next().expect("there is one")),
        count => format!(" on {count} nodes"),
    };
    let finding = look.found(address, format!("{}{place} have address {address}", owners.words()));
    for endpoint in &owners.endpoints {
        finding.of_sandbox(endpoint.seen.container_id.as_deref());
        explain_not_inside(case, finding, &endpoint.seen, &[address]);
    }
    finding.seen_all(
        owners.endpoints.iter().map(|endpoint| endpoint.exhibit(described(&endpoint.seen, address))),
    );
    finding.seen_all(
        owners.pods.iter().map(|pod| pod.exhibit(format!("pod {} shows {address}", pod.seen.name))),
    );
    tell_traffic(case, finding, address, &owners);
    tell_neighbours(case, finding, address, &owners);
    tell_pods(case, finding, address, &owners);
    tell_entitled(case, finding, address, &owners);
}

/// Which of them the route leads to, on every node whose routes are known.
fn tell_traffic<'e>(case: &Case<'e>, finding: &mut Finding, address: IpAddr, owners: &Owners<'e>) {
    let mut is_known = false;
    for node in owners.seen_on(case) {
        let mut routes: Vec<_> = node.kernel.routes_to(IpNet::from(address)).collect();
        routes.sort_by_key(|route| route.seen.metric.unwrap_or(0));
        let Some(route) = routes.first() else { continue };
        let Some(device) = route.seen.device.as_deref() else { continue };
        is_known = true;
        let holder = owners.endpoints.iter().find(|endpoint| {
            let is_here = endpoint.seen.node.as_ref().is_none_or(|name| *name == node.name);
            is_here && endpoint.seen.device.as_deref() == Some(device)
        });
        let whose =
            holder.map_or_else(String::new, |endpoint| format!(", which belongs to {}", endpoint.seen));
        finding
            .because(format!(
                "on {} the only route to it leads to {device}{whose}: all traffic and every ping goes there",
                node.name
            ))
            .seen(route.exhibit(route.seen.to_string()))
            .explains(FindingCode::RouteToWrongDevice, Subject::route(&node.name, address));
    }
    if !is_known {
        finding
            .because("traffic to the address reaches at most one of them per node, the one with the route");
    }
}

fn tell_neighbours<'e>(case: &Case<'e>, finding: &mut Finding, address: IpAddr, owners: &Owners<'e>) {
    for node in owners.seen_on(case) {
        let neighbours: Vec<_> = workload_neighbours(node, address).collect();
        if neighbours.len() > 1 {
            let permanent = neighbours.iter().filter(|n| n.seen.state == NeighbourState::Permanent).count();
            finding.because(format!(
                "{} has {} neighbour entries for it ({permanent} permanent)",
                node.name,
                neighbours.len()
            ));
            finding.seen_all(neighbours.iter().map(|neighbour| neighbour_exhibit(neighbour)));
        }
    }
}

/// How many pods show it, where pods were looked at.
fn tell_pods(case: &Case<'_>, finding: &mut Finding, address: IpAddr, owners: &Owners<'_>) {
    let pods = case.pods_at(address);
    if pods.is_empty() || owners.endpoints.is_empty() {
        return;
    }
    finding.because(match pods.len() {
        1 => "Kubernetes shows one pod with it".to_owned(),
        count => format!("Kubernetes shows {count} pods with it"),
    });
    for pod in pods {
        finding.seen(pod.exhibit(format!("pod {} shows {address}", pod.seen.name)));
    }
}

fn tell_entitled(case: &Case<'_>, finding: &mut Finding, address: IpAddr, owners: &Owners<'_>) {
    let Some(allocation) = case.allocation(address) else {
        finding.because("the evidence does not show which of them is entitled to it, or how this came about");
        return;
    };
    let block = allocation.block.cidr;
    match owners.entitled(&allocation)[..] {
        [owner] => {
            let endpoints = owners.endpoints.iter().map(|endpoint| &endpoint.seen);
            let others = listed(endpoints.filter(|endpoint| !std::ptr::eq(*endpoint, owner)));
            finding.because(format!("block {block} has it allocated to {owner}")).remedy(format!(
                "keep {owner}; recreate the pods of the others so that each gets its own address: {others}"
            ));
        }
        _ => {
            let handle = allocation.attribute.handle().map_or("", HandleId::as_str);
            finding.because(format!(
                "block {block} has it allocated under {handle:?}, which belongs to none of them: the \
                 entitled sandbox cannot be identified"
            ));
        }
    }
}

fn neighbour_exhibit(neighbour: &Sighted<Neighbour>) -> Exhibit {
    neighbour.exhibit(format!("{} on {}", neighbour.seen.address, neighbour.seen.device))
}

fn described(endpoint: &Endpoint, address: IpAddr) -> String {
    described_endpoint(endpoint).replacen(')', &format!(") has {address}"), 1)
}

#[cfg(test)]
mod tests {
    use model::{Kind, Resource};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::small;

    fn endpoint(pod: &str, spec: Value) -> Sighted<Endpoint> {
        let mut resource = Resource::new(Kind::WorkloadEndpoint, format!("node--a-k8s-{pod}-eth0"));
        resource.metadata.namespace = Some("default".to_owned());
        resource.body.insert("spec".to_owned(), spec);
        let seen = Endpoint::of_resource(&resource);
        Sighted::in_store(resource).map(|_| seen)
    }

    fn look_at(endpoints: Vec<Sighted<Endpoint>>) -> Look<'static> {
        CHECK.alone(&Evidence { endpoints: Some(endpoints), ..Evidence::default() })
    }

    /// The shared addresses, and how many hold each.
    fn check(endpoints: Vec<(&str, Value)>, expected: &[(&str, usize)]) {
        let look = look_at(endpoints.into_iter().map(|(pod, spec)| endpoint(pod, spec)).collect());
        let found: Vec<(String, usize)> =
            look.findings().iter().map(|f| (f.subject.to_string(), f.evidence.len())).collect();
        let found: Vec<(&str, usize)> =
            found.iter().map(|(subject, count)| (subject.as_str(), *count)).collect();
        assert_eq!(found, expected);
        assert!(look.unseen().is_empty(), "{:?}", look.unseen());
    }

    #[test]
    fn fires_for_different_sandboxes() {
        check(
            vec![
                (
                    "a",
                    json!({"containerID": "c1", "endpoint": "eth0", "ipNetworks": ["10.0.0.1/32", "fd00::1/128"]}),
                ),
                ("b", json!({"containerID": "c2", "endpoint": "eth0", "ipNetworks": ["10.0.0.1/32"]})),
                (
                    "c",
                    json!({"containerID": "c3", "endpoint": "eth0", "ipNetworks": ["10.0.0.2/32", "fd00:0::1"]}),
                ),
            ],
            &[("10.0.0.1", 2), ("fd00::1", 2)],
        );
    }

    #[test]
    fn fires_for_records_that_name_no_sandbox() {
        let spec = json!({"ipNetworks": ["10.0.0.1/32"]});
        let named = json!({"containerID": "c1", "ipNetworks": ["10.0.0.1/32"]});
        check(vec![("a", spec.clone()), ("b", spec), ("c", named)], &[("10.0.0.1", 3)]);
    }

    #[test]
    fn fires_for_two_interfaces_of_one_sandbox() {
        check(
            vec![
                ("a", json!({"containerID": "c1", "endpoint": "eth0", "ipNetworks": ["10.0.0.1/32"]})),
                ("b", json!({"containerID": "c1", "endpoint": "eth1", "ipNetworks": ["10.0.0.1/32"]})),
            ],
            &[("10.0.0.1", 2)],
        );
    }

    #[test]
    fn is_silent_when_every_address_has_one_owner() {
        check(
            vec![
                (
                    "a",
                    json!({"containerID": "c1", "endpoint": "eth0", "ipNetworks": ["10.0.0.1/32", "10.0.0.1/32"]}),
                ),
                ("renamed", json!({"containerID": "c1", "endpoint": "eth0", "ipNetworks": ["10.0.0.1/32"]})),
                ("b", json!({"containerID": "c2", "endpoint": "eth0", "ipNetworks": ["10.0.0.2/32"]})),
                ("c", json!({"containerID": "c3", "ipNetworks": []})),
                ("d", json!({"containerID": "c4", "ipNetworks": null})),
                ("e", json!({})),
                ("f", json!({})),
            ],
            &[],
        );
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let look = look_at(vec![
            endpoint("a", json!({"ipNetworks": ["10.0.0.0/24", "10.0.0.300/32", 7]})),
            endpoint("b", json!({"ipNetworks": "10.0.0.0/24"})),
        ]);
        assert!(look.findings().is_empty());
        assert_eq!(look.unseen().len(), 4);
        assert_eq!(
            look.unseen()[0].to_string(),
            "WorkloadEndpoint(default/node--a-k8s-a-eth0): ipNetworks \"10.0.0.0/24\" cannot be read, so \
             address-shared skipped it"
        );
    }

    #[test]
    fn the_finding_names_who_and_where() {
        let spec = |container: &str, device: &str| json!({"node": "node-a", "containerID": container, "interfaceName": device, "ipNetworks": ["10.0.0.1/32"]});
        let look = look_at(vec![endpoint("a", spec("c1", "cali1")), endpoint("b", spec("c2", "cali2"))]);
        let finding = &look.findings()[0];
        assert_eq!(finding.summary, "2 endpoints on node node-a have address 10.0.0.1");
        let exhibit = &finding.evidence[1];
        assert_eq!(
            exhibit.file,
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-k8s-b-eth0"
        );
        assert_eq!(
            exhibit.text,
            "WorkloadEndpoint(default/node--a-k8s-b-eth0) has 10.0.0.1, node node-a, sandbox c2, device \
             cali2"
        );
    }

    #[test]
    fn pods_alone_and_neighbours_alone_tell_it_too() {
        let mut evidence = small();
        evidence.endpoints = None;
        silent(&CHECK, &evidence);
        let pods = evidence.pods.as_mut().unwrap();
        pods[1].seen.addresses = pods[0].seen.addresses.clone();
        assert_eq!(only(&CHECK, &evidence).summary, "2 pods on node worker-0000 have address 10.0.0.0");
        evidence.pods = None;
        silent(&CHECK, &evidence);
        let neighbours = evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap();
        neighbours[1].seen.address = neighbours[0].seen.address;
        assert_eq!(only(&CHECK, &evidence).summary, "2 neighbours have address 10.0.0.0");
    }

    #[test]
    fn the_books_tell_who_is_entitled() {
        let mut evidence = small();
        let endpoints = evidence.endpoints.as_mut().unwrap();
        endpoints[1].seen.addresses = endpoints[0].seen.addresses.clone();
        let (owner, other) = (endpoints[0].seen.to_string(), endpoints[1].seen.to_string());
        let finding = only(&CHECK, &evidence);
        let entitled = format!("block 10.0.0.0/26 has it allocated to {owner}");
        assert!(finding.cause.contains(&entitled), "{:?}", finding.cause);
        assert!(finding.remedy.starts_with(&format!("keep {owner};")) && finding.remedy.ends_with(&other));
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        let attribute = &mut books.blocks.values_mut().next().unwrap().value.attributes[0];
        attribute.handle_id = Some("somebody.else".into());
        attribute.secondary.clear();
        let cause = only(&CHECK, &evidence).cause;
        assert!(
            cause.iter().any(|step| step.ends_with("the entitled sandbox cannot be identified")),
            "{cause:?}"
        );
    }

    proptest! {
        #[test]
        fn agrees_with_counting(owners in prop::collection::vec(0u8..20, 0..40)) {
            // The position is the sandbox, the number its address.
            let endpoints = owners.iter().enumerate().map(|(index, address)| {
                let spec = json!({"containerID": format!("c{index}"), "ipNetworks": [format!("10.0.0.{address}/32")]});
                endpoint(&format!("p{index}"), spec)
            });
            let found: BTreeSet<String> = look_at(endpoints.collect()).findings().iter().map(|f| f.subject.to_string()).collect();
            let shared = |address: &u8| owners.iter().filter(|other| *other == address).count() > 1;
            let expected: BTreeSet<String> =
                owners.iter().filter(|address| shared(address)).map(|address| format!("10.0.0.{address}")).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
