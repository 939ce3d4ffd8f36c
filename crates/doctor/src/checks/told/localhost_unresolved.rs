//! Reported by others: localhost is not resolved.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node does not resolve localhost",
    explanation: "Felix and its probes use the name localhost, and the node asks a name server for it because \
                  /etc/hosts has no line for it. calico-node is not ready, or is restarted by its liveness probe, \
                  as often as the answer is slow or wrong.",
    remedy: "add 127.0.0.1 localhost (and ::1 localhost) to /etc/hosts of the node, or set healthHost: 127.0.0.1 \
             in FelixConfiguration",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::LocalhostUnresolved, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::LocalhostUnresolved) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("{place} does not resolve localhost"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Liveness probe failed: calico/node is not ready: Felix is not live: Get http://localhost:9099/liveness: dial tcp: lookup localhost on 192.0.2.53:53: no such host";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
