//! Node set-up: a tunnel or its pods have an MTU that does not fit through.

use ::ipam::Pool;
use model::Kind;
use plan::between::{IPIP_DEVICE, VXLAN_DEVICES, tunnel_overhead};

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Host, Look, Need, Subject};
use evidence::Sighted;
use evidence::kernel::Link;

pub(in crate::checks) const CHECK: Check = Check {
    title: "MTU is too large for the tunnel",
    explanation: "A tunnel between nodes adds a header to each packet. The tunnel's MTU plus this header \
                  exceeds the MTU of the NIC, or pods have a larger MTU than their tunnel. Large packets \
                  between nodes are dropped or fragmented: connections open and then hang.",
    remedy: "set the MTU in FelixConfiguration (or the CNI configuration) to the NIC's MTU minus the tunnel \
             header, and recreate the pods",
    needs: &[&[Need::Links, Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::MtuTooLarge, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let has = |mode: fn(&Pool) -> bool| case.pools().iter().any(|(pool, _)| mode(pool));
    let (has_vxlan, has_ipip) = (has(Pool::has_vxlan), has(Pool::has_ipip));
    let vxlan = VXLAN_DEVICES.into_iter().filter(|_| has_vxlan);
    let devices: Vec<&str> = vxlan.chain(has_ipip.then_some(IPIP_DEVICE)).collect();
    for host in case.hosts() {
        for device in &devices {
            if let (Some(tunnel), Some(header)) = (host.link(device), tunnel_overhead(device)) {
                check(look, host, tunnel, header);
            }
        }
    }
}

fn check(look: &mut Look<'_>, host: &Host<'_>, tunnel: &Sighted<Link>, header: u32) {
    let Some(mtu) = tunnel.seen.mtu else { return };
    let (place, name) = (host.name(), &tunnel.seen.name);
    let parent = tunnel.seen.vxlan.as_ref().and_then(|vxlan| vxlan.parent.as_deref());
    let card = parent.and_then(|parent| host.link(parent)).or_else(|| only_card(host));
    if let Some(card) = card
        && let Some(outer) = card.seen.mtu
        && mtu.saturating_add(header) > outer
    {
        let summary = format!(
            "{name} on {place} has MTU {mtu}; with {header} bytes of header it exceeds MTU {outer} of {}",
            card.seen.name
        );
        look.found(Subject::device(place, name), summary)
            .seen(tunnel.exhibit(format!("{name} has MTU {mtu}")))
            .seen(card.exhibit(format!("{} has MTU {outer}", card.seen.name)));
    }
    let larger: Vec<_> = host
        .links()
        .filter(|link| link.seen.is_workload() && link.seen.mtu.is_some_and(|pods| pods > mtu))
        .collect();
    if larger.is_empty() {
        return;
    }
    let (count, have) = (counted(larger.len(), "device"), if larger.len() == 1 { "has" } else { "have" });
    let finding =
        look.found(place, format!("{count} of pods on {place} {have} a larger MTU than {name} ({mtu})"));
    finding.known_by(format!("larger than {name}")).seen(tunnel.exhibit(format!("{name} has MTU {mtu}")));
    finding.because(format!(
        "pods keep the MTU with which they were created, and these were created before it was lowered: {}",
        listed(larger.iter().map(|link| pod_of(host, &link.seen.name)))
    ));
    finding.seen_all(larger.iter().map(|link| {
        let (device, mtu) = (&link.seen.name, link.seen.mtu.unwrap_or_default());
        link.exhibit(format!("{device} of {} has MTU {mtu}", pod_of(host, device)))
    }));
}

/// The one device that leads out of the node, where a tunnel does not name it.
fn only_card<'e>(host: &'e Host<'_>) -> Option<&'e Sighted<Link>> {
    const INNER: [&str; 16] = [
        "lo",
        "cali",
        "tunl",
        "vxlan",
        "wireguard",
        "docker",
        "br-",
        "virbr",
        "veth",
        "kube-ipvs",
        "nodelocaldns",
        "dummy",
        "cni",
        "flannel",
        "cilium",
        "tailscale",
    ];
    let mut cards = host.links().filter(|link| !INNER.iter().any(|start| link.seen.name.starts_with(start)));
    let card = cards.next()?;
    cards.next().is_none().then_some(card)
}

/// The pod at a device, if an endpoint tells.
fn pod_of(host: &Host<'_>, device: &str) -> String {
    let endpoint = host.endpoints.iter().find(|endpoint| endpoint.seen.device.as_deref() == Some(device));
    endpoint.map_or_else(|| device.to_owned(), |endpoint| endpoint.seen.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{silent, subjects};
    use evidence::Origin;
    use evidence::kernel::Vxlan;
    use evidence::sample::{record, small};

    fn with_tunnel(mtu: u32) -> evidence::Evidence {
        let mut evidence = small();
        evidence.records.add(record(
            Kind::IpPool,
            "v",
            json!({"cidr": "10.64.0.0/16", "vxlanMode": "Always"}),
        ));
        let vxlan = Some(Vxlan { parent: Some("eth0".to_owned()), ..Vxlan::default() });
        let link = Link { name: "vxlan.calico".to_owned(), mtu: Some(mtu), vxlan, ..Link::default() };
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        for link in links.iter_mut().filter(|link| link.seen.is_workload()) {
            link.seen.mtu = Some(1450);
        }
        links.push(Sighted::new(link, Origin::file("links")));
        evidence
    }

    #[test]
    fn fires_for_tunnel_and_pods() {
        silent(&CHECK, &small());
        silent(&CHECK, &with_tunnel(1450));
        assert_eq!(subjects(&CHECK, &with_tunnel(1480)), ["device vxlan.calico on worker-0000"]);
        assert_eq!(subjects(&CHECK, &with_tunnel(1400)), ["node worker-0000"]);
        let finding = crate::checks::testing::only(&CHECK, &with_tunnel(1400));
        assert!(finding.cause[0].contains("web--0"), "{:?}", finding.cause);
    }
}
