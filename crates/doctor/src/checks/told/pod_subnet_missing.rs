//! Reported by others: a node has no subnet for pods.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node has no subnet for its pods",
    explanation: "The network takes the node's subnet from Kubernetes (podCIDR) or from its own lease, and there \
                  is none. The controller manager runs without --allocate-node-cidrs and --cluster-cidr, its range \
                  is used up, or flannel does not run on the node.",
    remedy: "check kubectl get node -o jsonpath='{.spec.podCIDR}', set --allocate-node-cidrs and --cluster-cidr of \
             the controller manager, and look at the network's own pod on the node",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::PodSubnetMissing, look)
};

const REPORT: Report =
    Report { passes: true, explains: &[FindingCode::NodeNotReady], ..Report::of(Trouble::PodSubnetMissing) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("there is no subnet for pods on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "failed to acquire lease: node \"n1\" pod cidr not assigned";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
