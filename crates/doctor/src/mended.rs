//! What an agent puts right by itself, in the words of findings: the code and the subject that it would have been found under.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{FindingCode, IpVersion, Sandbox};
use plan::between::{Step, VxlanDevice};
use plan::{Difference, DifferenceKind, NodeDifference, Side, StrayNeighbour};

use crate::Subject;

/// What a difference would have been as a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    pub code: FindingCode,
    pub subject: Subject,
}

/// What was left of a sandbox that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers<'a> {
    /// Its endpoint record.
    pub has_endpoint: bool,
    /// Addresses that are allocated to it.
    pub has_addresses: bool,
    /// Its device, by name.
    pub device: Option<&'a str>,
}

/// On the node's side.
pub fn on_node(difference: &NodeDifference, node: &str) -> Mended {
    let device = |name: &str| Subject::device(node, name);
    match difference {
        NodeDifference::Setting { wanted, .. } => {
            mended(FindingCode::ForwardingOff, Subject::sysctl(node, &wanted.path))
        }
        NodeDifference::Renamed { wanted, .. } => {
            mended(FindingCode::EndpointWithoutDevice, device(wanted.as_str()))
        }
        NodeDifference::RouteStray { route, .. } => route_of(FindingCode::RouteWithoutEndpoint, route, node),
        NodeDifference::OfPod { difference, sandbox, .. } => of_pod(difference, sandbox, node),
        NodeDifference::Unexpected { name, .. } | NodeDifference::Detached { name, .. } => {
            mended(FindingCode::DeviceWithoutEndpoint, device(name))
        }
    }
}

/// At either end of a pod's device.
pub fn of_pod(difference: &Difference, sandbox: &Sandbox, node: &str) -> Mended {
    match difference.side {
        Side::Host => at_host_end(difference, node),
        Side::Pod => mended(code_inside(difference), Subject::Sandbox(sandbox.container_id().to_owned())),
    }
}

/// A sandbox that was gone, with all that was left of it: one for each sort of thing.
pub fn collected(sandbox: &Sandbox, left: &Leftovers<'_>, node: &str) -> Vec<Mended> {
    let subject = Subject::Sandbox(sandbox.container_id().to_owned());
    let mut found = Vec::new();
    if left.has_endpoint {
        found.push(mended(FindingCode::EndpointWithoutSandbox, subject.clone()));
    }
    if left.has_addresses {
        found.push(mended(FindingCode::AddressLeaked, subject));
    }
    if let Some(device) = left.device {
        found.push(mended(FindingCode::DeviceWithoutEndpoint, Subject::device(node, device)));
    }
    found
}

/// A neighbour on a pod's device that was nobody's.
pub fn stray_neighbour(stray: &StrayNeighbour, node: &str) -> Mended {
    let subject = Subject::neighbour(node, stray.neighbour.address, &stray.device);
    mended(FindingCode::NeighbourWithoutEndpoint, subject)
}

/// Of the ways to other nodes: routes, and ends of tunnels.
pub fn between(step: &Step, node: &str) -> Mended {
    let route = |code, destination: IpNet| mended(code, Subject::route(node, destination));
    let tunnel = |code, version: IpVersion, address: IpAddr| {
        mended(code, Subject::neighbour(node, address, VxlanDevice::name_of(version)))
    };
    match *step {
        Step::PutRoute { route: wanted, instead_of: None } => {
            route(FindingCode::BlockRouteMissing, wanted.destination)
        }
        Step::PutRoute { route: wanted, .. } => route(FindingCode::BlockRouteWrong, wanted.destination),
        Step::DropRoute { route: found } => route(FindingCode::RouteWithoutEndpoint, found.destination),
        Step::PutNeighbour { address, .. } => {
            tunnel(FindingCode::TunnelEndUnknown, IpVersion::of(address), address)
        }
        Step::PutForward { version, node: at, .. } => tunnel(FindingCode::TunnelEndUnknown, version, at),
        Step::DropNeighbour { address } => {
            tunnel(FindingCode::NeighbourWithoutEndpoint, IpVersion::of(address), address)
        }
        Step::DropForward { version, node: at, .. } => {
            tunnel(FindingCode::NeighbourWithoutEndpoint, version, at)
        }
    }
}

/// Rules of nftables that somebody took away or changed.
pub fn rules(node: &str) -> Mended {
    mended(FindingCode::NatMissing, Subject::node(node))
}

/// The rules that restrict pods to their own addresses, gone.
pub fn pod_guard(node: &str) -> Mended {
    mended(FindingCode::PodSpoofingPossible, Subject::node(node))
}

/// A tunnel's device that was gone.
pub fn tunnel(device: &str, node: &str) -> Mended {
    mended(FindingCode::TunnelDeviceWrong, Subject::device(node, device))
}

