//! Node set-up: a node that waits for the cloud's controller.

use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node waits for the cloud controller manager",
    explanation: "The kubelet was started with --cloud-provider=external, and no cloud controller manager has looked at the \
                  node since. Until it does, a taint keeps pods away, CoreDNS and calico-kube-controllers among them, and \
                  the node may have no address.",
    remedy: "install or repair the cloud controller manager of your cloud (its pods must tolerate the taint \
             node.cloudprovider.kubernetes.io/uninitialized), or start the kubelet without --cloud-provider=external",
    needs: &[&[Need::KubeNodes]],
    ..Check::error(FindingCode::NodeUninitialized, look)
};

const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for view in case.node_views().values() {
        let tainted =
            view.kube.iter().find(|node| node.seen.taints.iter().any(|taint| taint.starts_with(TAINT)));
        let Some(node) = tainted.filter(|node| !case.is_young(node.seen.age(case.taken_at))) else {
            continue;
        };
        let summary = format!("node {} waits for the cloud controller manager", view.name);
        look.found(&view.name, summary)
            .known_by("uninitialized")
            .explains(FindingCode::NetworkComponentNotReady, crate::Subject::Cluster)
            .explains(FindingCode::NetworkComponentNotReady, &view.name)
            .seen(node.exhibit(format!("taint {TAINT}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_the_taint() {
        let mut evidence = small();
        evidence.kube_nodes.as_mut().unwrap()[0].seen.taints = vec!["team=a:NoSchedule".to_owned()];
        silent(&CHECK, &evidence);
        evidence.kube_nodes.as_mut().unwrap()[0].seen.taints.push(format!("{TAINT}=true:NoSchedule"));
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "node worker-0000 waits for the cloud controller manager"
        );
    }
}
