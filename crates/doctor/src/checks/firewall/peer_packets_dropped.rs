//! Reachable: a firewall that keeps BGP from a node.

use std::collections::BTreeSet;

use super::ruleset::Ruleset;
use super::walk::{self, Dropper, Packet, Transport};
use super::{Spared, advise, way_out};
use crate::checks::bgp::needs_bgp;
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Host, Look, Need, Subject};
use evidence::firewall::Match;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Firewall drops BGP between nodes",
    explanation: "A node's firewall drops the first packets of BGP sessions (TCP port 179) from other nodes. A session comes \
                  up only if this node begins it and the other lets it in. ufw, firewalld and hardening scripts do so \
                  until they are told of the port.",
    remedy: "accept TCP port 179 from the other nodes in the chain that the finding shows, and save the rules so that they \
             survive a reboot",
    needs: &[&[Need::Firewall, Need::KubeNodes], &[Need::Firewall, Need::Record(model::Kind::Node)]],
    ..Check::error(FindingCode::PeerPacketsDropped, look)
};

/// How many other nodes are tried.
const NODES_MAX: usize = 64;
const BGP: Transport = Transport { protocol: "tcp", to_port: 179 };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let has_sessions =
        case.all_nodes().any(|node| node.bgp.as_ref().is_some_and(|bgp| !bgp.sessions.is_empty()));
    let has_pools = case.pools().iter().any(|(pool, _)| pool.is_enabled() && !pool.has_vxlan());
    if !needs_bgp(case) || !(has_sessions || has_pools) {
        return;
    }
    for host in case.hosts() {
        let Some(firewall) = &host.node.firewall else { continue };
        let (from, dropped_by) = dropped(case, host);
        if from.is_empty() || is_established(host) {
            continue;
        }
        let name = host.name();
        let summary = format!("{name} drops BGP (TCP port 179) from {}", listed(&from));
        let finding = look.found(name, summary);
        finding
            .known_by("bgp")
            .seen_all(dropped_by.iter().map(|dropper| firewall.exhibit(dropper.to_string())));
        let port = BGP.to_port.to_string();
        advise(
            finding,
            &dropped_by,
            &[Spared { iptables: ("-p tcp --dport", port.clone()), nft: ("tcp dport", port) }],
        );
        for view in case.node_views().values() {
            for address in view.addresses.iter().map(|recorded| recorded.address()).chain(view.internal_ips())
            {
                finding.explains(FindingCode::BgpSessionDown, Subject::session(name, address));
                if view.name == *name {
                    for other in case.evidence.nodes.keys() {
                        finding.explains(FindingCode::BgpSessionDown, Subject::session(other, address));
                    }
                }
            }
        }
    }
}

/// It works, whoever begins.
fn is_established(host: &Host<'_>) -> bool {
    host.node.bgp.as_ref().is_some_and(|bgp| bgp.sessions.iter().any(|session| session.seen.is_established()))
}

/// Other nodes whose packets do not get in, and what drops them.
fn dropped(case: &Case<'_>, host: &Host<'_>) -> (BTreeSet<String>, BTreeSet<Dropper>) {
    let (mut from, mut dropped_by) = (BTreeSet::new(), BTreeSet::new());
    let Some(firewall) = host.node.firewall.as_ref() else { return (from, dropped_by) };
    let firewall = Ruleset::of_others(&firewall.seen);
    let own = case.node_view(host.name()).and_then(|view| view.internal_ips().next());
    let Some(own) = own.filter(|_| !firewall.is_empty()) else { return (from, dropped_by) };
    let others = case.node_views().values().filter(|view| view.name != *host.name());
    for view in others.take(NODES_MAX) {
        let Some(other) = view.internal_ips().find(|address| address.is_ipv4() == own.is_ipv4()) else {
            continue;
        };
        let incoming = way_out(host, other).or_else(|| names_no_card(&firewall).then_some("eth0"));
        let packet = Packet { from: other, to: own, incoming, outgoing: None, transport: Some(BGP) };
        let fate = walk::fate_of_arriving(&firewall, &packet);
        if fate.is_dropped() {
            from.insert(view.name.to_string());
            dropped_by.extend(fate.dropped_by);
        }
    }
    (from, dropped_by)
}

/// Whether it is all the same by which NIC a packet comes: then it need not be known.
fn names_no_card(firewall: &Ruleset<'_>) -> bool {
    let is_inner = |name: &String| name == "lo" || name.starts_with("cali") || name.starts_with("docker");
    firewall.chains().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.matches).all(|found| match found {
        Match::Device { is_not, names, .. } => !is_not && names.iter().all(is_inner),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::firewall::Firewall;
    use evidence::sample::small;

    fn with(port: u16) -> evidence::Evidence {
        let accepted = json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": port}});
        let ruleset = json!({"nftables": [
            {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
            {"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 3, "expr": [accepted, {"accept": null}]}},
        ]});
        let mut evidence = small();
        for node in evidence.nodes.values_mut() {
            node.bgp = None;
        }
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen = Firewall::read(&ruleset).unwrap();
        evidence
    }

    #[test]
    fn fires_unless_the_port_is_open() {
        silent(&CHECK, &small());
        silent(&CHECK, &with(179));
        let finding = only(&CHECK, &with(22));
        assert_eq!(finding.summary, "worker-0001 drops BGP (TCP port 179) from worker-0000, worker-0002");
    }
}
