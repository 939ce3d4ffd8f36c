//! Never a guess: what was not read to its end is not called healthy.

use super::whose;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Origin;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's network namespace is too large to read completely",
    explanation: "A process in the pod created so many links, addresses, routes or neighbour entries in its \
                  network namespace that only the first of them were read. Reading all of them would exhaust \
                  the memory of the node's agent. The rest was not checked.",
    remedy: "find out in the pod what creates them (ip route show, ip address, ip neighbour), and whether \
             that is intended; a pod without CAP_NET_ADMIN cannot create them",
    needs: &[&[Need::PodViews]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::PodNetworkCrowded, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let all = case.all_nodes().flat_map(|node| node.pod_views.iter().flatten().map(move |view| (node, view)));
    for (node, view) in all.filter(|(_, view)| !view.too_many.is_empty()) {
        let whose = whose(case, node, view);
        let has = view.too_many.join(" and ");
        let summary = format!("{} has {has} inside, and the rest was not read", whose.name);
        let finding = look.found(whose.subject.clone(), summary);
        finding.of_sandbox(view.container_id.as_deref());
        finding.seen(Origin::probe(&node.name, "pods from inside").exhibit(has));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_what_was_not_read_to_its_end() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].too_many = vec!["more than 2048 routes".to_owned()];
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "pod team-0/web-0 has more than 2048 routes inside, and the rest was not read"
        );
    }
}
