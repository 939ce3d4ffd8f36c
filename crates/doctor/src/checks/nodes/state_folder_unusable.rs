//! Ready means ready: an agent that cannot write down what it does adds no pods.

use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "state-folder-unusable",
    severity: Severity::Error,
    title: "The agent cannot write its state folder",
    explanation: "A node's agent notes every attachment in its state folder (/var/lib/plumb) before the pod gets \
                  its network, and queues DELs there. While the folder is read-only, full, or another agent's, \
                  every ADD on the node fails, and a DEL that cannot be done at once fails as well. A folder \
                  that was only removed the agent makes anew by itself.",
    remedy: "make room on the disk, mount it for writing, or put right what the summary names; the agent goes on \
             by itself within seconds",
    needs: &[&[Need::Setup]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(problem) = &node.state_folder_problem else { continue };
        let summary = format!("no pod can be added on node {}: {}", node.name, problem.seen);
        look.found(Subject::node(&node.name), summary).seen_all([problem.exhibit(problem.seen.clone())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;
    use crate::{Origin, Sighted};

    #[test]
    fn fires_for_what_the_agent_reports() {
        silent(&CHECK, &small());
        let mut evidence = small();
        let problem = Sighted::new("it is full".to_owned(), Origin::probe("worker-0000", "state folder"));
        evidence.node_mut("worker-0000").state_folder_problem = Some(problem);
        assert_eq!(only(&CHECK, &evidence).summary, "no pod can be added on node worker-0000: it is full");
    }
}
