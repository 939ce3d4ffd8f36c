//! Addresses: a pool for pods that shares addresses with services.

use std::collections::BTreeSet;

use model::{Cidr, Kind};

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::{Exhibit, SettingKind};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pool and service range overlap",
    explanation: "The range from which Kubernetes takes the addresses of services shares addresses with a pool for pods. A \
                  pod may get the address of a service, or the other way round. kube-proxy then sends what is meant for \
                  the pod to the service's pods, and NAT for services and for pods contradict each other.",
    remedy: "create a pool that lies outside the service range, disable this one, recreate the pods, then delete it",
    needs: &[&[Need::Settings, Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ServiceRangeOverlaps, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut ranges: Vec<(Cidr, Exhibit)> = Vec::new();
    let mut services: Vec<(Cidr, String, Exhibit)> = Vec::new();
    for setting in case.settings.iter().flatten() {
        let value = &setting.seen.value;
        match setting.seen.kind {
            SettingKind::ServiceRange => {
                let networks = value.split(',').filter_map(|range| Cidr::parse_masked(range.trim()).ok());
                ranges.extend(networks.map(|range| (range, setting.exhibit(format!("services: {range}")))));
            }
            SettingKind::ServiceAddress => {
                let (address, name) = value.split_once(' ').unwrap_or((value, ""));
                if let Ok(address) = address.parse() {
                    services.push((Cidr::single(address), name.to_owned(), setting.exhibit(value.clone())));
                }
            }
            _ => {}
        }
    }
    let mut told: BTreeSet<(Cidr, Cidr)> = BTreeSet::new();
    for (pool, record) in case.pools().iter().filter(|(pool, _)| pool.is_enabled()) {
        for (range, exhibit) in &ranges {
            if !overlap(range, &pool.cidr) || !told.insert((*range, pool.cidr)) {
                continue;
            }
            let summary = format!("pool {} ({}) overlaps the service range {range}", pool.name, pool.cidr);
            look.found(record.seen.key(), summary)
                .seen(record.exhibit(format!("cidr: {}", pool.cidr)))
                .seen(exhibit.clone());
        }
        let inside: Vec<&(Cidr, String, Exhibit)> =
            services.iter().filter(|(address, _, _)| pool.cidr.contains_cidr(address)).collect();
        let is_told = told.iter().any(|(_, cidr)| *cidr == pool.cidr);
        if !inside.is_empty() && !is_told {
            let names = inside.iter().map(|(address, name, _)| format!("{name} ({})", address.network()));
            let summary = format!(
                "pool {} ({}) contains the addresses of services: {}",
                pool.name,
                pool.cidr,
                listed(names.collect::<BTreeSet<_>>())
            );
            let finding = look.found(record.seen.key(), summary);
            finding.known_by("services").seen(record.exhibit(format!("cidr: {}", pool.cidr)));
            finding.seen_all(inside.iter().take(5).map(|(_, _, exhibit)| exhibit.clone()));
        }
    }
}

fn overlap(one: &Cidr, other: &Cidr) -> bool {
    one.contains_cidr(other) || other.contains_cidr(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{set, small};

    #[test]
    fn fires_for_ranges_and_for_services_inside_a_pool() {
        silent(&CHECK, &set(small(), SettingKind::ServiceRange, "10.96.0.0/12"));
        let finding = only(&CHECK, &set(small(), SettingKind::ServiceRange, "10.0.0.0/16,fd00::/112"));
        assert_eq!(finding.summary, "pool pods (10.0.0.0/12) overlaps the service range 10.0.0.0/16");
        silent(&CHECK, &set(small(), SettingKind::ServiceAddress, "10.96.0.10 kube-system/kube-dns"));
        let finding =
            only(&CHECK, &set(small(), SettingKind::ServiceAddress, "10.0.7.10 kube-system/kube-dns"));
        assert!(
            finding.summary.ends_with("services: kube-system/kube-dns (10.0.7.10)"),
            "{}",
            finding.summary
        );
    }
}
