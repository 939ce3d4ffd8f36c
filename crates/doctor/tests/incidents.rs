//! The checks on the evidence of real outages, `tests/incidents/` at the top of the repository.

use doctor::evidence::Endpoint;
use doctor::evidence::endpoint::EndpointApi;
use doctor::{Evidence, Origin, Severity, Sighted, diagnose};

const WIDE: &str = include_str!("../../../tests/incidents/shared-address/workloadendpoints.wide.txt");

/// One row: node, orchestrator, workload, endpoint, network, device, profile.
fn endpoint(line: u32, row: &str) -> Sighted<Endpoint> {
    let columns: Vec<&str> = row.split_whitespace().collect();
    let [node, orchestrator, workload, interface, network, device, _profile] = columns[..] else {
        panic!("line {line} has other columns: {row}");
    };
    let (namespace, pod) = workload.split_once('.').expect("a workload is namespace.pod");
    let mut endpoint = Endpoint {
        api: EndpointApi::V1,
        namespace: Some(namespace.to_owned()),
        name: workload.to_owned(),
        orchestrator: orchestrator.to_owned(),
        pod: Some(pod.to_owned()),
        node: Some(node.to_owned()),
        interface: Some(interface.to_owned()),
        device: Some(device.to_owned()),
        ..Endpoint::default()
    };
    endpoint.read_networks(Some(&network.into()));
    Sighted::new(endpoint, Origin::line("workloadendpoints.wide.txt", line, row))
}

#[test]
fn shared_address_eleven_endpoints_hold_one() {
    let endpoints = (1..).zip(WIDE.lines()).map(|(line, row)| endpoint(line, row)).collect();
    let report = diagnose(&Evidence { endpoints: Some(endpoints), ..Evidence::default() });

    let codes: Vec<&str> = report.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["address-shared", "endpoint-on-two-nodes"], "{:#?}", report.findings);
    let finding = &report.findings[0];
    assert_eq!(finding.severity, Severity::Error);
    assert_eq!(finding.summary, "11 endpoints on node slave-140 hold the address 192.168.91.33");
    let lines: Vec<u32> = finding.evidence.iter().filter_map(|exhibit| exhibit.line).collect();
    assert_eq!(lines.len(), 11);
    assert!(!lines.contains(&12), "line 12 is the same pod on another node with another address");
}
