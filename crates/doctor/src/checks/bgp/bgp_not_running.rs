//! BGP: the daemon itself does not run.

use super::{called, explain_sessions_to};
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "bgp-not-running",
    severity: Severity::Error,
    title: "BGP does not run on a node",
    explanation: "The BGP daemon of a node is not running. The node tells nobody of its pods and learns \
                  nothing of the others'. Routes that it learned before may still be there, and get old.",
    remedy: "look at calico-node on that node; if BGP is not meant to be used, set the backend to vxlan or \
             none",
    needs: &[&[Need::Bgp]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.all_nodes() {
        let Some(bgp) = node.bgp.as_ref().filter(|bgp| bgp.is_running == Some(false)) else { continue };
        let summary = format!("BGP does not run on {}", called(case, &node.name));
        let finding = look.found(Subject::node(&node.name), summary);
        let origin = crate::Origin::probe(node.name.as_str(), "BGP");
        finding.seen(origin.exhibit("the process is not running"));
        finding
            .explains("calico-node-not-ready", Subject::node(&node.name))
            .explains("bgp-port-closed", Subject::node(&node.name));
        for session in &bgp.sessions {
            finding.explains(
                "bgp-session-down",
                Subject::Session { node: node.name.clone(), peer: session.seen.peer },
            );
        }
        explain_sessions_to(case, &node.name, finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_only_where_it_is_said() {
        let mut evidence = small();
        evidence.node_mut("worker-0001").bgp.as_mut().unwrap().is_running = None;
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").bgp.as_mut().unwrap().is_running = Some(false);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "node worker-0000");
    }
}
