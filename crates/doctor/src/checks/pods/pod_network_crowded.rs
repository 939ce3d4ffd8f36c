//! Never a guess: what was not read to its end is not called healthy.

use super::whose;
use crate::{Case, Check, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "pod-network-crowded",
    severity: Severity::Warning,
    title: "A pod's network holds more than is read",
    explanation: "A program in the pod made so many links, addresses, routes or neighbours in its own network \
                  namespace that only the first of them were read: to read them all would cost the node's agent \
                  its memory. Whether the rest is as it should be is not known.",
    remedy: "see in the pod what makes them (`ip route show`, `ip address`, `ip neighbour`), and whether it is meant; \
             a pod without CAP_NET_ADMIN cannot",
    needs: &[&[Need::PodViews]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let all = case.all_nodes().flat_map(|node| node.pod_views.iter().flatten().map(move |view| (node, view)));
    for (node, view) in all.filter(|(_, view)| !view.too_many.is_empty()) {
        let whose = whose(case, node, view);
        let has = view.too_many.join(" and ");
        let finding = look
            .found(whose.subject.clone(), format!("{} has {has} inside; the rest was not read", whose.name));
        finding.of_sandbox(view.container_id.as_deref());
        finding.seen(Origin::probe(node.name.as_str(), "pods from inside").exhibit(has));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_what_was_not_read_to_its_end() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].too_many = vec!["more than 2048 routes".to_owned()];
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "pod team-0/web-0 has more than 2048 routes inside; the rest was not read"
        );
    }
}
