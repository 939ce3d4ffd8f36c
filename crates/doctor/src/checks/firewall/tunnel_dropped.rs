//! Reachable: a firewall that lets no packet of the tunnel through.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Kind, NodeName};
use plan::between::{Encapsulation, PoolView, Via};

use super::ruleset::Ruleset;
use super::walk::{self, Dropper, Packet, Transport};
use super::{Spared, advise};
use crate::checks::reach::packets_lost::explain_losses;
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Host, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Firewall drops tunnel traffic",
    explanation: "Pools are reached through VXLAN, but a node's firewall drops the tunnel's packets to or \
                  from other nodes (UDP, port 4789 unless vxlanPort is set). The agent did not write the \
                  rules that drop them (nftables, or iptables on top of it). Devices, routes and entries \
                  all look correct, but no traffic passes.",
    remedy: "use the program that created the chain (iptables or nft; the finding shows the command) to \
             accept the tunnel's packets before they are dropped, or to delete the rule that drops them. \
             Save the rules so that they survive a reboot",
    needs: &[&[Need::Firewall, Need::Ipam, Need::Routes]],
    ..Check::error(FindingCode::TunnelDropped, look)
};

/// How many other nodes are tried.
const NODES_MAX: usize = 64;

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let pools = case.evidence.records.all(Kind::IpPool);
    let is_tunnelled = |pool: PoolView| matches!(pool.encapsulation, Encapsulation::Vxlan(_));
    if !pools.iter().any(|pool| PoolView::read(&pool.seen).is_some_and(is_tunnelled)) {
        return;
    }
    let names = names(case);
    for host in case.hosts() {
        let Some(firewall) = &host.node.firewall else { continue };
        let lost = Lost::of(case, host, &names).unwrap_or_default();
        if lost.dropped_by.is_empty() {
            continue;
        }
        let name = host.name();
        let ways = [
            (!lost.to.is_empty()).then(|| format!("to {}", listed(&lost.to))),
            (!lost.from.is_empty()).then(|| format!("from {}", listed(&lost.from))),
        ];
        let ways: Vec<String> = ways.into_iter().flatten().collect();
        let summary =
            format!("{name} drops the tunnel's packets (UDP port {}) {}", lost.port, ways.join(" and "));
        let finding = look.found(name, summary);
        finding
            .known_by("tunnel")
            .seen_all(lost.dropped_by.iter().map(|dropper| firewall.exhibit(dropper.to_string())));
        advise(finding, &lost.dropped_by, &lost.spared());
        explain_losses(case, finding, name);
    }
}

/// The tunnel's packets that do not get through.
#[derive(Default)]
struct Lost {
    port: u16,
    /// Other nodes.
    to: BTreeSet<String>,
    from: BTreeSet<String>,
    dropped_by: BTreeSet<Dropper>,
}

impl Lost {
    fn of<'e>(case: &Case<'e>, host: &Host<'e>, names: &Names<'_>) -> Option<Lost> {
        let firewall = Ruleset::of_others(&host.node.firewall.as_ref()?.seen);
        if firewall.is_empty() {
            return None;
        }
        let wanted = case.wanted_on(host)?;
        let mut lost = Lost { port: wanted.settings().vxlan_port, ..Lost::default() };
        let transport = Some(Transport { protocol: "udp", to_port: lost.port });
        let ends = wanted.forwards().map(|((version, _), node)| (version, node));
        for (version, node) in ends.take(NODES_MAX) {
            let own = wanted.vxlan(version)?.local;
            let card = wanted.device_name(version, Via::Uplink);
            let leaving = Packet { from: own, to: node, incoming: None, outgoing: card, transport };
            let fate = walk::fate_of_leaving(&firewall, &leaving);
            if fate.is_dropped() {
                lost.to.insert(name_of(names, node));
                lost.dropped_by.extend(fate.dropped_by);
            }
            let arriving = Packet { from: node, to: own, incoming: card, outgoing: None, transport };
            let fate = walk::fate_of_arriving(&firewall, &arriving);
            if fate.is_dropped() {
                lost.from.insert(name_of(names, node));
                lost.dropped_by.extend(fate.dropped_by);
            }
        }
        Some(lost)
    }

    fn spared(&self) -> [Spared; 1] {
        let port = self.port.to_string();
        [Spared { iptables: ("-p udp --dport", port.clone()), nft: ("udp dport", port) }]
    }
}

