//! BGP: the daemon itself does not run.

use super::{called, explain_own_sessions, explain_sessions_to, needs_bgp};
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{NodeEvidence, Origin};

pub(in crate::checks) const CHECK: Check = Check {
    title: "BGP daemon is not running on a node",
    explanation: "The node's BGP daemon is not running. The node announces no routes to its pods and learns \
                  none from other nodes. Routes that it learned earlier may still be installed, but they are \
                  no longer updated.",
    remedy: "check calico-node and its log on that node; if the cluster does not use BGP, set the backend to \
             vxlan or none",
    needs: &[&[Need::Bgp]],
    ..Check::error(FindingCode::BgpNotRunning, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let is_down = |node: &&NodeEvidence| node.bgp.as_ref().is_some_and(|bgp| bgp.is_running == Some(false));
    if !needs_bgp(case) {
        return;
    }
    for node in case.all_nodes().filter(is_down) {
        let node_name = called(case, &node.name);
        let (summary, words) = match node.bgp.as_ref().is_some_and(|bgp| bgp.is_silent) {
            true => (
                format!("the BGP daemon of {node_name} does not answer: it is stopped or hangs"),
                "the process does not answer on its control socket",
            ),
            false => (format!("the BGP daemon is not running on {node_name}"), "the process is not running"),
        };
        let finding = look.found(&node.name, summary);
        let origin = Origin::probe(&node.name, "BGP");
        finding.seen(origin.exhibit(words));
        finding
            .explains(FindingCode::CalicoNodeNotReady, &node.name)
            .explains(FindingCode::BgpPortClosed, &node.name);
        explain_own_sessions(node, finding);
        explain_sessions_to(case, &node.name, finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_only_where_it_is_said() {
        let mut evidence = small();
        evidence.node_mut("worker-0001").bgp.as_mut().unwrap().is_running = None;
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").bgp.as_mut().unwrap().is_running = Some(false);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "node worker-0000");
        evidence.node_mut("worker-0000").bgp.as_mut().unwrap().is_silent = true;
        assert!(only(&CHECK, &evidence).summary.contains("does not answer"));
    }
}
