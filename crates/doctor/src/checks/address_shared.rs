//! Invariant 1: an address belongs to at most one sandbox. Finds endpoint records that break it.
//!
//! Looks at records alone: which sandbox is alive, who holds the route and who is entitled are for others to say.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Key, Resource};
use serde_json::Value;

use super::{Check, not_collected, not_understood};
use crate::{Evidence, Finding, Report, Severity, Sighted};

const CODE: &str = "address-shared";

pub(super) const CHECK: Check = Check {
    code: CODE,
    explanation: "Endpoint records of several sandboxes hold the same address. A node has one route per address, \
                  so all traffic to it reaches one of them, whichever is meant. A ping is answered and proves \
                  nothing.",
    run,
};

fn run(evidence: &Evidence, report: &mut Report) {
    let Some(endpoints) = &evidence.endpoints else {
        return not_collected(report, "WorkloadEndpoint", CODE);
    };
    let mut holders: BTreeMap<IpAddr, BTreeMap<Sandbox, &Sighted<Resource>>> = BTreeMap::new();
    for endpoint in endpoints {
        for address in addresses(endpoint, report) {
            holders.entry(address).or_default().entry(Sandbox::of(endpoint)).or_insert(endpoint);
        }
    }
    let shared = holders.into_iter().filter(|(_, sandboxes)| sandboxes.len() > 1);
    report
        .findings
        .extend(shared.map(|(address, sandboxes)| finding(address, sandboxes.into_values().collect())));
}

/// Who an endpoint record speaks of: the sandbox and its interface, or, where an old record does not name the
/// sandbox, the record itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sandbox {
    Named { container: String, interface: String },
    Unnamed(Key),
}

impl Sandbox {
    fn of(endpoint: &Sighted<Resource>) -> Sandbox {
        match endpoint.spec_text("containerID") {
            Some(container) => Sandbox::Named {
                container: container.to_owned(),
                interface: endpoint.spec_text("endpoint").unwrap_or_default().to_owned(),
            },
            None => Sandbox::Unnamed(endpoint.seen.key()),
        }
    }
}

fn addresses(endpoint: &Sighted<Resource>, report: &mut Report) -> Vec<IpAddr> {
    let networks = match endpoint.seen.spec("ipNetworks") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(networks)) => networks.as_slice(),
        Some(other) => std::slice::from_ref(other),
    };
    let mut addresses = Vec::new();
    for network in networks {
        match network.as_str().and_then(single_address) {
            Some(address) => addresses.push(address),
            None => not_understood(report, &endpoint.seen.key(), "ipNetworks", &network.to_string(), CODE),
        }
    }
    addresses
}

/// Endpoints hold single addresses, written as networks: `10.0.0.1/32`.
fn single_address(text: &str) -> Option<IpAddr> {
    let (address, prefix_len) = match text.split_once('/') {
        Some((address, prefix_len)) => (address, Some(prefix_len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let full_len = if address.is_ipv4() { "32" } else { "128" };
    prefix_len.is_none_or(|len| len == full_len).then_some(address)
}

fn finding(address: IpAddr, endpoints: Vec<&Sighted<Resource>>) -> Finding {
    let nodes: BTreeSet<&str> = endpoints.iter().filter_map(|endpoint| endpoint.spec_text("node")).collect();
    let place = match nodes.len() {
        0 => String::new(),
        1 => format!(" on node {}", nodes.iter().next().expect("there is one")),
        count => format!(" on {count} nodes"),
    };
    Finding {
        code: CODE,
        severity: Severity::Error,
        subject: address.to_string(),
        summary: format!("{} endpoints{place} hold the address {address}", endpoints.len()),
        cause: vec![
            "traffic to the address reaches at most one of them per node, whichever holds the route"
                .to_owned(),
            "endpoint records do not tell which of them is entitled to it, nor how it came to this"
                .to_owned(),
        ],
        evidence: endpoints.iter().map(|endpoint| endpoint.exhibit(described(endpoint, address))).collect(),
        remedy:
            "find out which sandbox the address was allocated to, keep that one, and recreate the pods of \
                 the others so that each gets an address of its own"
                .to_owned(),
    }
}

fn described(endpoint: &Sighted<Resource>, address: IpAddr) -> String {
    let mut text = format!("{} holds {address}", endpoint.seen.key());
    for (word, field) in [("node", "node"), ("sandbox", "containerID"), ("device", "interfaceName")] {
        if let Some(value) = endpoint.spec_text(field) {
            text.push_str(&format!(", {word} {value}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn endpoint(pod: &str, spec: Value) -> Sighted<Resource> {
        let mut resource = Resource::new(Kind::WorkloadEndpoint, format!("node--a-k8s-{pod}-eth0"));
        resource.metadata.namespace = Some("default".to_owned());
        resource.body.insert("spec".to_owned(), spec);
        Sighted::in_store(resource)
    }

    fn report(endpoints: Vec<Sighted<Resource>>) -> Report {
        let mut report = Report::default();
        run(&Evidence { endpoints: Some(endpoints), ..Evidence::default() }, &mut report);
        report
    }

    /// The shared addresses, and how many hold each.
    fn check(endpoints: Vec<(&str, Value)>, expected: &[(&str, usize)]) {
        let report = report(endpoints.into_iter().map(|(pod, spec)| endpoint(pod, spec)).collect());
        let found: Vec<(&str, usize)> =
            report.findings.iter().map(|f| (f.subject.as_str(), f.evidence.len())).collect();
        assert_eq!(found, expected);
        assert!(report.unseen.is_empty(), "{:?}", report.unseen);
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
        let report = report(vec![
            endpoint("a", json!({"ipNetworks": ["10.0.0.0/24", "10.0.0.300/32", 7]})),
            endpoint("b", json!({"ipNetworks": "10.0.0.0/24"})),
        ]);
        assert!(report.findings.is_empty());
        assert_eq!(report.unseen.len(), 4);
        assert_eq!(
            report.unseen[0],
            "WorkloadEndpoint(default/node--a-k8s-a-eth0): ipNetworks \"10.0.0.0/24\" cannot be read, \
             so address-shared left it out"
        );
    }

    #[test]
    fn the_finding_names_who_and_where() {
        let spec = |container: &str, device: &str| json!({"node": "node-a", "containerID": container, "interfaceName": device, "ipNetworks": ["10.0.0.1/32"]});
        let report = report(vec![endpoint("a", spec("c1", "cali1")), endpoint("b", spec("c2", "cali2"))]);
        let finding = &report.findings[0];
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
            let found: BTreeSet<String> = report(endpoints.collect()).findings.into_iter().map(|f| f.subject).collect();
            let shared = |address: &u8| owners.iter().filter(|other| *other == address).count() > 1;
            let expected: BTreeSet<String> =
                owners.iter().filter(|address| shared(address)).map(|address| format!("10.0.0.{address}")).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
