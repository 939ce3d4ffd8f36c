//! One owner: an address belongs to at most one sandbox. Finds endpoints, pods and neighbours that break it, and says where
//! traffic really goes and, if the books are at hand, who is entitled to the address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ::ipam::{NAMESPACE_ATTRIBUTE, POD_ATTRIBUTE};
use ipnet::IpNet;

use crate::checks::words::{counted, described as described_endpoint, listed};
use crate::evidence::kernel::{Neighbour, NeighbourState};
use crate::evidence::{Endpoint, NodeEvidence, Pod, same_id};
use crate::{Case, Check, Exhibit, Finding, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "address-shared",
    severity: Severity::Error,
    title: "Several endpoints hold one address",
    explanation: "Several sandboxes hold the same address, by their endpoint records, by their pods' status or by the node's neighbours. A \
                  node has one route per address, so all traffic to it reaches one of them, whichever is meant. A ping is \
                  answered and proves nothing.",
    remedy: "find out which sandbox the address was allocated to, keep that one, and recreate the pods of the \
             others so that each gets an address of its own",
    needs: &[&[Need::Endpoints], &[Need::Pods], &[Need::Neighbours]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints() {
        for unread in &endpoint.seen.unread {
            look.left_out(format_args!("WorkloadEndpoint({})", endpoint.seen), unread);
        }
    }
    let mut told: BTreeSet<IpAddr> = BTreeSet::new();
    let by_pods =
        case.pods_by_address().iter().filter(|(_, pods)| pods.len() > 1).map(|(address, _)| *address);
    let by_endpoints = case.endpoints_by_address().keys().copied();
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
        let owners = Owners::of(case, address);
        if owners.count() > 1 && told.insert(address) {
            tell(case, look, address, owners);
        }
    }
}

fn is_of(pod: &Sighted<Pod>, endpoint: &Sighted<Endpoint>) -> bool {
    endpoint.seen.pod.as_deref() == Some(&pod.seen.name.name)
        && (pod.seen.name.namespace.is_none() || endpoint.seen.namespace == pod.seen.name.namespace)
}

/// Everyone who holds an address, each once.
struct Owners<'e> {
    endpoints: Vec<&'e Sighted<Endpoint>>,
    /// Pods that show it and have no endpoint with it.
    pods: Vec<&'e Sighted<Pod>>,
    /// Devices where a neighbour has it, and neither of the above is known to be behind.
    neighbours: Vec<&'e Sighted<Neighbour>>,
}

impl<'e> Owners<'e> {
    fn of(case: &Case<'e>, address: IpAddr) -> Owners<'e> {
        let sandboxes: BTreeMap<Sandbox<'_>, &Sighted<Endpoint>> = case
            .endpoints_at(address)
            .iter()
            .rev()
            .map(|endpoint| (Sandbox::of(&endpoint.seen), *endpoint))
            .collect();
        let mut endpoints: Vec<_> = sandboxes.into_values().collect();
        endpoints.sort_by(|a, b| a.origin.cmp(&b.origin));
        let has_endpoint = |pod: &Pod| {
            endpoints
                .iter()
                .filter_map(|endpoint| endpoint.seen.pod_name())
                .any(|name| name.may_be(&pod.name))
        };
        let mut pods: Vec<_> = case.pods_at(address).to_vec();
        pods.retain(|pod| {
            let is_owner = !pod.seen.is_finished() && !case.is_in_flux(&pod.seen);
            is_owner && !case.is_on_host_network(&pod.seen) && !has_endpoint(&pod.seen)
        });
        pods.dedup_by(|a, b| a.seen.name == b.seen.name);
        let mut neighbours = Vec::new();
        if endpoints.is_empty() && pods.is_empty() {
            neighbours.extend(case.all_nodes().flat_map(|node| workload_neighbours(node, address)));
        }
        Owners { endpoints, pods, neighbours }
    }

    fn count(&self) -> usize {
        self.endpoints.len() + self.pods.len() + self.neighbours.len()
    }

    fn nodes(&self) -> BTreeSet<&'e str> {
        let endpoints = self.endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_deref());
        endpoints.chain(self.pods.iter().filter_map(|pod| pod.seen.node.as_deref())).collect()
    }

    fn words(&self) -> String {
        let mut parts = Vec::new();
        for (count, word) in [
            (self.endpoints.len(), "endpoint"),
            (self.pods.len(), "pod"),
            (self.neighbours.len(), "neighbour"),
        ] {
            if count > 0 {
                parts.push(if count == self.count() {
                    format!("{count} {word}s")
                } else {
                    counted(count, word)
                });
            }
        }
        parts.join(" and ")
    }
}

