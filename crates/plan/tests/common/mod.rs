//! A pod's wiring, and a kernel that holds exactly that.

use model::{DeviceName, Sandbox};
use plan::{Attachment, End, NodeFacts, ObservedEnd, ObservedWiring, PartialEnd, PodWiring};

pub(crate) fn wiring(addresses: &[&str]) -> PodWiring {
    wiring_of("c1", "web-0", addresses)
}

pub(crate) fn wiring_of(container: &str, pod: &str, addresses: &[&str]) -> PodWiring {
    let sandbox = Sandbox::new("net", container, "eth0").unwrap();
    let attachment = Attachment {
        device: DeviceName::of_pod("cali", "default", pod).unwrap(),
        mac: sandbox.mac(),
        sandbox,
        mtu: 1450,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        pod_forwards: false,
        pod_routes: Vec::new(),
    };
    PodWiring::new(&attachment, &NodeFacts { rp_filter: 1, has_ipv6: true }).unwrap()
}

pub(crate) fn perfect(wiring: &PodWiring) -> ObservedWiring {
    ObservedWiring {
        host: Some(perfect_end(&wiring.host, (7, 2), Some(wiring.sandbox.alias()))),
        pod: Some(perfect_end(&wiring.pod, (2, 7), None)),
    }
}

pub(crate) fn perfect_end(end: &End, indices: (u32, u32), alias: Option<String>) -> ObservedEnd {
    ObservedEnd {
        index: indices.0,
        peer_index: Some(indices.1),
        alias,
        mac: Some(end.mac),
        mtu: Some(end.mtu),
        up: Some(true),
        running: Some(true),
        addresses: end.addresses.clone(),
        routes: end.routes.clone(),
        rivals: Vec::new(),
        preferred: Vec::new(),
        neighbours: end.neighbours.clone(),
        unresolved: Vec::new(),
        partial: PartialEnd::default(),
        sysctls: end.sysctls.clone(),
    }
}
