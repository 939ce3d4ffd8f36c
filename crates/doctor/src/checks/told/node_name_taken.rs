//! Reported by others: two machines have one name.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Two machines claim one node name",
    explanation: "A machine wants to join under a name that another one has, or had. Cloned machines have one host \
                  name, and k3s and RKE2 refuse the second by its node password. Where nothing refuses it, two \
                  kubelets overwrite each other's status, and pods seem to jump between two addresses.",
    remedy: "give the machine a name of its own (hostnamectl set-hostname, or --node-name), delete what it kept \
             (for k3s /etc/rancher/node/password), and join again; if it replaces the other one, delete that Node \
             and its secret NAME.node-password.k3s first",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodeNameTaken, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::NodeNotReady, FindingCode::KubeletFailing],
    ..Report::of(Trouble::NodeNameTaken)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("a machine claims the name of another node, on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
