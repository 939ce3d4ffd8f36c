//! An agent that cannot load its nftables rules, or cannot check that they are loaded.

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Agent cannot load its nftables rules",
    explanation: "A node's agent runs nft to load table inet plumb: which addresses pods may send from, who may send \
                  into tunnels, and the node's address for packets that leave the cluster. The command fails or hangs. \
                  Rules that were loaded earlier stay, but later pools and nodes are not in them, and if they were \
                  flushed, they are missing.",
    remedy: "run the command that the summary names on the node, and correct what it reports: install nft, or load the \
             kernel module that it needs. The agent tries again every few seconds",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RulesNotLoaded, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(problem) = &node.rules_problem else { continue };
        let summary = format!("node {}: {}", node.name, problem.seen);
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
        let problem = Sighted::new("nft fails".to_owned(), Origin::probe("worker-0000", "nftables rules"));
        evidence.node_mut("worker-0000").rules_problem = Some(problem);
        assert_eq!(only(&CHECK, &evidence).summary, "node worker-0000: nft fails");
    }
}