fn mended(code: FindingCode, subject: Subject) -> Mended {
    Mended { code, subject }
}

fn at_host_end(difference: &Difference, node: &str) -> Mended {
    let device = difference.device.as_str();
    let on_device = |code| mended(code, Subject::device(node, device));
    match &difference.kind {
        DifferenceKind::Missing => on_device(FindingCode::EndpointWithoutDevice),
        DifferenceKind::Foreign { .. } => on_device(FindingCode::DeviceShared),
        DifferenceKind::Down | DifferenceKind::NotRunning => on_device(FindingCode::DeviceDown),
        DifferenceKind::Mtu { .. } => on_device(FindingCode::MtuDiffers),
        // An address: the pod's gateway is there, and its neighbour answers from this address.
        DifferenceKind::Mac { .. } | DifferenceKind::AddressMissing { .. } => {
            on_device(FindingCode::DeviceSettingWrong)
        }
        DifferenceKind::Sysctl { wanted, .. } => {
            mended(FindingCode::DeviceSettingWrong, Subject::sysctl(node, &wanted.path))
        }
        DifferenceKind::RouteMissing { route } => route_of(FindingCode::RouteMissing, route, node),
        DifferenceKind::RouteTaken { route, .. } => route_of(FindingCode::RouteShadowed, route, node),
        DifferenceKind::RouteStray { route } => route_of(FindingCode::RouteWithoutEndpoint, route, node),
        DifferenceKind::NeighbourMissing { neighbour, found } => {
            let code =
                if found.is_some() { FindingCode::NeighbourWrong } else { FindingCode::NeighbourMissing };
            mended(code, Subject::neighbour(node, neighbour.address, device))
        }
        DifferenceKind::NeighbourUnresolved { address } => {
            mended(FindingCode::NeighbourMissing, Subject::neighbour(node, *address, device))
        }
    }
}

fn route_of(code: FindingCode, route: &plan::Route, node: &str) -> Mended {
    mended(code, Subject::route(node, route.destination))
}

fn code_inside(difference: &Difference) -> FindingCode {
    match difference.kind {
        DifferenceKind::Missing
        | DifferenceKind::Foreign { .. }
        | DifferenceKind::Down
        | DifferenceKind::NotRunning => FindingCode::PodInterfaceMissing,
        DifferenceKind::AddressMissing { .. } => FindingCode::PodAddressMissing,
        DifferenceKind::RouteMissing { .. }
        | DifferenceKind::RouteTaken { .. }
        | DifferenceKind::RouteStray { .. } => FindingCode::PodDefaultRouteMissing,
        DifferenceKind::NeighbourMissing { .. }
        | DifferenceKind::NeighbourUnresolved { .. }
        | DifferenceKind::Mac { .. } => FindingCode::PodGatewayUnresolved,
        DifferenceKind::Mtu { .. } => FindingCode::MtuDiffers,
        DifferenceKind::Sysctl { .. } => FindingCode::DeviceSettingWrong,
    }
}

#[cfg(test)]
mod tests {
    use model::{DeviceName, Mac};
    use plan::between::{NodeRoute, Way};
    use plan::{Attachment, NodeFacts, ObservedEnd, ObservedWiring, PodWiring, differences};

    use super::*;

    fn sandbox() -> Sandbox {
        Sandbox::new("net", "c1", "eth0").unwrap()
    }

