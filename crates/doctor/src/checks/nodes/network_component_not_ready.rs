//! Node set-up: a component that the network needs somewhere in the cluster does not run.

use std::collections::{BTreeMap, BTreeSet};

use super::{is_broken, spelled};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::{Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Component of the network does not run",
    explanation: "Pods of a component that the whole cluster's network uses do not run: CoreDNS resolves names, Typha feeds \
                  Felix, kube-controllers collect what pods leave behind, the operator keeps Calico installed. What \
                  works now goes on, and what the component would do is not done.",
    remedy: "read the events (kubectl describe pod) and the log of one of these pods, kubectl logs --previous among them",
    needs: &[&[Need::Pods]],
    ..Check::warning(FindingCode::NetworkComponentNotReady, look)
};

/// How the pods of a component begin, and what it is called.
const COMPONENTS: [(&str, &str); 10] = [
    ("coredns-", "CoreDNS"),
    ("kube-dns-", "kube-dns"),
    ("rke2-coredns-rke2-coredns-", "CoreDNS"),
    ("node-local-dns-", "NodeLocal DNS"),
    ("nodelocaldns-", "NodeLocal DNS"),
    ("calico-typha-", "Typha"),
    ("calico-kube-controllers-", "calico-kube-controllers"),
    ("calico-apiserver-", "Calico's API server"),
    ("tigera-operator-", "the operator"),
    ("kube-flannel-ds-", "flannel"),
];

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut pods: BTreeMap<&str, Vec<&Sighted<Pod>>> = BTreeMap::new();
    for pod in case.all_pods() {
        let name = pod.seen.name.name.as_str();
        if let Some((_, what)) = COMPONENTS.iter().find(|(start, _)| name.starts_with(start)) {
            pods.entry(what).or_default().push(pod);
        }
    }
    for (what, pods) in pods {
        let is_away = |pod: &Pod| {
            let node = pod.node.as_ref().and_then(|node| case.kube_node(node));
            node.is_some_and(|node| node.seen.is_ready() == Some(false))
        };
        let broken: Vec<&&Sighted<Pod>> =
            pods.iter().filter(|pod| is_broken(case, &pod.seen) && !is_away(&pod.seen)).collect();
        if broken.is_empty() {
            continue;
        }
        let nodes: BTreeSet<_> = broken.iter().filter_map(|pod| pod.seen.node.as_ref()).collect();
        let subject = match (nodes.first(), nodes.len()) {
            (Some(node), 1) => Subject::node(spelled(case, node)),
            _ => Subject::Cluster,
        };
        let shown: Vec<String> =
            broken.iter().map(|pod| format!("{} {}", pod.seen.name, super::shown(&pod.seen))).collect();
        let summary =
            format!("{} of {} pods of {what} do not run: {}", broken.len(), pods.len(), listed(&shown));
        let finding = look.found(subject, summary);
        finding.known_by(what);
        finding.seen_all(broken.iter().zip(&shown).map(|(pod, shown)| pod.exhibit(shown.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::PodName;
    use evidence::sample::small;

    #[test]
    fn fires_for_a_component_that_does_not_stay_up() {
        let evidence = small();
        let mut pod = evidence.pods.as_ref().unwrap().last().unwrap().clone();
        pod.seen.name = PodName::new("kube-system", "coredns-7db6d8ff4d-8xkzv");
        let with = |status: &str, ready: (u32, u32)| {
            let mut pod = pod.clone();
            (pod.seen.status, pod.seen.ready) = (status.to_owned(), Some(ready));
            let mut evidence = evidence.clone();
            evidence.pods.as_mut().unwrap().push(pod);
            evidence
        };
        silent(&CHECK, &with("Running", (1, 1)));
        let finding = only(&CHECK, &with("CrashLoopBackOff", (0, 1)));
        assert_eq!(
            finding.summary,
            "1 of 1 pods of CoreDNS do not run: kube-system/coredns-7db6d8ff4d-8xkzv CrashLoopBackOff 0/1"
        );
    }
}
