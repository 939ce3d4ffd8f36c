//! Ready means ready: an agent that cannot read or write the store.

use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "store-unreachable",
    severity: Severity::Error,
    title: "A node's agent cannot use the store",
    explanation: "The node's agent asks its store every two seconds whether it can be read and written. It cannot: etcd does \
                  not answer, the SQLite file is missing or was replaced, or its disk is full. Pods that run keep their \
                  network. New pods get none, DELs are queued, and changes of other nodes do not arrive.",
    remedy: "start the store, put its file back, or free space on its disk; the agent goes on by itself",
    needs: &[&[Need::Setup]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(problem) = &node.store_problem else { continue };
        look.found(
            Subject::node(&node.name),
            format!("the agent on {} cannot use the store: {}", node.name, problem.seen),
        )
        .seen(problem.exhibit(problem.seen.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::{node_name, small};
    use crate::{Origin, Sighted};

    #[test]
    fn fires_while_the_agent_has_a_problem() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let problem = Sighted::new("etcd does not answer".to_owned(), Origin::probe(node_name(1), "store"));
        evidence.node_mut(&node_name(1)).store_problem = Some(problem);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "the agent on worker-0001 cannot use the store: etcd does not answer");
    }
}
