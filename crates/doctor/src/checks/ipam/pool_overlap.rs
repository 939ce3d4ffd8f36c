//! Finds pools that share addresses with other pools. Disabled pools count: their blocks still hold addresses.

use model::{Cidr, Kind, Resource};
use serde_json::Value;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::{Exhibit, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "IP pools overlap",
    explanation: "Two IP pools contain the same addresses. Which pool a block belongs to, and so its \
                  encapsulation, NAT and block size, depends on which pool is found first. Calico refuses to \
                  create such pools, so one of them was written to the store directly, bypassing validation.",
    remedy: "keep the common range in one pool: disable the other pool, recreate its pods, then delete it",
    needs: &[&[Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::PoolOverlap, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut pools = readable_pools(case.evidence.records.all(Kind::IpPool), look);
    // A network is either inside another or apart from it. In this order whatever encloses a pool comes before
    // it, and whatever ended before it will enclose nothing that follows.
    pools.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
    let mut enclosing: Vec<Pool<'_>> = Vec::new();
    for pool in pools {
        enclosing.retain(|outer| outer.cidr.contains_cidr(&pool.cidr));
        if !enclosing.is_empty() {
            tell(look, &pool, &enclosing);
        }
        enclosing.push(pool);
    }
}

struct Pool<'a> {
    cidr: Cidr,
    record: &'a Sighted<Resource>,
}

fn sort_key<'a>(pool: &Pool<'a>) -> (Cidr, &'a str) {
    (pool.cidr, &pool.record.seen.metadata.name)
}

fn readable_pools<'a>(records: &'a [Sighted<Resource>], look: &mut Look<'_>) -> Vec<Pool<'a>> {
    let mut pools = Vec::new();
    for record in records {
        let cidr = record.seen.spec("cidr").unwrap_or(&Value::Null);
        match cidr.as_str().map(Cidr::parse_masked) {
            Some(Ok(cidr)) => pools.push(Pool { cidr, record }),
            _ => look.skipped(record.seen.key(), format_args!("cidr {cidr}")),
        }
    }
    pools
}

fn tell(look: &mut Look<'_>, inner: &Pool<'_>, outer: &[Pool<'_>]) {
    let name = &inner.record.seen.metadata.name;
    let outer_names: Vec<String> =
        outer.iter().map(|pool| format!("{} ({})", pool.record.seen.metadata.name, pool.cidr)).collect();
    let summary = format!("pool {name} ({}) lies inside {}", inner.cidr, outer_names.join(" and "));
    look.found(inner.record.seen.key(), summary)
        .because("a block in the common part belongs to whichever pool is found first")
        .seen_all(std::iter::once(inner).chain(outer).map(exhibit));
}

fn exhibit(pool: &Pool<'_>) -> Exhibit {
    pool.record.exhibit(described(pool))
}

fn described(pool: &Pool<'_>) -> String {
    let disabled = pool.record.seen.spec("disabled").and_then(Value::as_bool).unwrap_or(false);
    format!("{}: cidr {}{}", pool.record.seen.key(), pool.cidr, if disabled { ", disabled" } else { "" })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use evidence::Evidence;

    fn pool(name: &str, spec: Value) -> Sighted<Resource> {
        let mut resource = Resource::new(Kind::IpPool, name);
        resource.body.insert("spec".to_owned(), spec);
        Sighted::in_store(resource)
    }

    fn look_at(pools: Vec<Sighted<Resource>>) -> Look<'static> {
        let mut evidence = Evidence::default();
        pools.into_iter().for_each(|pool| evidence.records.add(pool));
        CHECK.alone(&evidence)
    }

    /// Pools are named by their networks; the summaries come in the order of the networks.
    fn check(cidrs: &[&str], expected: &[&str]) {
        let look = look_at(cidrs.iter().map(|cidr| pool(cidr, json!({"cidr": cidr}))).collect());
        let found: Vec<&str> = look.findings().iter().map(|f| f.summary.as_str()).collect();
        assert_eq!(found, expected);
        assert!(look.unseen().is_empty(), "{:?}", look.unseen());
    }

    #[test]
    fn fires_for_a_pool_inside_others() {
        check(
            &["10.1.2.0/24", "10.0.0.0/8", "10.2.0.0/16", "10.1.0.0/16"],
            &[
                "pool 10.1.0.0/16 (10.1.0.0/16) lies inside 10.0.0.0/8 (10.0.0.0/8)",
                "pool 10.1.2.0/24 (10.1.2.0/24) lies inside 10.0.0.0/8 (10.0.0.0/8) and 10.1.0.0/16 \
                 (10.1.0.0/16)",
                "pool 10.2.0.0/16 (10.2.0.0/16) lies inside 10.0.0.0/8 (10.0.0.0/8)",
            ],
        );
    }

    #[test]
    fn fires_for_the_same_network_twice_even_if_disabled() {
        let look = look_at(vec![
            pool("two", json!({"cidr": "10.0.0.9/16", "disabled": true})),
            pool("one", json!({"cidr": "10.0.0.0/16"})),
        ]);
        assert_eq!(look.findings().len(), 1);
        let finding = &look.findings()[0];
        assert_eq!(finding.summary, "pool two (10.0.0.0/16) lies inside one (10.0.0.0/16)");
        let texts: Vec<&str> = finding.evidence.iter().map(|exhibit| exhibit.text.as_str()).collect();
        assert_eq!(texts, ["IPPool(two): cidr 10.0.0.0/16, disabled", "IPPool(one): cidr 10.0.0.0/16"]);
    }

    #[test]
    fn is_silent_for_pools_apart() {
        check(&["10.0.0.0/16", "10.1.0.0/16", "192.168.0.0/16", "fd00::/48", "::/64"], &[]);
        check(&["0.0.0.0/0", "::/0"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let look = look_at(vec![pool("odd", json!({"cidr": "10.0.0.0/33"})), pool("none", json!({}))]);
        assert_eq!(
            look.unseen().iter().map(|unseen| unseen.to_string()).collect::<Vec<_>>(),
            [
                "IPPool(odd): cidr \"10.0.0.0/33\" cannot be read, so pool-overlap skipped it",
                "IPPool(none): cidr null cannot be read, so pool-overlap skipped it",
            ]
        );
    }

    proptest! {
        #[test]
        fn agrees_with_comparing_all_pairs(networks in prop::collection::vec((0u8..8, 24u8..=32), 0..12)) {
            let pools: Vec<(String, Cidr)> = networks.iter().enumerate()
                .map(|(index, (low, len))| {
                    let address = std::net::IpAddr::from([10, 0, 0, low * 32]);
                    (format!("pool-{index:02}"), Cidr::containing(address, *len).unwrap())
                })
                .collect();
            let look = look_at(pools.iter().map(|(name, cidr)| pool(name, json!({"cidr": cidr}))).collect());
            let found: BTreeSet<(String, usize)> =
                look.findings().iter().map(|f| (f.subject.to_string(), f.evidence.len() - 1)).collect();
            let expected: BTreeSet<(String, usize)> = pools.iter()
                .map(|(name, cidr)| {
                    let outer = |(other_name, other): &&(String, Cidr)| {
                        other.contains_cidr(cidr) && (other != cidr || other_name < name)
                    };
                    (format!("IPPool({name})"), pools.iter().filter(outer).count())
                })
                .filter(|(_, outer)| *outer > 0)
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
