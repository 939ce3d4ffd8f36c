//! Reachable: a pool asks for a tunnel that FelixConfiguration switches off.

use model::Kind;
use serde_json::Value;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "A pool requires a tunnel that FelixConfiguration disables",
    explanation: "An enabled pool has vxlanMode or ipipMode, and FelixConfiguration says vxlanEnabled: false or \
                  ipipEnabled: false. Felix then makes no tunnel device and writes no routes through it, so pods of \
                  that pool do not reach pods on other nodes.",
    remedy: "remove vxlanEnabled (or ipipEnabled) from FelixConfiguration, so that the pools decide, or set the \
             pool's mode to Never",
    needs: &[&[Need::Record(Kind::IpPool), Need::Record(Kind::FelixConfiguration)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::TunnelDisabled, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let is_off = |record: &model::Resource, field: &str| record.spec(field) == Some(&Value::Bool(false));
    let pools: Vec<_> = case.pools().iter().filter(|(pool, _)| pool.is_enabled()).collect();
    for felix in case.evidence.records.all(Kind::FelixConfiguration) {
        let vxlan = pools.iter().find(|(pool, _)| pool.has_vxlan() && is_off(&felix.seen, "vxlanEnabled"));
        let ipip = pools.iter().find(|(pool, _)| pool.has_ipip() && is_off(&felix.seen, "ipipEnabled"));
        for (found, field, mode) in [(vxlan, "vxlanEnabled", "vxlanMode"), (ipip, "ipipEnabled", "ipipMode")]
        {
            let Some((pool, record)) = found else { continue };
            let chosen = record.seen.spec(mode).and_then(Value::as_str).unwrap_or_default();
            let name = &felix.seen.metadata.name;
            let summary = format!(
                "pool {} has {mode}: {chosen}, but FelixConfiguration {name} has {field}: false",
                pool.name
            );
            look.found(felix.seen.key(), summary)
                .seen(felix.exhibit(format!("{field}: false")))
                .seen(record.exhibit(format!("{mode}: {chosen}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{Sample, record, through};

    #[test]
    fn fires_for_the_tunnel_that_a_pool_requires() {
        let sample = Sample { nodes: 2, blocks_per_node: 1, pods_per_node: 1, has_kernels: true };
        let with = |spec: Value| {
            let mut evidence = through(sample, "vxlanMode", "Always");
            evidence.records.add(record(Kind::FelixConfiguration, "default", spec));
            evidence
        };
        silent(&CHECK, &with(json!({})));
        silent(&CHECK, &with(json!({"ipipEnabled": false})));
        silent(&CHECK, &with(json!({"vxlanEnabled": true})));
        let finding = only(&CHECK, &with(json!({"vxlanEnabled": false})));
        assert!(
            finding.summary.ends_with("FelixConfiguration default has vxlanEnabled: false"),
            "{}",
            finding.summary
        );
    }
}
