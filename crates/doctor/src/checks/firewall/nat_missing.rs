//! What a pool asks for and a node does not do: packets leave the cluster with the addresses of pods.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::ipam::Pool;
use model::{Cidr, Kind, Resource};
use serde_json::Value;

use super::ruleset::Ruleset;
use super::walk::{self, Packet};
use super::{locals, way_out};
use crate::checks::networks::Networks;
use crate::{Case, Check, FindingCode, Host, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod traffic leaves the cluster without NAT",
    explanation: "A pool has natOutgoing, but a node with pods from that pool has no rule that masquerades \
                  (SNAT) their traffic when it leaves the cluster. Hosts outside have no route back to a \
                  pod, so these pods can reach nothing outside. The rules were flushed (nft flush ruleset, a \
                  firewall reload), or nft is missing.",
    remedy: "check that nft is installed, and find out what flushes the rules. The node's agent loads its \
             table again within a minute, or when it is restarted",
    needs: &[&[Need::Firewall, Need::Endpoints, Need::Record(Kind::IpPool)]],
    ..Check::error(FindingCode::NatMissing, look)
};

/// Nobody's: only the default route leads there.
const OUTSIDE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
const OUTSIDE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if uses_bpf(case) {
        return;
    }
    let wants_it = |record: &Resource| record.spec("natOutgoing") == Some(&Value::Bool(true));
    let pools: Vec<_> = case.pools().iter().filter(|(_, record)| wants_it(&record.seen)).collect();
    let by_network = Networks::new(pools.iter().map(|(pool, _)| pool.cidr));
    for host in case.hosts().iter().filter(|host| host.has_agent()) {
        let Some(firewall) = &host.node.firewall else { continue };
        let rules = Ruleset::of(&firewall.seen);
        let locals = [true, false].into_iter().flat_map(|is_ipv4| locals(host, is_ipv4));
        let places: BTreeSet<usize> =
            locals.flat_map(|local| by_network.around(&Cidr::single(local.address))).collect();
        let of_locals = places.into_iter().filter_map(|place| pools.get(place));
        for (pool, record) in of_locals.filter(|(pool, _)| keeps_sources(host, pool, &rules)) {
            let summary =
                format!("{} lets packets of pool {} leave the cluster without NAT", host.name(), pool.name);
            look.found(host.name(), summary)
                .known_by(&pool.name)
                .seen(firewall.exhibit("no rule masquerades packets that leave the cluster"))
                .seen(record.exhibit(format!("pool {} has natOutgoing", pool.name)));
        }
    }
}

/// Calico's eBPF does it by itself, and nothing in nftables tells.
fn uses_bpf(case: &Case<'_>) -> bool {
    let configurations = case.evidence.records.all(Kind::FelixConfiguration);
    configurations.iter().any(|felix| felix.seen.spec("bpfEnabled") == Some(&Value::Bool(true)))
}

/// For certain, for every pod of the pool, and there is one. The old iptables may do what is not seen here.
fn keeps_sources(host: &Host<'_>, pool: &Pool, rules: &Ruleset<'_>) -> bool {
    let has_legacy_rules = host.node.firewall.as_ref().is_some_and(|sighted| sighted.seen.has_legacy_rules);
    let is_ipv4 = pool.cidr.network().is_ipv4();
    let to = if is_ipv4 { OUTSIDE_V4 } else { OUTSIDE_V6 };
    let outgoing = way_out(host, to);
    let mut of_pool =
        locals(host, is_ipv4).into_iter().filter(|local| pool.cidr.contains(local.address)).peekable();
    // Where nothing leads outside, nothing leaves; and what is dropped does not either.
    if has_legacy_rules || outgoing.is_none() || of_pool.peek().is_none() {
        return false;
    }
    of_pool.all(|local| {
        let packet = Packet { from: local.address, to, incoming: local.device, outgoing, transport: None };
        let fate = walk::fate_of(rules, &packet);
        fate.may_pass && !fate.may_get_new_source
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::firewall::Firewall;
    use evidence::sample::{record, small};

    fn flushed() -> Evidence {
        let mut evidence = small();
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen = Firewall::default();
        evidence
    }

    #[test]
    fn fires_where_the_rules_were_flushed() {
        silent(&CHECK, &small());
        let finding = only(&CHECK, &flushed());
        assert_eq!(finding.subject.to_string(), "node worker-0001");
        assert!(finding.summary.contains("pool pods"), "{}", finding.summary);
    }

    #[test]
    fn stays_silent_where_somebody_else_may_do_it() {
        let mut evidence = flushed();
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen.has_legacy_rules = true;
        silent(&CHECK, &evidence);
        let mut evidence = flushed();
        evidence.node_mut("worker-0001").attachments = None;
        silent(&CHECK, &evidence);
        let mut evidence = flushed();
        evidence.records.add(record(Kind::FelixConfiguration, "default", json!({"bpfEnabled": true})));
        silent(&CHECK, &evidence);
        let mut evidence = flushed();
        let masquerade = json!({"nftables": [
            {"chain": {"family": "ip", "table": "nat", "name": "POSTROUTING", "type": "nat", "hook": "postrouting", "prio": 100}},
            {"rule": {"family": "ip", "table": "nat", "chain": "POSTROUTING", "expr": [
                {"xt": {"type": "match", "name": "set"}}, {"xt": {"type": "target", "name": "MASQUERADE"}}]}},
        ]});
        evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen =
            Firewall::read(&masquerade).unwrap();
        silent(&CHECK, &evidence);
        let mut evidence = flushed();
        let routes = evidence.node_mut("worker-0001").kernel.routes.as_mut().unwrap();
        routes.retain(|route| route.seen.destination.prefix_len() > 0);
        silent(&CHECK, &evidence);
    }
}