    fn wiring() -> PodWiring {
        let attachment = Attachment {
            device: DeviceName::new("cali1").unwrap(),
            mac: sandbox().mac(),
            sandbox: sandbox(),
            mtu: 1450,
            addresses: vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            pod_forwards: false,
            pod_routes: Vec::new(),
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: true }).unwrap()
    }

    /// A device of which nothing is right.
    fn wrong(index: u32, peer: u32, alias: Option<String>, end: &plan::End) -> ObservedEnd {
        let other = |neighbour: &plan::Neighbour| plan::Neighbour { mac: Mac([2; 6]), ..neighbour.clone() };
        ObservedEnd {
            index,
            peer_index: Some(peer),
            alias,
            mac: Some(Mac([2; 6])),
            mtu: Some(1),
            up: Some(index == 1),
            running: Some(false),
            routes: vec![plan::Route { destination: "10.9.0.0/16".parse().unwrap(), ..end.routes[0] }],
            preferred: vec![plan::Route { protocol: 4, ..end.routes[0] }],
            neighbours: end.neighbours.iter().take(1).map(other).collect(),
            unresolved: end.neighbours.iter().skip(1).map(|neighbour| neighbour.address).collect(),
            ..ObservedEnd::default()
        }
    }

    /// Every sort of step between nodes.
    fn ways() -> Vec<Step> {
        let (destination, address) = ("10.1.0.0/26".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let (mac, version, node) = (Mac([2; 6]), IpVersion::V6, address);
        let route = NodeRoute { destination, way: Way::Blackhole };
        let found = plan::Route::to(destination);
        vec![
            Step::PutRoute { route, instead_of: None },
            Step::PutRoute { route, instead_of: Some(found) },
            Step::DropRoute { route: found },
            Step::PutNeighbour { address, mac },
            Step::DropNeighbour { address },
            Step::PutForward { version, mac, node },
            Step::DropForward { version, mac, node },
        ]
    }

    fn all() -> Vec<Mended> {
        let wiring = wiring();
        let alias = Some(wiring.sandbox.alias());
        let broken = ObservedWiring {
            host: Some(wrong(1, 2, alias, &wiring.host)),
            pod: Some(wrong(2, 1, None, &wiring.pod)),
        };
        let strange = ObservedWiring { host: Some(wrong(1, 2, None, &wiring.host)), pod: None };
        let mut found: Vec<NodeDifference> = Vec::new();
        for observed in [ObservedWiring::default(), broken, strange] {
            found.extend(
                differences(&wiring, &observed).into_iter().map(|difference| NodeDifference::OfPod {
                    sandbox: sandbox(),
                    index: None,
                    difference,
                }),
            );
        }
        let (index, name, owner) = (1, "cali1".to_owned(), sandbox());
        let (wanted, route) = (plan::Sysctl::new("net/ipv4/ip_forward", 1), wiring.host.routes[0]);
        found.extend([
            NodeDifference::Setting { wanted, found: "0".to_owned() },
            NodeDifference::RouteStray { route },
            NodeDifference::Unexpected { index, name: name.clone(), owner: owner.clone() },
            NodeDifference::Detached { index, name: name.clone(), owner: owner.clone() },
            NodeDifference::Renamed { sandbox: owner, index, found: name, wanted: wiring.host.device },
        ]);
        let left = Leftovers { has_endpoint: true, has_addresses: true, device: Some("cali1") };
        let collected = collected(&sandbox(), &left, "a");
        let stray = StrayNeighbour {
            sandbox: sandbox(),
            device: "cali1".to_owned(),
            neighbour: wiring.host.neighbours[0].clone(),
        };
        let more = [stray_neighbour(&stray, "a"), rules("a"), pod_guard("a"), tunnel("vxlan.calico", "a")];
        let on_node = found.iter().map(|found| on_node(found, "a"));
        let between = ways().into_iter().map(|step| between(&step, "a"));
        on_node.chain(collected).chain(more).chain(between).collect()
    }

    #[test]
    fn every_code_that_an_agent_may_fix_is_listed() {
        let all = all();
        let codes: std::collections::BTreeSet<FindingCode> = all.iter().map(|mended| mended.code).collect();
        let expected = [
            FindingCode::AddressLeaked,
            FindingCode::BlockRouteMissing,
            FindingCode::BlockRouteWrong,
            FindingCode::DeviceDown,
            FindingCode::DeviceSettingWrong,
            FindingCode::DeviceShared,
            FindingCode::DeviceWithoutEndpoint,
            FindingCode::EndpointWithoutDevice,
            FindingCode::EndpointWithoutSandbox,
            FindingCode::ForwardingOff,
            FindingCode::MtuDiffers,
            FindingCode::NatMissing,
            FindingCode::NeighbourMissing,
            FindingCode::NeighbourWithoutEndpoint,
            FindingCode::NeighbourWrong,
            FindingCode::PodAddressMissing,
            FindingCode::PodDefaultRouteMissing,
            FindingCode::PodGatewayUnresolved,
            FindingCode::PodInterfaceMissing,
            FindingCode::PodSpoofingPossible,
            FindingCode::RouteMissing,
            FindingCode::RouteShadowed,
            FindingCode::RouteWithoutEndpoint,
            FindingCode::TunnelDeviceWrong,
            FindingCode::TunnelEndUnknown,
        ];
        assert_eq!(codes.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn subjects_are_those_of_findings() {
        let words: Vec<String> = all().iter().map(|mended| mended.subject.to_string()).collect();
        for expected in [
            "route 10.0.0.5/32 on a",
            "neighbour 10.0.0.5 at cali1 on a",
            "device cali1 on a",
            "sandbox c1",
            "route 10.1.0.0/26 on a",
            "neighbour 10.0.0.2 at vxlan.calico on a",
            "neighbour 10.0.0.2 at vxlan-v6.calico on a",
            "node a",
        ] {
            assert!(words.iter().any(|words| words == expected), "{expected}: {words:?}");
        }
        assert_eq!(collected(&sandbox(), &Leftovers::default(), "a"), []);
    }
}
