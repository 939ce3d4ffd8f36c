//! Node set-up: connection table of a node is full.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Connection table of a node is full",
    explanation: "The kernel's connection tracking table is full, so the node drops the first packet of every new \
                  connection. Pods, services and DNS fail at random while existing connections go on. Many short \
                  connections, or a limit that is too low for the machine, fill it.",
    remedy: "raise net.netfilter.nf_conntrack_max (kube-proxy sets it from conntrack.maxPerCore), and find what opens \
             so many connections: conntrack -S, conntrack -L",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ConntrackFull, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::ConnectionsFull) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the connection tracking table of {place} is full, and new connections are dropped")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "nf_conntrack: nf_conntrack: table full, dropping packet";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(
            finding.summary,
            "the connection tracking table of node n1 is full, and new connections are dropped"
        );
        silent(&CHECK, &said_otherwise());
    }
}
