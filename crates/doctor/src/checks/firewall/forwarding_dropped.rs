//! Invariant 7: a firewall that lets no packet of pods through.

use std::collections::BTreeSet;

use super::ruleset::Ruleset;
use super::walk::{self, Dropper, Packet, Transport};
use super::{Remotes, Spared, advise, locals, way_out};
use crate::checks::reach::packets_lost::explain_losses;
use crate::{Case, Check, FindingCode, Host, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Firewall drops pod traffic",
    explanation: "A node's firewall rules (nftables, or iptables on top of it) drop every new connection \
                  between its pods and pods on other nodes. Docker sets the policy of the FORWARD chain to \
                  drop when it starts. Hardening scripts and firewalld can do the same. Addresses, routes \
                  and sessions all look correct, but no traffic passes.",
    remedy: "use the program that created the chain (iptables or nft; the finding shows the command) to \
             accept packets from and to pod devices before they are dropped. Save the rules so that they \
             survive a reboot",
    needs: &[&[Need::Firewall, Need::Endpoints], &[Need::Firewall, Need::Pods]],
    ..Check::error(FindingCode::ForwardingDropped, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let remotes = Remotes::of(case);
    for host in case.hosts() {
        let Some(firewall) = &host.node.firewall else { continue };
        // What the agent's own rules drop is meant.
        let of_others = Ruleset::of_others(&firewall.seen);
        let mut dropped_by = BTreeSet::new();
        for way in [(true, true), (true, false), (false, true), (false, false)] {
            dropped_by.extend(who_drops_all(&remotes, host, &of_others, way).into_iter().flatten());
        }
        if case.evidence.endpoints.is_none() {
            dropped_by.extend(who_drops_between(case, host, &of_others).into_iter().flatten());
        }
        if dropped_by.is_empty() {
            continue;
        }
        let name = host.name();
        let is_firewalld = dropped_by.iter().any(|dropper| dropper.table == "firewalld");
        let summary = match is_firewalld {
            true => format!("firewalld on {name} rejects packets between its pods and other nodes"),
            false => format!("{name} drops packets between its pods and other nodes"),
        };
        let finding = look.found(name, summary);
        finding.known_by("forwarding");
        advise(finding, &dropped_by, &spared());
        if is_firewalld {
            finding.commands.clear();
            finding.remedy(
                "put the pods' network into firewalld's trusted zone (firewall-cmd --permanent --zone=trusted \
                 --add-source=POD-NETWORK, the same for the services' network, then firewall-cmd --reload), or \
                 switch firewalld off on nodes",
            );
        }
        finding.seen_all(dropped_by.iter().map(|place| firewall.exhibit(place.to_string())));
        explain_losses(case, finding, name);
    }
}

/// What becomes of packets between two pods of a node, where no endpoint tells their devices. `None`: they get through, or may.
fn who_drops_between(case: &Case<'_>, host: &Host<'_>, firewall: &Ruleset<'_>) -> Option<BTreeSet<Dropper>> {
    let own = case.pods_on(host.name()).filter(|pod| !case.is_on_host_network(&pod.seen));
    let mut addresses =
        own.flat_map(|pod| pod.seen.addresses.iter().copied()).filter(std::net::IpAddr::is_ipv4);
    let (from, to) = (addresses.next()?, addresses.next()?);
    // Pings are often let through where nothing else is.
    let transport = Some(Transport { protocol: "tcp", to_port: 80 });
    let packet = Packet { from, to, incoming: Some("cali0"), outgoing: Some("cali1"), transport };
    let fate = walk::fate_of(firewall, &packet);
    fate.is_dropped().then_some(fate.dropped_by)
}

fn spared() -> [Spared; 2] {
    [("-i", "iifname"), ("-o", "oifname")].map(|(iptables, nft)| Spared {
        iptables: (iptables, "cali+".to_owned()),
        nft: (nft, "cali*".to_owned()),
    })
}

/// Where all packets end: `None` if one gets through, or may, or there is none to try.
fn who_drops_all(
    remotes: &Remotes<'_>,
    host: &Host<'_>,
    firewall: &Ruleset<'_>,
    (is_ipv4, is_out): (bool, bool),
) -> Option<BTreeSet<Dropper>> {
    let remote = remotes.seen_from(host, is_ipv4)?;
    let uplink = way_out(host, remote);
    let mut dropped_by = BTreeSet::new();
    for local in locals(host, is_ipv4) {
        let (here, there) = ((local.address, local.device), (remote, uplink));
        let ((from, incoming), (to, outgoing)) = if is_out { (here, there) } else { (there, here) };
        let packet = Packet { from, to, incoming, outgoing, transport: None };
        let fate = walk::fate_of(firewall, &packet);
        if !fate.is_dropped() {
            return None;
        }
        dropped_by.extend(fate.dropped_by);
    }
    Some(dropped_by)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{advised, only, silent};
    use evidence::Evidence;
    use evidence::firewall::Firewall;
    use evidence::sample::small;

    /// What Docker leaves behind, and a rule of somebody else's.
    fn with_docker(rule: Value) -> Evidence {
        let of = |name: &str| json!({"family": "ip", "table": "filter", "chain": name, "handle": 4});
        let with = |mut rule: Value, expr: Value| {
            rule["expr"] = expr;
            json!({"rule": rule})
        };
        let docker = json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "docker0"}});
        let ruleset = json!({"nftables": [
            {"chain": {"family": "ip", "table": "filter", "name": "DOCKER-USER"}},
            {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "type": "filter", "hook": "forward", "prio": 0,
                       "policy": "drop"}},
            with(of("FORWARD"), json!([{"jump": {"target": "DOCKER-USER"}}])),
            with(of("FORWARD"), json!([docker, {"accept": null}])),
            with(of("DOCKER-USER"), json!([{"counter": {"packets": 0}}, {"return": null}])),
            with(of("FORWARD"), rule),
        ]});
        let mut evidence = small();
        let firewall = evidence.node_mut("worker-0001").firewall.as_mut().unwrap();
        firewall.seen = Firewall::read(&ruleset).unwrap();
        evidence
    }

    #[test]
    fn fires_for_the_policy_that_docker_sets() {
        let finding = only(&CHECK, &with_docker(json!([{"counter": {}}])));
        assert_eq!(finding.subject.to_string(), "node worker-0001");
        let shown: Vec<&str> = finding.evidence.iter().map(|exhibit| exhibit.text.as_str()).collect();
        assert_eq!(shown, ["chain FORWARD of table ip filter: policy drop"]);
        assert_eq!(
            advised(&finding),
            ["iptables -I FORWARD -i cali+ -j ACCEPT", "iptables -I FORWARD -o cali+ -j ACCEPT"]
        );
    }

    /// Neither our own rules nor those that concern other packets are shown, and a chain of nft's is not iptables' to change.
    #[test]
    fn the_chain_that_drops_is_named_and_advice_fits_its_program() {
        let mut evidence = small();
        let port = json!({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 4789}});
        let pods = json!({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "cali*"}});
        let ruleset = json!({"nftables": [
            {"chain": {"family": "inet", "table": "plumb", "name": "forward", "type": "filter", "hook": "forward", "prio": 0}},
            {"rule": {"family": "inet", "table": "plumb", "chain": "forward", "handle": 9, "expr": [pods, port, {"drop": null}]}},
            {"rule": {"family": "inet", "table": "plumb", "chain": "forward", "handle": 10, "expr": [pods, {"drop": null}]}},
            {"chain": {"family": "inet", "table": "hard", "name": "pass", "type": "filter", "hook": "forward", "prio": 5}},
            {"rule": {"family": "inet", "table": "hard", "chain": "pass", "handle": 3, "expr": [port, {"drop": null}]}},
            {"rule": {"family": "inet", "table": "hard", "chain": "pass", "handle": 4, "expr": [{"drop": null}]}},
        ]});
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen = Firewall::read(&ruleset).unwrap();
        let finding = only(&CHECK, &evidence);
        let shown: Vec<&str> = finding.evidence.iter().map(|exhibit| exhibit.text.as_str()).collect();
        assert_eq!(shown, ["chain pass of table inet hard: rule 4"]);
        assert_eq!(advised(&finding), ["nft delete rule inet hard pass handle 4"]);
        let policy = json!({"nftables": [
            {"chain": {"family": "ip", "table": "hard", "name": "pass", "type": "filter", "hook": "forward", "prio": 5, "policy": "drop"}},
        ]});
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen = Firewall::read(&policy).unwrap();
        assert_eq!(
            advised(&only(&CHECK, &evidence)),
            [
                "nft insert rule ip hard pass iifname 'cali*' accept",
                "nft insert rule ip hard pass oifname 'cali*' accept"
            ]
        );
    }

    #[test]
    fn stays_silent_where_pods_are_accepted_or_may_be() {
        let device =
            |key: &str| json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": "cali*"}});
        // One way is not enough: the answers of the other are established, its first packets are new.
        only(&CHECK, &with_docker(json!([device("iifname"), {"accept": null}])));
        silent(&CHECK, &with_docker(json!([{"accept": null}])));
        silent(&CHECK, &with_docker(json!([{"xt": {"type": "match", "name": "set"}}, {"accept": null}])));
        silent(&CHECK, &small());
        // A rule for one pod is somebody's will.
        let mut evidence = with_docker(json!([{"accept": null}]));
        let pod = evidence.endpoints.as_ref().unwrap()[4].seen.addresses[0];
        let firewall = &mut evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen;
        let quarantine = json!({"nftables": [
            {"chain": {"family": "ip", "table": "q", "name": "c", "type": "filter", "hook": "forward", "prio": -5}},
            {"rule": {"family": "ip", "table": "q", "chain": "c", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": pod.to_string()}},
                {"drop": null}]}},
        ]});
        firewall.chains.extend(Firewall::read(&quarantine).unwrap().chains);
        silent(&CHECK, &evidence);
    }
}
