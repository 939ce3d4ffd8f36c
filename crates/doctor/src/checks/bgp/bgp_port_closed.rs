//! BGP: nobody listens on its port.

use super::{explain_sessions_to, needs_bgp};
use crate::{Case, Check, FindingCode, Look, Need};

const BGP_PORT: u16 = 179;

pub(in crate::checks) const CHECK: Check = Check {
    title: "No process listens on the BGP port",
    explanation: "A node takes part in BGP, but no process on it listens on TCP port 179 (or on listenPort \
                  of BGPConfiguration). Peers that connect to the node are refused, so a session comes up \
                  only if this node initiates it.",
    remedy: "check BIRD on that node: whether it runs, and on which port it is configured to listen",
    needs: &[&[Need::Bgp, Need::Setup]],
    ..Check::error(FindingCode::BgpPortClosed, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !needs_bgp(case) {
        return;
    }
    let configuration = case.evidence.records.find(model::Kind::BgpConfiguration, "default");
    let port = configuration
        .and_then(|record| record.seen.spec("listenPort")?.as_u64())
        .and_then(|port| u16::try_from(port).ok());
    let port = port.unwrap_or(BGP_PORT);
    for node in case.evidence.nodes.values().filter(|node| node.bgp.is_some()) {
        let Some(ports) = node.setup.listening_ports.as_ref().filter(|ports| !ports.seen.contains(&port))
        else {
            continue;
        };
        let finding =
            look.found(&node.name, format!("no process listens on TCP port {port} on {}", node.name));
        finding.seen(ports.exhibit(format!("no {port} among {} ports", ports.seen.len())));
        explain_sessions_to(case, &node.name, finding);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_unless_another_port_is_configured() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let ports = evidence.node_mut("worker-0000").setup.listening_ports.as_mut().unwrap();
        ports.seen = vec![22, 1790];
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "node worker-0000");
        for node in ["worker-0001", "worker-0002"] {
            evidence.node_mut(node).setup.listening_ports = None;
        }
        evidence.records.add(record(model::Kind::BgpConfiguration, "default", json!({"listenPort": 1790})));
        silent(&CHECK, &evidence);
    }
}
