//! Reachable: a route to another node's pods leads another way than the records ask for.

use plan::between::RouteFault;

use super::packets_lost::way;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Route to another node's pods goes the wrong way",
    explanation: "A node has a route to another node's block, but the route does not match the pool's mode. \
                  It bypasses the tunnel where packets must be encapsulated, uses a tunnel where none is \
                  intended, has a different next hop, or is a blackhole. If the network between the nodes \
                  has no routes to the pods, it drops traffic that bypasses the tunnel.",
    remedy: "run plumb repair finding block-route-wrong --apply to replace it with the route that the pool's \
             mode requires. Then use the protocol of the wrong route (ip route) to find out what installed \
             it, or it will come back",
    needs: &[&[Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::BlockRouteWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = &crossings.node;
        for wrong in &crossings.wrong {
            let (route, owner) = (&wrong.found.seen, &wrong.owner);
            let words = match wrong.fault {
                RouteFault::LeadsNowhere => "to nowhere",
                RouteFault::Device => "through the wrong device",
                RouteFault::Gateway => "to the wrong next hop",
                RouteFault::NotOnlink => "without onlink",
            };
            let subject = Subject::route(place, route.destination);
            let summary = format!("{place} routes {} of node {owner} {words}: {route}", route.destination);
            let finding = look.found(subject.clone(), summary);
            finding.known_by(words).seen(wrong.found.exhibit(described(route)));
            if let Some(wanted) = &wrong.wanted {
                finding.because(format!("its pool's mode requires {wanted}"));
            }
            finding
                .explains(super::route_gateway_unreachable::CHECK.code, subject)
                .explains(super::packets_lost::CHECK.code, way(place, owner));
        }
    }
}

/// With who wrote it.
pub(super) fn described(route: &evidence::kernel::Route) -> String {
    let protocol = route.protocol.as_deref().unwrap_or("boot");
    format!("{route} proto {protocol}{}", if route.is_onlink { " onlink" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::kernel::{Route, RouteKind};
    use evidence::sample::{small, tunnelled};

    fn route(evidence: &mut Evidence) -> &mut Route {
        let routes = evidence.node_mut("worker-0000").kernel.routes.as_mut().unwrap();
        &mut routes
            .iter_mut()
            .find(|route| route.seen.destination.to_string() == "10.0.0.64/26")
            .unwrap()
            .seen
    }

    #[test]
    fn fires_for_a_plain_route_past_the_tunnel() {
        for mode in ["Always", "CrossSubnet"] {
            let mut evidence = tunnelled("vxlanMode", mode);
            silent(&CHECK, &evidence);
            let right = route(&mut evidence).clone();
            let leads_through_it = right.device.as_deref() == Some("vxlan.calico");
            assert_eq!(leads_through_it, mode == "Always", "{right}");
            let plain = Route {
                via: Some("172.16.0.2".parse().unwrap()),
                device: Some("eth0".to_owned()),
                is_onlink: false,
                ..right.clone()
            };
            *route(&mut evidence) = plain;
            match mode {
                "Always" => {
                    let finding = only(&CHECK, &evidence);
                    assert_eq!(finding.subject.to_string(), "route 10.0.0.64/26 on worker-0000");
                    assert!(
                        finding.cause[0].contains("via 10.0.0.127 dev vxlan.calico onlink"),
                        "{finding:?}"
                    );
                }
                // They share a network.
                _ => silent(&CHECK, &evidence),
            }
        }
    }

    #[test]
    fn fires_for_a_tunnel_where_none_is_meant_and_for_a_gateway_that_is_not_onlink() {
        let mut evidence = tunnelled("vxlanMode", "CrossSubnet");
        let tunnel = Route {
            via: Some("10.0.0.127".parse().unwrap()),
            device: Some("vxlan.calico".to_owned()),
            ..route(&mut evidence).clone()
        };
        *route(&mut evidence) = tunnel;
        assert!(only(&CHECK, &evidence).summary.contains("through the wrong device"));
        let mut evidence = tunnelled("vxlanMode", "Always");
        route(&mut evidence).is_onlink = false;
        assert!(only(&CHECK, &evidence).summary.contains("without onlink"));
        let mut evidence = tunnelled("vxlanMode", "Always");
        route(&mut evidence).via = Some("10.9.9.9".parse().unwrap());
        assert!(only(&CHECK, &evidence).summary.contains("to the wrong next hop"));
    }

    #[test]
    fn fires_for_a_black_hole_whatever_the_mode() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let hole = route(&mut evidence);
        (hole.kind, hole.via, hole.device) = (RouteKind::Blackhole, None, None);
        assert!(only(&CHECK, &evidence).summary.contains("nowhere: blackhole 10.0.0.64/26"));
    }

    /// Where nothing is encapsulated, BIRD may have learned a way through a router.
    #[test]
    fn stays_silent_for_what_only_bird_knows() {
        let mut evidence = small();
        route(&mut evidence).via = Some("172.16.200.1".parse().unwrap());
        silent(&CHECK, &evidence);
        route(&mut evidence).protocol = Some("static".to_owned());
        only(&CHECK, &evidence);
        evidence.node_mut("worker-0000").attachments = None;
        silent(&CHECK, &evidence);
    }
}
