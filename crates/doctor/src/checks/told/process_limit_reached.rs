//! Reported by others: no process can be started.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node can start no more processes",
    explanation: "A limit of processes or threads is reached, so neither plugins nor containers can be started. A \
                  program that leaks threads or zombies, or a low pid_max or pids.max, is the cause.",
    remedy: "find what has so many (ps -eLf | awk '{print $1}' | sort | uniq -c | sort -n | tail), and raise \
             kernel.pid_max or podPidsLimit if they are needed",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ProcessLimitReached, look)
};

const REPORT: Report = Report::of(Trouble::ProcessLimit);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("no more processes can be started on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "fork/exec /usr/bin/runc: resource temporarily unavailable";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
