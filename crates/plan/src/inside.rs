//! What may be done about differences inside a pod.
//!
//! A pod with the right to do so may change its own network, and what it decided is not ours to undo. Only what is
//! missing, and has nothing else in its place, is put back; everything is reported.

use ipnet::IpNet;

use crate::difference::{Difference, ObservedEnd, ObservedWiring, differences};
use crate::wiring::{PodWiring, Side};

/// The differences inside one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsidePod {
    /// Missing, with nothing in its place. Can be put right as it stands.
    pub restore: Vec<Difference>,
    /// The pod's own doing, as far as can be told.
    pub report: Vec<Difference>,
}

/// Looks at the pod's side only.
pub fn inside_pod(wiring: &PodWiring, observed: &ObservedWiring) -> InsidePod {
    let mut inside = InsidePod::default();
    for difference in differences(wiring, observed) {
        if difference.side() != Side::Pod {
            continue;
        }
        let is_lost = observed.pod.as_ref().is_some_and(|pod| is_lost(&difference, pod));
        if is_lost { inside.restore.push(difference) } else { inside.report.push(difference) }
    }
    inside
}

fn is_lost(difference: &Difference, pod: &ObservedEnd) -> bool {
    match difference {
        Difference::AddressMissing { address, .. } => {
            !pod.addresses.iter().any(|other| replaces(other, address))
        }
        Difference::RouteMissing { route, .. } => {
            let mut others = pod.routes.iter().chain(&pod.rivals);
            // No route of the pod goes through a device that is down.
            pod.up && !others.any(|other| other.destination == route.destination)
        }
        Difference::NeighbourMissing { neighbour, .. } => {
            pod.up && !pod.neighbours.iter().any(|other| other.address == neighbour.address)
        }
        // Changed rather than lost: settings, hardware address, MTU, state; or renamed or moved away: the device.
        _ => false,
    }
}

/// Another address of the same family that the kernel did not give by itself.
fn replaces(other: &IpNet, address: &IpNet) -> bool {
    let is_link_local = matches!(other, IpNet::V6(other) if other.addr().is_unicast_link_local());
    other.addr().is_ipv4() == address.addr().is_ipv4() && !is_link_local
}

#[cfg(test)]
mod tests {
    use model::{DeviceName, Mac, Sandbox};

    use super::*;
    use crate::objects::{Neighbour, Route, RouteScope, Sysctl};
    use crate::wiring::{Attachment, End, NodeFacts};

    fn wiring() -> PodWiring {
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let attachment = Attachment {
            device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
            mac: sandbox.mac(),
            sandbox,
            mtu: 1450,
            addresses: vec!["10.244.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            pod_forwards: false,
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 1, has_ipv6: true }).unwrap()
    }

    fn perfect_end(end: &End, indices: (u32, u32), alias: Option<String>) -> ObservedEnd {
        ObservedEnd {
            index: indices.0,
            peer_index: Some(indices.1),
            alias,
            mac: Some(end.mac),
            mtu: end.mtu,
            up: true,
            running: true,
            addresses: end.addresses.clone(),
            routes: end.routes.clone(),
            rivals: Vec::new(),
            neighbours: end.neighbours.clone(),
            sysctls: end.sysctls.clone(),
        }
    }

    fn check(change: impl FnOnce(&mut ObservedEnd), restored: &[&str], reported: &[&str]) {
        let wiring = wiring();
        let mut pod = perfect_end(&wiring.pod, (2, 7), None);
        change(&mut pod);
        let host = perfect_end(&wiring.host, (7, 2), Some(wiring.sandbox.alias()));
        let observed = ObservedWiring { host: Some(host), pod: Some(pod) };
        let InsidePod { restore, report } = inside_pod(&wiring, &observed);
        let texts = |all: &[Difference]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&restore), restored);
        assert_eq!(texts(&report), reported);
    }

    fn strange(destination: &str) -> Route {
        let destination = destination.parse().unwrap();
        Route { destination, gateway: None, scope: RouteScope::Universe, protocol: 4, metric: 5 }
    }

    #[test]
    fn what_is_lost_is_put_back() {
        check(
            |pod| {
                pod.routes.remove(1);
            },
            &["pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0"],
            &[],
        );
        check(
            |pod| pod.addresses.retain(|address| address.addr().is_ipv6()),
            &["pod: address 10.244.0.5/32 is missing on eth0"],
            &[],
        );
        check(
            |pod| pod.neighbours.truncate(1),
            &["pod: permanent neighbour fe80::ecee:eeff:feee:eeee at ee:ee:ee:ee:ee:ee is missing on eth0"],
            &[],
        );
        check(
            |pod| pod.addresses[1] = "fe80::1/64".parse().unwrap(),
            &["pod: address fd00::5/128 is missing on eth0"],
            &[],
        );
    }

    #[test]
    fn what_was_replaced_is_the_pods_own() {
        let missing = "pod: route 0.0.0.0/0 via 169.254.1.1 is missing on eth0";
        check(|pod| pod.routes[1] = strange("0.0.0.0/0"), &[], &[missing]);
        check(
            |pod| {
                pod.routes.remove(1);
                pod.rivals.push(strange("0.0.0.0/0"));
            },
            &[],
            &[missing],
        );
        check(
            |pod| pod.addresses[0] = "10.9.9.9/24".parse().unwrap(),
            &[],
            &["pod: address 10.244.0.5/32 is missing on eth0"],
        );
        check(
            |pod| pod.neighbours[0] = Neighbour { mac: Mac([2; 6]), ..pod.neighbours[0].clone() },
            &[],
            &["pod: permanent neighbour 169.254.1.1 at ee:ee:ee:ee:ee:ee is missing on eth0"],
        );
    }

    #[test]
    fn what_was_changed_is_the_pods_own() {
        check(
            |pod| pod.sysctls[0] = Sysctl::new("net/ipv4/ip_forward", 1),
            &[],
            &["pod: net/ipv4/ip_forward is 1 instead of 0"],
        );
        check(|pod| pod.mtu = 1300, &[], &["pod: device eth0 has MTU 1300 instead of 1450"]);
        let down = |pod: &mut ObservedEnd| {
            (pod.up, pod.running) = (false, false);
            pod.routes.remove(2);
        };
        check(
            down,
            &[],
            &["pod: device eth0 is down", "pod: route ::/0 via fe80::ecee:eeff:feee:eeee is missing on eth0"],
        );
    }

    #[test]
    fn a_device_that_was_moved_away_is_only_reported() {
        let wiring = wiring();
        let host = perfect_end(&wiring.host, (7, 2), Some(wiring.sandbox.alias()));
        let inside = inside_pod(&wiring, &ObservedWiring { host: Some(host), pod: None });
        assert_eq!(inside.restore, []);
        assert!(matches!(inside.report[0], Difference::Missing { side: Side::Pod, .. }));
    }
}
