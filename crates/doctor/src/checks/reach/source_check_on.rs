//! Reachable: a cloud that drops packets of pods because they are not its machines' own.

use model::Kind;

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::SettingKind;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Source/destination check drops packets of pods",
    explanation: "AWS drops what a machine sends or gets under another address than its own, unless the source/destination \
                  check of its network interface is off. Where pools are reached without a tunnel, at least within a \
                  subnet, packets between pods of different nodes are lost; across subnets, through a tunnel, they arrive.",
    remedy: "switch the check off for these machines (aws ec2 modify-instance-attribute --instance-id ID \
             --no-source-dest-check), or set awsSrcDstCheck: Disable in FelixConfiguration default and give the nodes \
             the right ec2:ModifyNetworkInterfaceAttribute",
    needs: &[&[Need::Settings, Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::SourceCheckOn, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let is_direct = |field: &str, record: &model::Resource| {
        record.spec(field).and_then(|mode| mode.as_str()).is_none_or(|mode| mode != "Always")
    };
    let mut pools = case.pools().iter().filter(|(pool, _)| pool.is_enabled());
    let direct =
        pools.find(|(_, record)| is_direct("ipipMode", &record.seen) && is_direct("vxlanMode", &record.seen));
    let Some((pool, record)) = direct else { return };
    let all = case.settings.iter().flatten();
    let machines: Vec<_> = all.filter(|setting| setting.seen.kind == SettingKind::SourceDestCheck).collect();
    if machines.is_empty() {
        return;
    }
    let summary = format!(
        "the source/destination check is on for {}, and pool {} is reached without a tunnel within a subnet: {}",
        counted(machines.len(), "machine"),
        pool.name,
        listed(machines.iter().map(|machine| &machine.seen.value))
    );
    let finding = look.found(Subject::Cluster, summary);
    finding.known_by("source check").seen(record.exhibit(format!("cidr: {}", pool.cidr)));
    finding.seen_all(machines.iter().take(5).map(|machine| machine.exhibit("SourceDestCheck: true")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{set, small};

    #[test]
    fn fires_where_packets_leave_without_a_tunnel() {
        silent(&CHECK, &small());
        let mut evidence = set(small(), SettingKind::SourceDestCheck, "i-0aa 172.16.0.1");
        let finding = only(&CHECK, &evidence);
        assert!(finding.summary.ends_with("a subnet: i-0aa 172.16.0.1"), "{}", finding.summary);
        evidence.records.all_mut(Kind::IpPool)[0].seen.spec_mut().insert("vxlanMode".into(), json!("Always"));
        silent(&CHECK, &evidence);
    }
}
