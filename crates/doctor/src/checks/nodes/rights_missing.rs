//! Node set-up: an account of Calico lacks rights.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "An account of Calico lacks rights",
    explanation: "The API server knows an account of Calico and does not allow what it asks for. Its ClusterRole or \
                  ClusterRoleBinding is older than the program, was deleted, or names another namespace. What the account \
                  may not do does not happen: records are not written, and programs do not become ready.",
    remedy: "apply the roles of the manifest or chart that belongs to the installed release: kubectl auth can-i --list \
             --as system:serviceaccount:kube-system:calico-node shows what is allowed now",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RightsMissing, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    is_of_cluster: true,
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::AddFailing],
    ..Report::of(Trouble::RightsMissing)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "an account of Calico may not do what it has to".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "clusterinformations.crd.projectcalico.org \"default\" is forbidden: User \"system:serviceaccount:kube-system:calico-node\" cannot get resource";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "cluster");
        assert_eq!(finding.summary, "an account of Calico may not do what it has to");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
