//! Node set-up: Calico's credentials are refused.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Calico's credentials are refused",
    explanation: "The API server refuses the credentials of the CNI plugin or of calico-node. No pod on the node gets a \
                  network or gives it back until they are valid. The plugin's kubeconfig is written by calico-node: it is \
                  outdated if calico-node cannot renew it, if the cluster's CA or service account key was replaced, or if \
                  the clock of the node is wrong.",
    remedy: "restart calico-node on the node so that it writes /etc/cni/net.d/calico-kubeconfig again; if it still \
             fails, compare the file's server and CA with the cluster's, and check the node's clock",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CredentialsRefused, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::NodeNotReady, FindingCode::StoreUnstable],
    ..Report::of(Trouble::CredentialsRefused)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the API server refuses the credentials of Calico on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "error getting ClusterInformation: connection is unauthorized: Unauthorized";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "the API server refuses the credentials of Calico on node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
