//! Reachable: a cloud whose network does not carry the tunnel.

use model::Kind;

use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Cloud does not carry IPIP",
    explanation: "Pools are reached through IPIP, and the nodes are machines of Azure, whose network drops every IP protocol \
                  but TCP, UDP and ICMP. BGP sessions are up and routes look right, but no packet between pods of \
                  different nodes arrives.",
    remedy: "use VXLAN: set ipipMode: Never and vxlanMode: Always in the IPPool, then restart calico-node on one node \
             after the other",
    needs: &[&[Need::KubeNodes, Need::Record(Kind::IpPool)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CloudDropsTunnel, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let nodes: Vec<_> =
        case.kube_nodes.iter().flatten().filter(|node| node.seen.provider.starts_with("azure:")).collect();
    if nodes.len() < 2 {
        return;
    }
    for (pool, record) in case.pools().iter().filter(|(pool, _)| pool.is_enabled() && pool.has_ipip()) {
        let summary = format!(
            "pool {} ({}) uses IPIP, which Azure does not carry between its machines: {} ({})",
            pool.name,
            pool.cidr,
            counted(nodes.len(), "node"),
            listed(nodes.iter().map(|node| &node.seen.name))
        );
        let finding = look.found(record.seen.key(), summary);
        finding.known_by("ipip").seen(record.exhibit("ipipMode is not Never"));
        finding.explains(FindingCode::ModeUnsupported, record.seen.key());
        finding.seen_all(
            nodes.iter().take(2).map(|node| node.exhibit(format!("{} is of Azure", node.seen.name))),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_ipip_on_azure_alone() {
        let mut evidence = small();
        evidence.records.add(record(
            Kind::IpPool,
            "i",
            json!({"cidr": "10.64.0.0/16", "ipipMode": "Always"}),
        ));
        silent(&CHECK, &evidence);
        for node in evidence.kube_nodes.iter_mut().flatten() {
            node.seen.provider = "azure:///subscriptions/0/x".to_owned();
        }
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.starts_with("pool i (10.64.0.0/16) uses IPIP, which Azure"),
            "{}",
            finding.summary
        );
        evidence.records.all_mut(Kind::IpPool)[1].seen.spec_mut().insert("ipipMode".into(), json!("Never"));
        silent(&CHECK, &evidence);
    }
}
