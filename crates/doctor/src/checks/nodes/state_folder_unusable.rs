//! Ready means ready: an agent that cannot write down what it does adds no pods.

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Agent cannot write its state directory",
    explanation: "A node's agent records every attachment in its state directory (/var/lib/plumb) before the \
                  pod gets its network, and queues DELs there. While the directory is read-only, full or \
                  used by another agent, every ADD on the node fails, and so does a DEL that cannot be \
                  carried out immediately. If the directory was merely deleted, the agent recreates it \
                  automatically.",
    remedy: "free space on the disk, mount it for writing, or fix what the summary names; the agent resumes \
             automatically within seconds",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::StateFolderUnusable, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(problem) = &node.state_folder_problem else { continue };
        let summary = format!("no pod can be added on node {}: {}", node.name, problem.seen);
        look.found(&node.name, summary).seen_all([problem.exhibit(problem.seen.clone())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_what_the_agent_reports() {
        silent(&CHECK, &small());
        let mut evidence = small();
        let problem = Sighted::new("it is full".to_owned(), Origin::probe("worker-0000", "state folder"));
        evidence.node_mut("worker-0000").state_folder_problem = Some(problem);
        assert_eq!(only(&CHECK, &evidence).summary, "no pod can be added on node worker-0000: it is full");
    }
}