/// Who an endpoint record speaks of: the sandbox and its interface, or, where an old record does not name the
/// sandbox, the record itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sandbox<'a> {
    Named { container: &'a str, interface: Option<&'a str> },
    Unnamed { node: Option<&'a str>, namespace: Option<&'a str>, record: &'a str },
}

impl<'a> Sandbox<'a> {
    fn of(endpoint: &'a Endpoint) -> Sandbox<'a> {
        match &endpoint.container_id {
            Some(container) => Sandbox::Named { container, interface: endpoint.interface.as_deref() },
            None => Sandbox::Unnamed {
                node: endpoint.node.as_deref(),
                namespace: endpoint.namespace.as_deref(),
                record: &endpoint.name,
            },
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, address: IpAddr, owners: Owners<'_>) {
    let nodes = owners.nodes();
    let place = match nodes.len() {
        0 => String::new(),
        1 => format!(" on node {}", nodes.iter().next().expect("there is one")),
        count => format!(" on {count} nodes"),
    };
    let finding = look.found(address, format!("{}{place} hold the address {address}", owners.words()));
    finding.seen_all(
        owners.endpoints.iter().map(|endpoint| endpoint.exhibit(described(&endpoint.seen, address))),
    );
    finding.seen_all(
        owners.pods.iter().map(|pod| pod.exhibit(format!("pod {} shows {address}", pod.seen.name))),
    );
    tell_traffic(case, finding, address, &owners);
    tell_neighbours(case, finding, address);
    tell_pods(case, finding, address, &owners);
    tell_entitled(case, finding, address, &owners);
}

/// Which of them the route leads to, on every node whose routes are known.
fn tell_traffic(case: &Case<'_>, finding: &mut Finding, address: IpAddr, owners: &Owners<'_>) {
    let mut is_known = false;
    for node in case.all_nodes() {
        let mut routes: Vec<_> = node.kernel.routes_to(IpNet::from(address)).collect();
        routes.sort_by_key(|route| route.seen.metric.unwrap_or(0));
        let Some(route) = routes.first() else { continue };
        let Some(device) = route.seen.device.as_deref() else { continue };
        is_known = true;
        let holder = owners.endpoints.iter().find(|endpoint| {
            let is_here =
                endpoint.seen.node.as_deref().is_none_or(|name| name.eq_ignore_ascii_case(&node.name));
            is_here && endpoint.seen.device.as_deref() == Some(device)
        });
        let whose = holder.map_or_else(String::new, |endpoint| format!(", which is {}'s", endpoint.seen));
        finding
            .because(format!(
                "on {} the one route to it leads to {device}{whose}: all traffic and every ping ends there",
                node.name
            ))
            .seen(route.exhibit(route.seen.to_string()))
            .explains(
                "route-to-wrong-device",
                Subject::Route { node: node.name.clone(), destination: IpNet::from(address) },
            );
    }
    if !is_known {
        finding.because(
            "traffic to the address reaches at most one of them per node, whichever holds the route",
        );
    }
}

fn tell_neighbours(case: &Case<'_>, finding: &mut Finding, address: IpAddr) {
    for node in case.all_nodes() {
        let neighbours: Vec<_> = workload_neighbours(node, address).collect();
        if neighbours.len() > 1 {
            let permanent = neighbours.iter().filter(|n| n.seen.state == NeighbourState::Permanent).count();
            finding.because(format!(
                "{} has {} neighbours with it ({permanent} permanent)",
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
    finding.because(format!(
        "{} with it",
        if pods.len() == 1 {
            "one pod is shown".to_owned()
        } else {
            format!("{} pods are shown", pods.len())
        }
    ));
    for pod in pods {
        finding.seen(pod.exhibit(format!("pod {} shows {address}", pod.seen.name)));
    }
}

fn tell_entitled(case: &Case<'_>, finding: &mut Finding, address: IpAddr, owners: &Owners<'_>) {
    let Some(allocation) = case.allocation(address) else {
        finding
            .because("the evidence does not tell which of them is entitled to it, nor how it came to this");
        return;
    };
    let (handle, secondary) =
        (allocation.attribute.handle().unwrap_or_default(), &allocation.attribute.secondary);
    let id = handle.rsplit('.').next().unwrap_or_default();
    let by_sandbox = |endpoint: &Endpoint| {
        endpoint.container_id.as_deref().is_some_and(|container| same_id(container, id))
    };
    let by_pod = |endpoint: &Endpoint| {
        let of = |name: &str| secondary.get(name).map(String::as_str);
        of(POD_ATTRIBUTE).is_some()
            && of(POD_ATTRIBUTE) == endpoint.pod.as_deref()
            && of(NAMESPACE_ATTRIBUTE) == endpoint.namespace.as_deref()
    };
    let endpoints = || owners.endpoints.iter().map(|endpoint| &endpoint.seen);
    let entitled: Vec<&Endpoint> = match endpoints().find(|endpoint| by_sandbox(endpoint)) {
        Some(endpoint) => vec![endpoint],
        None => endpoints().filter(|endpoint| by_pod(endpoint)).collect(),
    };
    let block = allocation.block.cidr;
    match entitled[..] {
        [owner] => {
            let others = listed(
                endpoints()
                    .filter(|endpoint| !std::ptr::eq(*endpoint, owner))
                    .map(|endpoint| endpoint.to_string()),
            );
            finding
                .because(format!("block {block} says that {owner} is entitled to it"))
                .remedy(format!("keep {owner}; recreate the pods of the others, so that each gets an address of its own: {others}"));
        }
        _ => {
            finding.because(format!("block {block} has it allocated under {handle:?}, which is none of them: who is entitled cannot be told"));
        }
    }
}

fn workload_neighbours(node: &NodeEvidence, address: IpAddr) -> impl Iterator<Item = &Sighted<Neighbour>> {
    let neighbours = node.kernel.neighbours.as_deref().unwrap_or_default().iter();
    neighbours.filter(move |neighbour| neighbour.seen.address == address && is_workload(&neighbour.seen))
}

fn is_workload(neighbour: &Neighbour) -> bool {
    neighbour.device.starts_with(model::DeviceName::CALICO_PREFIX)
        && neighbour.state != NeighbourState::Missing
        && !neighbour.is_proxy
}

/// Addresses that neighbours at more than one pod's device have.
fn neighbours_at_several_devices(node: &NodeEvidence) -> Vec<IpAddr> {
    let mut devices: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
    for neighbour in node.kernel.neighbours.iter().flatten().filter(|neighbour| is_workload(&neighbour.seen))
    {
        devices.entry(neighbour.seen.address).or_default().insert(&neighbour.seen.device);
    }
    devices.into_iter().filter(|(_, devices)| devices.len() > 1).map(|(address, _)| address).collect()
}

fn neighbour_exhibit(neighbour: &Sighted<Neighbour>) -> Exhibit {
    neighbour.exhibit(format!("{} at {}", neighbour.seen.address, neighbour.seen.device))
}

fn described(endpoint: &Endpoint, address: IpAddr) -> String {
    described_endpoint(endpoint).replacen(')', &format!(") holds {address}"), 1)
}

#[cfg(test)]
mod tests {
    use model::{Kind, Resource};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::Evidence;

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
            look.unseen()[0],
            "WorkloadEndpoint(default/node--a-k8s-a-eth0): ipNetworks \"10.0.0.0/24\" cannot be read, \
             so address-shared left it out"
        );
    }

    #[test]
    fn the_finding_names_who_and_where() {
        let spec = |container: &str, device: &str| json!({"node": "node-a", "containerID": container, "interfaceName": device, "ipNetworks": ["10.0.0.1/32"]});
        let look = look_at(vec![endpoint("a", spec("c1", "cali1")), endpoint("b", spec("c2", "cali2"))]);
        let finding = &look.findings()[0];
        assert_eq!(finding.summary, "2 endpoints on node node-a hold the address 10.0.0.1");
        let exhibit = &finding.evidence[1];
        assert_eq!(
            exhibit.file,
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-k8s-b-eth0"
        );
        assert_eq!(
            exhibit.text,
            "WorkloadEndpoint(default/node--a-k8s-b-eth0) holds 10.0.0.1, node node-a, sandbox c2, device cali2"
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
