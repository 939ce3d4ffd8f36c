//! Node set-up: runtime has no working CNI plugin.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Runtime has no working CNI plugin",
    explanation: "The container runtime finds no CNI configuration, or not the program that it names, or calico-node has \
                  not told the plugin the node's name. Pods stay in ContainerCreating, and the node is NotReady if there is \
                  no configuration at all. Either calico-node's install container did not run, or something removed its \
                  files.",
    remedy: "check that calico-node runs on the node and what its init container install-cni says; then check \
             /etc/cni/net.d/10-calico.conflist, /opt/cni/bin/calico and /var/lib/calico/nodename",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CniPluginMissing, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[FindingCode::NodeNotReady, FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::PluginMissing)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the runtime on {place} has no working CNI plugin"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Network plugin returns error: cni plugin not initialized";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "the runtime on node n1 has no working CNI plugin");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
