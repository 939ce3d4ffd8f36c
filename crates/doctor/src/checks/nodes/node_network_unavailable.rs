//! Node set-up: Kubernetes waits for somebody to say that the node's network works.

use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubernetes holds the node's network for unavailable",
    explanation: "A node is Ready, but its condition NetworkUnavailable is True, so new pods that do not tolerate it \
                  are not placed there. calico-node clears the condition when it starts and sets it when it is \
                  stopped in order. A cloud provider's route controller sets it, too, if it cannot make its routes.",
    remedy: "check calico-node on the node; if the reason is NoRouteCreated, switch the cloud provider's route \
             controller off (--configure-cloud-routes=false)",
    needs: &[&[Need::KubeNodes]],
    ..Check::warning(FindingCode::NodeNetworkUnavailable, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values() {
        let found = view.kube.iter().find_map(|kube| {
            let condition =
                kube.seen.condition("NetworkUnavailable").filter(|condition| condition.status == "True")?;
            let is_ready = kube.seen.is_ready() != Some(false);
            (is_ready && !case.is_young(kube.seen.age(case.taken_at))).then_some((kube, condition))
        });
        let Some((kube, condition)) = found else { continue };
        let since = condition.changed_at.map_or_else(String::new, |at| format!(" since {at}"));
        look.found(&view.name, format!("Kubernetes holds the network of node {} for unavailable", view.name))
            .because(format!("{}{since}: {}", condition.reason, condition.message))
            .seen(kube.place("NetworkUnavailable").exhibit(condition.message.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::kubernetes::Condition;
    use evidence::sample::small;

    #[test]
    fn fires_for_a_node_that_is_ready_otherwise() {
        let mut evidence = small();
        let mut set = |status: &str| {
            let condition = Condition {
                kind: "NetworkUnavailable".into(),
                status: status.into(),
                reason: "CalicoIsDown".into(),
                ..Condition::default()
            };
            let conditions = &mut evidence.kube_nodes.as_mut().unwrap()[0].seen.conditions;
            conditions.truncate(1);
            conditions.push(condition);
            evidence.clone()
        };
        silent(&CHECK, &set("False"));
        assert_eq!(only(&CHECK, &set("True")).subject.to_string(), "node worker-0000");
        let mut gone = set("True");
        gone.kube_nodes.as_mut().unwrap()[0].seen.conditions[0].status = "Unknown".into();
        silent(&CHECK, &gone);
    }
}
