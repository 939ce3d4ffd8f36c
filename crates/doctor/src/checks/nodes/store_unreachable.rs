//! Ready means ready: an agent that cannot read or write the store.

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node's agent cannot use the store",
    explanation: "The node's agent checks every two seconds whether it can read and write its store. It \
                  cannot: etcd does not answer, the SQLite file is missing or was replaced, or its disk is \
                  full. Running pods keep their network. New pods get none, DELs are queued, and changes \
                  made by other nodes do not arrive.",
    remedy: "start the store, restore its file, or free space on its disk; the agent resumes automatically",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::StoreUnreachable, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(problem) = &node.store_problem else { continue };
        look.found(&node.name, format!("the agent on {} cannot use the store: {}", node.name, problem.seen))
            .seen(problem.exhibit(problem.seen.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{node_name, small};
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_while_the_agent_has_a_problem() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let problem = Sighted::new("etcd does not answer".to_owned(), Origin::probe(node_name(1), "store"));
        evidence.node_mut(node_name(1)).store_problem = Some(problem);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "the agent on worker-0001 cannot use the store: etcd does not answer");
    }
}
