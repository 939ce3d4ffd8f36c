//! Node set-up: an etcd that cannot lose a member.

use std::collections::BTreeMap;

use model::NodeName;

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::{Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "etcd has an even number of members",
    explanation: "etcd needs more than half of its members. Two members tolerate no failure, which is worse \
                  than one member: the loss of either stops the whole cluster. Four members tolerate no more \
                  failures than three.",
    remedy: "add or remove a member so that there are three or five",
    needs: &[&[Need::Pods]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::EtcdEvenMembers, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut members: BTreeMap<&NodeName, &Sighted<Pod>> = BTreeMap::new();
    for pod in case.all_pods() {
        let Some(node) = pod.seen.node.as_ref() else { continue };
        let is_system = pod.seen.name.namespace.as_deref() == Some("kube-system");
        // Static pods are called for their node.
        if is_system
            && pod.seen.name.name.strip_prefix("etcd-").is_some_and(|name| NodeName::from(name) == *node)
        {
            members.insert(node, pod);
        }
    }
    let is_even = members.len() >= 2 && members.len().is_multiple_of(2);
    // Of a part of the pods there may be more members.
    if !is_even || case.partial.pods {
        return;
    }
    let tolerated = (members.len() - 1) / 2;
    let tolerated = if tolerated == 0 { "none".to_owned() } else { tolerated.to_string() };
    let summary = format!(
        "etcd has {} members ({}) and tolerates the loss of {tolerated}",
        members.len(),
        listed(members.keys())
    );
    look.found(Subject::Cluster, summary)
        .seen_all(members.values().map(|pod| pod.exhibit(pod.seen.name.to_string())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::PodName;
    use evidence::sample::small;

    #[test]
    fn fires_for_two_and_not_for_one_or_three() {
        let mut evidence = small();
        let mut add = |node: &str| {
            let mut pod = evidence.pods.as_ref().unwrap()[12].clone();
            pod.seen.name = PodName::new("kube-system", format!("etcd-{node}"));
            pod.seen.node = Some(node.into());
            evidence.pods.as_mut().unwrap().push(pod);
            evidence.clone()
        };
        silent(&CHECK, &add("worker-0000"));
        let two = add("worker-0001");
        assert_eq!(
            only(&CHECK, &two).summary,
            "etcd has 2 members (worker-0000, worker-0001) and tolerates the loss of none"
        );
        silent(&CHECK, &add("worker-0002"));
    }
}
