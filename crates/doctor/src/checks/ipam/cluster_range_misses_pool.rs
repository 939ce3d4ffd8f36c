//! Addresses: kube-proxy takes pods for strangers.

use model::Cidr;

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::SettingKind;
use model::Kind;

pub(in crate::checks) const CHECK: Check = Check {
    title: "kube-proxy's cluster range does not contain the pool",
    explanation: "kube-proxy is told which addresses are pods' (clusterCIDR), and the pool lies elsewhere. So it takes every \
                  pod for a client from outside and gives its packets to services the node's address: pods that serve see \
                  nodes as their clients, and policies that select pods do not match what comes through a service.",
    remedy: "set clusterCIDR in the ConfigMap kube-proxy to the pool's network (or to a network around all pools), then \
             restart the kube-proxy pods",
    needs: &[&[Need::Settings, Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ClusterRangeMissesPool, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut ranges: Vec<Cidr> = Vec::new();
    let mut exhibits = Vec::new();
    for setting in
        case.settings.iter().flatten().filter(|setting| setting.seen.kind == SettingKind::ClusterRange)
    {
        let networks =
            setting.seen.value.split(',').filter_map(|range| Cidr::parse_masked(range.trim()).ok());
        ranges.extend(networks);
        exhibits.push(setting.exhibit(format!("pods: {}", setting.seen.value)));
    }
    if ranges.is_empty() {
        return;
    }
    let pools: Vec<_> = case
        .pools()
        .iter()
        .filter(|(pool, _)| {
            pool.is_enabled() && ranges.iter().any(|range| range.version() == pool.cidr.version())
        })
        .collect();
    let is_known =
        |cidr: &Cidr| ranges.iter().any(|range| range.contains_cidr(cidr) || cidr.contains_cidr(range));
    // A pool for a purpose of its own may lie elsewhere.
    if pools.is_empty() || pools.iter().any(|(pool, _)| is_known(&pool.cidr)) {
        return;
    }
    ranges.sort_unstable();
    ranges.dedup();
    let summary = format!(
        "Kubernetes takes {} for the pods' network, but the pools are {}",
        listed(&ranges),
        listed(pools.iter().map(|(pool, _)| format!("{} ({})", pool.name, pool.cidr)).collect::<Vec<_>>())
    );
    let finding = look.found(Subject::Cluster, summary);
    finding.known_by("cluster range").seen_all(exhibits);
    finding.seen_all(pools.iter().map(|(pool, record)| record.exhibit(format!("cidr: {}", pool.cidr))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{set, small};

    #[test]
    fn fires_where_no_pool_is_inside() {
        silent(&CHECK, &small());
        silent(&CHECK, &set(small(), SettingKind::ClusterRange, "10.0.0.0/12"));
        silent(&CHECK, &set(small(), SettingKind::ClusterRange, "10.0.0.0/8,fd00::/48"));
        silent(&CHECK, &set(small(), SettingKind::ClusterRange, "fd00::/48"));
        let finding = only(&CHECK, &set(small(), SettingKind::ClusterRange, "10.244.0.0/16"));
        assert_eq!(
            finding.summary,
            "Kubernetes takes 10.244.0.0/16 for the pods' network, but the pools are pods (10.0.0.0/12)"
        );
    }
}
