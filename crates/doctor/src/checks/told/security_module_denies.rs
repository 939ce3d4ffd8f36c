//! Reported by others: a security module denies something.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "SELinux or AppArmor denies what a network program does",
    explanation: "The kernel's security module keeps a program of the network from a file or an action it needs. \
                  The program reports errors that make no sense, such as missing files or permissions that are \
                  there.",
    remedy: "install the policy that belongs to the distribution (container-selinux, rke2-selinux, k3s-selinux), \
             restore labels with restorecon -Rv on /opt/cni /etc/cni /var/lib/calico /var/run/calico, and try \
             setenforce 0 for a moment to be sure",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::SecurityModuleDenies, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::CniPluginMissing, FindingCode::NodeNotReady, FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::SecurityDenied)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("a security module (SELinux or AppArmor) denies what a network program does on {place}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "avc:  denied  { write } for  pid=20811 comm=\"calico\" name=\"calico\" dev=\"tmpfs\"";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
