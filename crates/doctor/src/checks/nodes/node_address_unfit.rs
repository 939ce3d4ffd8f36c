//! Node set-up: a node's address that cannot be one, or is not the node's.

use std::net::IpAddr;

use plan::address::Probe;

use crate::checks::bgp::{explain_own_sessions, explain_sessions_at};
use crate::checks::reach::explain_ways;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, NodeView, Recorded, Severity};
use evidence::node::AddressProbe;
use evidence::{Exhibit, NodeEvidence, Origin};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node is recorded with an address that others cannot use",
    explanation: "Other nodes cannot use the address in a node's record. It is a loopback or link-local \
                  address, belongs to a bridge or to pods, is a secondary (virtual) address that may move to \
                  another machine, or is not configured on the node. Or other nodes do not reply to it, \
                  although they reply to another address of the node.",
    remedy: "set IP or IP_AUTODETECTION_METHOD (kubernetes-internal-ip, cidr=…, interface=…) for the node's \
             agent",
    needs: &[&[Need::Record(model::Kind::Node)], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodeAddressUnfit, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values() {
        for recorded in &view.addresses {
            let Some((why, severity, exhibit)) = unfit(case, view, recorded) else { continue };
            let finding = look
                .found(&view.name, format!("node {} has address {}, {why}", view.name, recorded.address()));
            finding.severity(severity).seen(recorded.exhibit()).seen_all(exhibit);
            finding.explains(FindingCode::NodeAddressWrong, &view.name);
            finding.explains(FindingCode::CalicoNodeNotReady, &view.name);
            explain_ways(case, finding, &view.name);
            case.node(&view.name).into_iter().for_each(|node| explain_own_sessions(node, finding));
            explain_sessions_at(case, recorded.address(), finding);
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
    let node = case.node(&view.name)?;
    let held = node.kernel.addresses.as_ref()?;
    let Some(own) = held.iter().find(|held| held.seen.net.addr() == address) else {
        let why = "which is not configured on any of its devices".to_owned();
        let exhibit = Origin::probe(&node.name, "addresses").exhibit(format!("no {address}"));
        return (!node.kernel.partial.addresses).then_some((why, Severity::Error, Some(exhibit)));
    };
    let device = own.seen.device.as_str();
    let exhibit = || Some(own.exhibit(format!("{} on {device}", own.seen.net)));
    if is_virtual_device(device) {
        return Some((format!("which belongs to {device}"), Severity::Error, exhibit()));
    }
    let is_only = held
        .iter()
        .filter(|other| other.seen.net.addr().is_ipv4() == address.is_ipv4())
        .filter(|other| other.seen.device == device)
        .all(|other| other.seen.is_secondary);
    if own.seen.is_secondary && !is_only {
        let why = "a secondary address that may move to another machine".to_owned();
        return Some((why, Severity::Warning, exhibit()));
    }
    unanswered(node, address)
}

/// What other nodes answered to, as the node's agent tells.
fn unanswered(node: &NodeEvidence, address: IpAddr) -> Option<(String, Severity, Option<Exhibit>)> {
    node.setup.address_choices.iter().flatten().find_map(|choice| {
        let probes: Vec<Probe> = choice.seen.probes.iter().map(probe).collect();
        let unanswered = plan::address::unanswered(&probes, address)?;
        let asked: Vec<String> = unanswered.asked.iter().map(ToString::to_string).collect();
        let exhibit = choice.exhibit(format!("asked from {address}: {}; no answer", asked.join(", ")));
        let why =
            format!("to which other nodes do not reply, although they reply to its {}", unanswered.but_from);
        Some((why, Severity::Error, Some(exhibit)))
    })
}

fn probe(told: &AddressProbe) -> Probe {
    let set = |addresses: &[IpAddr]| addresses.iter().copied().collect();
    Probe { from: told.from, asked: set(&told.asked), answered: set(&told.answered) }
}

fn unusable_range(address: IpAddr) -> Option<&'static str> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    match address {
        _ if address.is_loopback() => Some("a loopback address"),
        _ if is_link_local => Some("a link-local address"),
        _ if address.is_unspecified() => Some("an unspecified address"),
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
    use evidence::Sighted;
    use evidence::node::AddressChoice;
    use evidence::sample::small;

    fn with_address(address: &str) -> evidence::Evidence {
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
        assert!(only(&CHECK, &evidence).summary.ends_with("which is not configured on any of its devices"));
        let addresses = evidence.node_mut("worker-0000").kernel.addresses.as_mut().unwrap();
        let mut second = addresses[0].clone();
        second.seen.net = "172.16.9.9/16".parse().unwrap();
        second.seen.is_secondary = true;
        addresses.push(second);
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Warning);
        let addresses = evidence.node_mut("worker-0000").kernel.addresses.as_mut().unwrap();
        addresses[1].seen.device = "docker0".to_owned();
        assert!(only(&CHECK, &evidence).summary.ends_with("which belongs to docker0"));
    }

    #[test]
    fn fires_for_what_others_do_not_answer_to() {
        let mut evidence = with_address("172.16.0.1/16");
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let probe = |from: &str, answered: &[&str]| AddressProbe {
            from: ip(from),
            asked: vec![ip("172.16.0.2"), ip("172.16.0.3")],
            answered: answered.iter().map(|text| ip(text)).collect(),
        };
        let mut told = |probes: Vec<AddressProbe>| {
            let choice = AddressChoice { probes, ..AddressChoice::default() };
            let sighted = Sighted::new(choice, Origin::probe("worker-0000", "address"));
            evidence.node_mut("worker-0000").setup.address_choices = Some(vec![sighted]);
            evidence.clone()
        };
        silent(&CHECK, &told(vec![probe("172.16.0.1", &[]), probe("10.9.0.1", &[])]));
        silent(&CHECK, &told(vec![probe("172.16.0.1", &["172.16.0.3"]), probe("10.9.0.1", &["172.16.0.2"])]));
        let finding = only(&CHECK, &told(vec![probe("172.16.0.1", &[]), probe("10.9.0.1", &["172.16.0.2"])]));
        assert_eq!(
            finding.summary,
            "node worker-0000 has address 172.16.0.1, to which other nodes do not reply, although they reply \
             to its 10.9.0.1"
        );
        let shown = &finding.evidence.last().unwrap().text;
        assert_eq!(shown, "asked from 172.16.0.1: 172.16.0.2, 172.16.0.3; no answer");
    }
}
