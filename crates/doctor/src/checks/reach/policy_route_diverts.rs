//! Reachable: a rule of policy routing that takes the packets of pods elsewhere.

use ipnet::IpNet;
use model::Kind;

use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Host, Look, Need};
use evidence::Sighted;
use evidence::kernel::{PolicyRule, Route};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Policy routing diverts the packets of pods",
    explanation: "A rule (ip rule) sends every packet to a table of routes before the main one, and that table has a route \
                  for addresses of pods which leads elsewhere: into a VPN (Tailscale, WireGuard, an office network), or to \
                  another NIC. Calico's routes in the main table are right and are never asked.",
    remedy: "take the pods' network out of what the VPN routes (for Tailscale: do not accept or advertise it, tailscale up \
             --accept-routes=false), or add a rule before it: ip rule add to POD-NETWORK lookup main priority 100",
    needs: &[&[Need::Routes]],
    ..Check::error(FindingCode::PolicyRouteDiverts, look)
};

/// The priority of the rule that asks the main table.
const MAIN: u32 = 32_766;

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        let rules = host.node.kernel.rules.iter().flatten();
        for rule in rules.filter(|rule| rule.seen.is_for_all && rule.seen.priority < MAIN) {
            let table = &rule.seen.table;
            if matches!(table.as_str(), "local" | "main" | "default") {
                continue;
            }
            let routes = host.node.kernel.other_routes.iter().flatten();
            for route in routes.filter(|route| route.seen.table.as_ref() == Some(table)) {
                tell(case, look, host, rule, route);
            }
        }
    }
}

fn tell(
    case: &Case<'_>,
    look: &mut Look<'_>,
    host: &Host<'_>,
    rule: &Sighted<PolicyRule>,
    route: &Sighted<Route>,
) {
    const OURS: [&str; 5] = ["cali", "vxlan", "tunl0", "wireguard.cali", "lo"];
    let Some(device) = route.seen.device.as_deref() else { return };
    let destination = route.seen.destination;
    // The way to everywhere else is often meant for all but pods, by rules of other kinds.
    if destination.prefix_len() == 0 || OURS.iter().any(|ours| device.starts_with(ours)) {
        return;
    }
    let taken = taken_of(case, host, &destination);
    if taken.is_empty() {
        return;
    }
    let (place, table) = (host.name(), &rule.seen.table);
    let summary = format!("{place} sends {destination} to {device} by table {table}: {}", listed(&taken));
    look.found(crate::Subject::route(place, destination), summary)
        .known_by("diverted by policy")
        .because(format!("rule {} asks table {table} before the main table", rule.seen.priority))
        .seen(rule.exhibit(format!("{}: from all lookup {table}", rule.seen.priority)))
        .seen(route.exhibit(format!("{destination} dev {device} in table {table}")));
}

/// What of the pods' addresses lies in a network.
fn taken_of(case: &Case<'_>, host: &Host<'_>, net: &IpNet) -> Vec<String> {
    const MOST: usize = 3;
    let elsewhere = case.all_pods().iter().filter(|pod| {
        pod.seen.node.as_ref().is_some_and(|node| node != host.name()) && !case.is_on_host_network(&pod.seen)
    });
    let inside =
        |pod: &&Sighted<evidence::Pod>| pod.seen.addresses.iter().any(|address| net.contains(address));
    let mut taken: Vec<String> =
        elsewhere.filter(inside).take(MOST).map(|pod| format!("pod {} is there", pod.seen.name)).collect();
    if case.evidence.records.of(Kind::IpPool).is_some() {
        let pools = case.pools().iter().filter(|(pool, _)| pool.is_enabled());
        let inside = pools.filter(|(pool, _)| {
            pool.cidr.to_string().parse::<IpNet>().is_ok_and(|cidr| cidr.contains(net) || net.contains(&cidr))
        });
        taken.extend(inside.map(|(pool, _)| format!("pool {} is there", pool.name)));
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{kernel_route, small};
    use evidence::{Evidence, Origin};

    fn with(destination: &str, device: &str, rule: PolicyRule) -> Evidence {
        let mut evidence = small();
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        let mut route = kernel_route(destination.parse().unwrap(), None, Some(device), "static");
        route.table = Some("52".to_owned());
        kernel.other_routes = Some(vec![Sighted::new(route, Origin::file("r"))]);
        kernel.rules = Some(vec![Sighted::new(rule, Origin::file("r"))]);
        evidence
    }

    #[test]
    fn fires_for_pods_behind_a_vpn() {
        let rule = || PolicyRule { priority: 5270, table: "52".to_owned(), is_for_all: true };
        let finding = only(&CHECK, &with("10.0.0.0/16", "tailscale0", rule()));
        assert!(
            finding.summary.starts_with("worker-0000 sends 10.0.0.0/16 to tailscale0 by table 52: "),
            "{}",
            finding.summary
        );
        silent(&CHECK, &with("100.64.0.3/32", "tailscale0", rule()));
        silent(&CHECK, &with("10.0.0.0/16", "vxlan.calico", rule()));
        silent(&CHECK, &with("10.0.0.0/16", "tailscale0", PolicyRule { is_for_all: false, ..rule() }));
        silent(&CHECK, &with("10.0.0.0/16", "tailscale0", PolicyRule { priority: 40_000, ..rule() }));
    }
}
