//! Reported by others: a disk is full.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Disk of a node is full",
    explanation: "The node's disk is full or nearly so. The kubelet evicts pods, calico-node and kube-proxy among \
                  them, the runtime cannot create sandboxes, and Calico's state files cannot be written. Pods that \
                  still run keep their network as it was.",
    remedy: "free space (crictl rmi --prune, old logs, journalctl --vacuum-size=500M) or enlarge the disk, then \
             delete the pods shown as Evicted so that they are created again",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::DiskFull, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::KubeletFailing],
    ..Report::of(Trouble::DiskFull)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the disk of {place} is full; pods there are evicted, and none can be started")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "write /var/lib/cni/networks/lock: no space left on device";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
