//! Reachable: the tunnel's own device.

use super::packets_lost::explain_losses;
use super::{block_route_missing, block_route_wrong, tunnel_end_unknown};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "VXLAN device is missing or misconfigured",
    explanation: "Pools are reached through VXLAN, but the node's VXLAN device is missing, is down or has \
                  lost its address. Or its VNI, port, MAC address, local address or NIC differs from the \
                  records. Pods on this node and pods behind the tunnel cannot reach each other. The kernel \
                  removes routes through a device that goes down or loses its last address.",
    remedy: "run plumb repair finding tunnel-device-wrong --apply to restore the device with its routes and \
             entries; an agent that is not in observe mode does so automatically",
    needs: &[&[Need::Ipam, Need::Routes, Need::Links]],
    ..Check::error(FindingCode::TunnelDeviceWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for crossings in case.crossings() {
        let place = &crossings.node;
        for tunnel in &crossings.tunnels {
            let device = tunnel.device;
            let summary =
                format!("{device} on {place} is missing or misconfigured: {}", tunnel.faults.join("; "));
            let finding = look.found(Subject::device(place, device), summary);
            finding.seen(Origin::probe(place, "links").exhibit(tunnel.faults.join("; ")));
            let is_of_it = |net: &&ipnet::IpNet| model::IpVersion::of(net.addr()) == tunnel.version;
            let singles = crossings.missing.iter().map(|(net, _)| net);
            for destination in crossings.tunnelled.iter().chain(singles).filter(is_of_it) {
                let route = || Subject::route(place, *destination);
                finding
                    .explains(block_route_missing::CHECK.code, route())
                    .explains(block_route_wrong::CHECK.code, route());
            }
            for end in crossings.ends.iter().filter(|end| end.device == device) {
                finding.explains(tunnel_end_unknown::CHECK.code, tunnel_end_unknown::subject(place, end));
            }
            explain_losses(case, finding, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::diagnose;
    use evidence::Evidence;
    use evidence::kernel::Link;
    use evidence::sample::tunnelled;

    fn device(evidence: &mut Evidence) -> &mut Link {
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        &mut links.iter_mut().find(|link| link.seen.name == "vxlan.calico").unwrap().seen
    }

    #[test]
    fn fires_for_every_part_that_matters() {
        let healthy = tunnelled("vxlanMode", "Always");
        silent(&CHECK, &healthy);
        let check = |change: fn(&mut Link), words: &str| {
            let mut evidence = healthy.clone();
            change(device(&mut evidence));
            let finding = only(&CHECK, &evidence);
            assert!(finding.summary.contains(words), "{}", finding.summary);
        };
        check(|link| link.vxlan.as_mut().unwrap().vni = Some(9), "its VNI is 9, expected 4096");
        check(|link| link.vxlan.as_mut().unwrap().port = Some(9), "its port is 9, expected 4789");
        check(|link| link.vxlan.as_mut().unwrap().parent = Some("eth1".to_owned()), "its NIC is eth1");
        check(|link| link.mac = Some(model::Mac([2; 6])), "its MAC address is");
        check(|link| link.is_up = Some(false), "it is down");
    }

    /// With the last address go the routes through the device; with the device everything.
    #[test]
    fn explains_what_went_with_it() {
        let mut evidence = tunnelled("vxlanMode", "Always");
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.addresses.as_mut().unwrap().retain(|held| held.seen.device != "vxlan.calico");
        let routes = kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.device.as_deref() != Some("vxlan.calico"));
        let report = diagnose(&evidence);
        let roots: Vec<FindingCode> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(roots, [CHECK.code], "{report:#?}");
        assert_eq!(report.findings[0].symptoms.len(), 2, "{report:#?}");
        assert!(report.findings[0].summary.contains("its address 10.0.0.63"), "{report:#?}");
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.links.as_mut().unwrap().retain(|link| link.seen.name != "vxlan.calico");
        kernel.neighbours.as_mut().unwrap().retain(|known| known.seen.device != "vxlan.calico");
        kernel.forwards.as_mut().unwrap().clear();
        let report = diagnose(&evidence);
        assert_eq!(report.findings.len(), 1, "{report:#?}");
        assert!(report.findings[0].summary.ends_with("it is missing"), "{report:#?}");
    }

    #[test]
    fn is_silent_where_no_tunnel_is_meant() {
        let mut evidence = tunnelled("vxlanMode", "Always");
        let spec = serde_json::json!({"vxlanEnabled": false});
        evidence.records.add(evidence::sample::record(model::Kind::FelixConfiguration, "default", spec));
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        links.retain(|link| link.seen.name != "vxlan.calico");
        silent(&CHECK, &evidence);
    }
}
