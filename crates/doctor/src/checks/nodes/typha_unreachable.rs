//! Node set-up: Felix has no connection to Typha.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Felix has no connection to Typha",
    explanation: "Felix gets all its data through Typha and cannot connect to it. The node keeps what it has, learns of no \
                  new pod, node or policy, and calico-node is not ready. Typha may not run, its port 5473 may be blocked \
                  between nodes, or the certificates of the two do not match.",
    remedy: "check the calico-typha pods, that nodes reach each other on TCP port 5473, and the certificates of Typha \
             and Felix",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::TyphaUnreachable, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::TyphaUnreachable)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("Felix has no connection to Typha on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to connect to Typha. Retrying...";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "Felix has no connection to Typha on node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
