//! Invariant 1: an address belongs to at most one sandbox. Finds endpoint records that break it.
//!
//! Looks at records alone: which sandbox is alive, who holds the route and who is entitled are for others to say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::evidence::Endpoint;
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted};

pub(super) const CHECK: Check = Check {
    code: "address-shared",
    severity: Severity::Error,
    title: "Several endpoints hold one address",
    explanation: "Endpoint records of several sandboxes hold the same address. A node has one route per address, \
                  so all traffic to it reaches one of them, whichever is meant. A ping is answered and proves \
                  nothing.",
    remedy: "find out which sandbox the address was allocated to, keep that one, and recreate the pods of the \
             others so that each gets an address of its own",
    needs: &[&[Need::Endpoints]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for endpoint in case.all_endpoints() {
        for unread in &endpoint.seen.unread {
            look.left_out(format_args!("WorkloadEndpoint({})", endpoint.seen), unread);
        }
    }
    for (address, endpoints) in case.endpoints_by_address() {
        if endpoints.len() < 2 {
            continue;
        }
        let sandboxes: BTreeMap<Sandbox<'_>, &Sighted<Endpoint>> =
            endpoints.iter().rev().map(|endpoint| (Sandbox::of(&endpoint.seen), *endpoint)).collect();
        if sandboxes.len() > 1 {
            tell(look, *address, sandboxes.into_values().collect());
        }
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

fn tell(look: &mut Look<'_>, address: IpAddr, mut endpoints: Vec<&Sighted<Endpoint>>) {
    endpoints.sort_by(|a, b| a.origin.cmp(&b.origin));
    let nodes: BTreeSet<&str> =
        endpoints.iter().filter_map(|endpoint| endpoint.seen.node.as_deref()).collect();
    let place = match nodes.len() {
        0 => String::new(),
        1 => format!(" on node {}", nodes.iter().next().expect("there is one")),
        count => format!(" on {count} nodes"),
    };
    look.found(address, format!("{} endpoints{place} hold the address {address}", endpoints.len()))
        .because("traffic to the address reaches at most one of them per node, whichever holds the route")
        .because("endpoint records do not tell which of them is entitled to it, nor how it came to this")
        .seen_all(endpoints.iter().map(|endpoint| endpoint.exhibit(described(&endpoint.seen, address))));
}

fn described(endpoint: &Endpoint, address: IpAddr) -> String {
    let mut text = format!("WorkloadEndpoint({endpoint}) holds {address}");
    let parts = [("node", &endpoint.node), ("sandbox", &endpoint.container_id), ("device", &endpoint.device)];
    for (word, value) in parts {
        if let Some(value) = value {
            text.push_str(&format!(", {word} {value}"));
        }
    }
    text
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
