//! Books: settings of address management where nobody reads them.

use model::ipam::{CONFIG_NAME, IpamConfig};
use model::{Key, Kind, Resource};
use serde_json::Value;

use super::exhibit;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "IPAM settings have no effect",
    explanation: "An etcd store has two records of IPAM settings: the resource IPAMConfiguration, which \
                  calicoctl apply writes and calicoctl get shows, and the record that allocation reads. The \
                  first was changed, but the second has different values, so the change has no effect.",
    remedy: "change the record that allocation reads: plumb ipam configure, or calicoctl ipam configure. \
             Then delete the resource, or give it the same values",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpamConfiguration)]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::IpamConfigIgnored, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    let defaults = IpamConfig::default();
    let read = ipam.config.as_ref().map_or(&defaults, |config| &config.seen);
    let configurations = case.evidence.records.all(Kind::IpamConfiguration);
    for record in configurations.iter().filter(|record| record.seen.metadata.name == CONFIG_NAME) {
        // Elsewhere than in a store of this kind the resource is what is read.
        if !matches!(record.origin, Origin::Store(_)) {
            continue;
        }
        let ignored = ignored(&record.seen, read, &defaults);
        if ignored.is_empty() {
            continue;
        }
        let words: Vec<String> = ignored
            .iter()
            .map(|ignored| format!("{} {} (in force: {})", ignored.field, ignored.says, ignored.in_force))
            .collect();
        let summary = format!("IPAMConfiguration({CONFIG_NAME}) is not read, but sets {}", words.join(", "));
        look.found(record.seen.key(), summary)
            .seen(record.exhibit(format!("spec: {}", fields(&ignored))))
            .seen(exhibit(case, Key::IpamConfig, words_in_force(ipam.config.is_some(), &ignored)));
    }
}

struct Ignored {
    field: &'static str,
    says: String,
    in_force: String,
}

fn fields(ignored: &[Ignored]) -> String {
    ignored
        .iter()
        .map(|ignored| format!("{}: {}", ignored.field, ignored.says))
        .collect::<Vec<_>>()
        .join(", ")
}

fn words_in_force(is_there: bool, ignored: &[Ignored]) -> String {
    let all: Vec<String> =
        ignored.iter().map(|ignored| format!("{}: {}", ignored.field, ignored.in_force)).collect();
    let words = all.join(", ");
    if is_there { words } else { format!("no such record, so the defaults apply: {words}") }
}

/// What somebody has set and what is not so. calico-node makes the resource with defaults at its start: these are
/// nobody's wish.
fn ignored(resource: &Resource, read: &IpamConfig, defaults: &IpamConfig) -> Vec<Ignored> {
    let flag = |field: &'static str, read: bool, default: bool| {
        let says = resource.spec(field).and_then(Value::as_bool)?;
        differs(field, says, read, default)
    };
    let number = |field: &'static str, read: i64, default: i64| {
        let says = resource.spec(field).and_then(Value::as_i64)?;
        differs(field, says, read, default)
    };
    let limit = |blocks: i64| if blocks == 0 { ::ipam::BLOCKS_MAX as i64 } else { blocks };
    let blocks = resource.spec("maxBlocksPerHost").and_then(Value::as_i64).map(limit);
    [
        flag("strictAffinity", read.strict_affinity, defaults.strict_affinity),
        flag("autoAllocateBlocks", read.auto_allocate_blocks, defaults.auto_allocate_blocks),
        blocks.and_then(|says| differs("maxBlocksPerHost", says, limit(read.max_blocks_per_host), limit(0))),
        number("ipCooldownSeconds", read.ip_cooldown_seconds, defaults.ip_cooldown_seconds),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn differs<T: PartialEq + ToString>(field: &'static str, says: T, read: T, default: T) -> Option<Ignored> {
    (says != read && says != default).then(|| Ignored {
        field,
        says: says.to_string(),
        in_force: read.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};
    use evidence::{Evidence, Sighted};

    fn with(spec: Value) -> Evidence {
        let mut evidence = small();
        evidence.records.add(record(Kind::IpamConfiguration, CONFIG_NAME, spec));
        evidence
    }

    #[test]
    fn fires_for_a_wish_that_nobody_reads() {
        let evidence =
            with(json!({"strictAffinity": true, "maxBlocksPerHost": 4, "autoAllocateBlocks": true}));
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "IPAMConfiguration(default) is not read, but sets strictAffinity true (in force: false), \
             maxBlocksPerHost 4 (in force: 20)"
        );
    }

    #[test]
    fn stays_silent_for_defaults_and_for_what_is_in_force() {
        let start_up = json!({"strictAffinity": false, "autoAllocateBlocks": true, "maxBlocksPerHost": 0});
        silent(&CHECK, &with(start_up.clone()));
        silent(&CHECK, &with(json!({"maxBlocksPerHost": 20})));
        let strict = IpamConfig { strict_affinity: true, ..IpamConfig::default() };
        let in_force = |mut evidence: Evidence| {
            let config = Sighted::new(strict.clone(), Origin::store(&Key::IpamConfig));
            evidence.ipam.as_mut().unwrap().config = Some(config);
            evidence
        };
        // What calico-node made at its start is not meant to change what an operator configured.
        silent(&CHECK, &in_force(with(start_up)));
        silent(&CHECK, &in_force(with(json!({"strictAffinity": true}))));
    }

    #[test]
    fn stays_silent_where_the_resource_is_what_is_read() {
        let mut evidence = small();
        let mut resource = record(Kind::IpamConfiguration, CONFIG_NAME, json!({"strictAffinity": true}));
        resource.origin = Origin::Api("ipamconfiguration/default".into());
        evidence.records.add(resource);
        silent(&CHECK, &evidence);
    }
}
