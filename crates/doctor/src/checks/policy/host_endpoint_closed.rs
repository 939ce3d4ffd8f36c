//! Policy: nodes that host endpoints may lock out.

use std::collections::BTreeSet;

use model::{Kind, NodeName};
use serde_json::Value;

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Host endpoint without failsafe ports",
    explanation: "A HostEndpoint makes Felix drop all traffic of a node that no policy allows. The failsafe ports, which \
                  keep SSH, BGP, etcd, the kubelet and the API server reachable whatever policies say, are set to none. \
                  Unless policies allow all of it, the node cuts itself off, and Felix cannot learn of a policy that \
                  would help.",
    remedy: "remove failsafeInboundHostPorts and failsafeOutboundHostPorts from FelixConfiguration default, or delete the \
             HostEndpoint; on a node that is cut off already, restart calico-node after flushing its rules on the \
             machine's console",
    needs: &[&[Need::Record(Kind::HostEndpoint), Need::Record(Kind::FelixConfiguration)]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::HostEndpointClosed, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let records = &case.evidence.records;
    let is_none = |felix: &model::Resource, field: &str| {
        felix.spec(field).and_then(Value::as_array).is_some_and(Vec::is_empty)
    };
    for felix in records.all(Kind::FelixConfiguration) {
        let name = felix.seen.metadata.name.as_str();
        let fields = ["failsafeInboundHostPorts", "failsafeOutboundHostPorts"];
        if !fields.iter().any(|field| is_none(&felix.seen, field)) {
            continue;
        }
        for endpoint in records.all(Kind::HostEndpoint) {
            let node = endpoint.seen.spec("node").and_then(Value::as_str).unwrap_or_default();
            if name != "default" && name.strip_prefix("node.") != Some(node) {
                continue;
            }
            let node = NodeName::from(node);
            let summary = format!(
                "HostEndpoint {} guards node {node}, and FelixConfiguration {name} has no failsafe ports",
                endpoint.seen.metadata.name
            );
            let finding = look.found(endpoint.seen.key(), summary);
            finding.seen(endpoint.exhibit(format!("node: {node}")));
            finding.seen(felix.exhibit("failsafe ports: none"));
            let is_away = case.kube_node(&node).is_some_and(|kube| kube.seen.is_ready() == Some(false));
            if is_away {
                finding.severity(Severity::Error).explains(FindingCode::NodeNotReady, &node);
            }
            let policies: BTreeSet<&str> = records
                .all(Kind::GlobalNetworkPolicy)
                .iter()
                .map(|policy| policy.seen.metadata.name.as_str())
                .collect();
            if !policies.is_empty() {
                finding.because(format!(
                    "whether these policies allow what the node needs is not judged: {}",
                    listed(policies)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_no_failsafe_ports_and_is_worse_where_the_node_is_away() {
        let mut evidence = small();
        let spec = json!({"node": "worker-0000", "interfaceName": "*"});
        evidence.records.add(record(Kind::HostEndpoint, "all", spec));
        silent(&CHECK, &evidence);
        evidence.records.add(record(
            Kind::FelixConfiguration,
            "default",
            json!({"failsafeInboundHostPorts": []}),
        ));
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Warning);
        evidence.kube_nodes.as_mut().unwrap()[0].seen.conditions[0].status = "Unknown".to_owned();
        assert_eq!(only(&CHECK, &evidence).severity, Severity::Error);
    }
}
