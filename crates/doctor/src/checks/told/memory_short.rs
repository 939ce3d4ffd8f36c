//! Reported by others: memory is short.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node is short of memory",
    explanation: "The kubelet reports memory pressure. It evicts pods and takes no new ones, and the kernel may \
                  kill what the network needs.",
    remedy: "find what uses the memory (kubectl top pods, systemd-cgtop), set requests and limits, and reserve \
             memory for the system (systemReserved)",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::MemoryShort, look)
};

const REPORT: Report = Report::of(Trouble::MemoryShort);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("{place} is short of memory"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "kubelet has insufficient memory available";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