/// Nodes by the addresses to which the tunnel leads.
type Names<'c> = BTreeMap<IpAddr, &'c NodeName>;

fn names<'c>(case: &'c Case<'_>) -> Names<'c> {
    let mut names = Names::new();
    for view in case.node_views().values() {
        for recorded in [true, false].into_iter().filter_map(|is_ipv4| view.address(is_ipv4)) {
            names.entry(recorded.address()).or_insert(&view.name);
        }
    }
    names
}

fn name_of(names: &Names<'_>, address: IpAddr) -> String {
    names.get(&address).map_or_else(|| address.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{advised, only, silent};
    use evidence::Evidence;
    use evidence::firewall::Firewall;
    use evidence::sample::{small, tunnelled};

    /// A chain of somebody else's on this hook with this rule, beside our own.
    fn with(
        evidence: &Evidence,
        (family, table, chain): (&str, &str, &str),
        hook: &str,
        expr: Value,
    ) -> Evidence {
        let mut evidence = evidence.clone();
        let ruleset = json!({"nftables": [
            {"chain": {"family": family, "table": table, "name": chain, "type": "filter", "hook": hook, "prio": 0}},
            {"rule": {"family": family, "table": table, "chain": chain, "handle": 7, "expr": expr}},
        ]});
        let chains = Firewall::read(&ruleset).unwrap().chains;
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen.chains.extend(chains);
        evidence
    }

    fn port(number: u16) -> Value {
        json!([{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": number}},
               {"counter": {"packets": 0}}, {"drop": null}])
    }

    #[test]
    fn fires_either_way_and_advises_the_program_that_made_the_chain() {
        let healthy = tunnelled("vxlanMode", "Always");
        silent(&CHECK, &healthy);
        let finding = only(&CHECK, &with(&healthy, ("inet", "hard", "in"), "input", port(4789)));
        assert_eq!(
            finding.summary,
            "worker-0001 drops the tunnel's packets (UDP port 4789) from worker-0000, worker-0002"
        );
        assert!(finding.remedy.starts_with("find out what created the rule"), "{}", finding.remedy);
        assert_eq!(advised(&finding), ["nft delete rule inet hard in handle 7"]);
        assert_eq!(finding.evidence[0].text, "chain in of table inet hard: rule 7");
        let finding = only(&CHECK, &with(&healthy, ("ip", "filter", "OUTPUT"), "output", port(4789)));
        assert!(finding.summary.contains(" to worker-0000, worker-0002"), "{}", finding.summary);
        assert!(finding.remedy.starts_with("accept the packets"), "{}", finding.remedy);
        assert_eq!(advised(&finding), ["iptables -I OUTPUT -p udp --dport 4789 -j ACCEPT"]);
        // In the chain that drops them: an accept further on is too late.
        let finding = only(&CHECK, &with(&healthy, ("ip", "raw", "PREROUTING"), "prerouting", port(4789)));
        assert_eq!(advised(&finding), ["iptables -t raw -I PREROUTING -p udp --dport 4789 -j ACCEPT"]);
    }

    #[test]
    fn asks_for_the_port_that_is_configured_and_passes_over_what_is_ours_or_not_certain() {
        let healthy = tunnelled("vxlanMode", "Always");
        let mut moved = with(&healthy, ("inet", "hard", "in"), "input", port(4789));
        let spec = json!({"vxlanPort": 8472});
        moved.records.add(evidence::sample::record(model::Kind::FelixConfiguration, "default", spec));
        silent(&CHECK, &moved);
        only(&CHECK, &with(&moved, ("inet", "hard", "again"), "input", port(8472)));
        silent(&CHECK, &with(&healthy, ("inet", "plumb", "input"), "input", port(4789)));
        let limited = json!([{"limit": {"rate": 1}}, {"drop": null}]);
        silent(&CHECK, &with(&healthy, ("inet", "hard", "in"), "input", limited));
        silent(&CHECK, &with(&small(), ("inet", "hard", "in"), "input", port(4789)));
    }
}
