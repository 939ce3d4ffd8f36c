//! Reported by others: the runtime does not answer, or too late.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Container runtime does not answer",
    explanation: "The kubelet gets no answer from the container runtime, or not in time. Pods are neither started \
                  nor stopped, and DELs wait. An overloaded disk, a hanging containerd, or one that does not run \
                  are the usual causes.",
    remedy: "check systemctl status containerd, the disk's load and journalctl -u containerd, then restart \
             containerd; running pods keep running",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RuntimeNotAnswering, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[FindingCode::NodeNotReady, FindingCode::KubeletFailing],
    ..Report::of(Trouble::RuntimeDown)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the container runtime on {place} does not answer"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "skipping pod synchronization - PLEG is not healthy: pleg was last seen active 5m0s ago";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
