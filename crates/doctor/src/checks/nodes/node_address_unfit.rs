//! Node set-up: a node's address that cannot be one, or is not the node's.

use std::net::IpAddr;

use crate::{Case, Check, Exhibit, Look, Need, NodeView, Origin, Recorded, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "node-address-unfit",
    severity: Severity::Error,
    title: "A node's address that does not fit",
    explanation: "A node is recorded with an address that others cannot use: one of the loopback or \
                  link-local range, one of a bridge or of pods, a secondary (virtual) one that moves to \
                  another machine when that takes over, or one that the node does not have at all.",
    remedy: "set IP or IP_AUTODETECTION_METHOD (kubernetes-internal-ip, cidr=…, interface=…) for the node's \
             agent",
    needs: &[&[Need::Record(model::Kind::Node)], &[Need::KubeNodes]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values() {
        for recorded in &view.addresses {
            let Some((why, severity, exhibit)) = unfit(case, view, recorded) else { continue };
            let finding = look.found(
                Subject::node(view.name),
                format!("node {} has the address {}, {why}", view.name, recorded.address()),
            );
            finding.severity(severity).seen(recorded.exhibit()).seen_all(exhibit);
            finding.explains("node-address-wrong", Subject::node(view.name));
            finding.explains("calico-node-not-ready", Subject::node(view.name));
            for session in
                case.node(view.name).and_then(|node| node.bgp.as_ref()).iter().flat_map(|bgp| &bgp.sessions)
            {
                finding.explains(
                    "bgp-session-down",
                    Subject::Session { node: view.name.to_owned(), peer: session.seen.peer },
                );
            }
            for other in case.evidence.nodes.values() {
                finding.explains(
                    "bgp-session-down",
                    Subject::Session { node: other.name.clone(), peer: recorded.address() },
                );
            }
        }
    }
}

fn unfit(
    case: &Case<'_>,
    view: &NodeView<'_>,
    recorded: &Recorded<'_>,
) -> Option<(String, Severity, Option<Exhibit>)> {
    let address = recorded.address();
    if let Some(range) = unusable_range(address) {
        return Some((format!("which is {range}"), Severity::Error, None));
    }
    let node = case.node(view.name)?;
    let held = node.kernel.addresses.as_ref()?;
    let Some(own) = held.iter().find(|held| held.seen.net.addr() == address) else {
        let why = "which none of its devices has".to_owned();
        let exhibit = Origin::probe(node.name.as_str(), "addresses").exhibit(format!("no {address}"));
        return (!node.kernel.partial.addresses).then_some((why, Severity::Error, Some(exhibit)));
    };
    let device = own.seen.device.as_str();
    let exhibit = || Some(own.exhibit(format!("{} at {device}", own.seen.net)));
    if is_virtual_device(device) {
        return Some((format!("which is {device}'s"), Severity::Error, exhibit()));
    }
    let is_only = held
        .iter()
        .filter(|other| other.seen.net.addr().is_ipv4() == address.is_ipv4())
        .filter(|other| other.seen.device == device)
        .all(|other| other.seen.is_secondary);
    (own.seen.is_secondary && !is_only).then(|| {
        ("a secondary one that may move to another machine".to_owned(), Severity::Warning, exhibit())
    })
}

fn unusable_range(address: IpAddr) -> Option<&'static str> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    match address {
        _ if address.is_loopback() => Some("a loopback address"),
        _ if is_link_local => Some("a link-local address"),
        _ if address.is_unspecified() => Some("no address"),
        _ if address.is_multicast() => Some("a multicast address"),
        _ => None,
    }
}

/// What Calico itself leaves out when it looks for an address.
fn is_virtual_device(device: &str) -> bool {
    const PREFIXES: [&str; 8] = ["docker", "cbr", "cali", "tunl", "virbr", "kube-ipvs", "cni", "vxlan."];
    PREFIXES.iter().any(|prefix| device.starts_with(prefix)) || device == "lo"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    fn with_address(address: &str) -> crate::Evidence {
        let mut evidence = small();
        evidence.records = Default::default();
        let node = &mut evidence.kube_nodes.as_mut().unwrap()[0].seen;
        node.annotations.insert("projectcalico.org/IPv4Address".to_owned(), address.to_owned());
        evidence
    }

    #[test]
    fn fires_for_ranges_that_no_other_node_can_use() {
        silent(&CHECK, &small());
        silent(&CHECK, &with_address("172.16.0.1/16"));
        assert!(only(&CHECK, &with_address("127.0.0.1/8")).summary.ends_with("which is a loopback address"));
        assert!(
            only(&CHECK, &with_address("169.254.7.7/16")).summary.ends_with("which is a link-local address")
        );
    }

    #[test]
    fn fires_for_what_the_node_does_not_have_and_for_virtual_ones() {
        let mut evidence = with_address("172.16.9.9/16");
        assert!(only(&CHECK, &evidence).summary.ends_with("which none of its devices has"));
        let addresses = evidence.node_mut("worker-0000").kernel.addresses.as_mut().unwrap();
        let mut second = addresses[0].clone();
        second.seen.net = "172.16.9.9/16".parse().unwrap();
        second.seen.is_secondary = true;
        addresses.push(second);
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Warning);
        let addresses = evidence.node_mut("worker-0000").kernel.addresses.as_mut().unwrap();
        addresses[1].seen.device = "docker0".to_owned();
        assert!(only(&CHECK, &evidence).summary.ends_with("which is docker0's"));
    }
}
