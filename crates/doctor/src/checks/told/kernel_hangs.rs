//! Reported by others: the kernel hangs.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel reports that it hangs",
    explanation: "Processors or tasks of the node make no progress for minutes: an overloaded or paused virtual \
                  machine, a disk that does not answer, or a fault of the kernel. Health checks fail and BGP \
                  sessions end although nothing is wrong with the network.",
    remedy: "check the hypervisor's load (steal in top), the disks and the kernel's version",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::KernelHangs, look)
};

const REPORT: Report = Report::of(Trouble::KernelHangs);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kernel of {place} reports that it hangs"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:211]";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
