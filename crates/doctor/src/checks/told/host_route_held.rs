//! Reported by others: an address is still routed elsewhere.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Route of a new pod's address points to another device",
    explanation: "The plugin sets a route for the new pod's address and finds one for the same address that leads \
                  to another device. The address was released while an earlier pod, or what is left of it, still \
                  has it. Calico's plugin gives up then, and the pod does not start.",
    remedy: "run plumb doctor on the node to see who has the address; plumb repair finding route-without-endpoint \
             --apply removes a route whose pod is gone",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::HostRouteHeld, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::HostRouteHeld) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("a new pod's address is still routed to another device on {place}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "error adding host side routes for interface: cali12, error: route (Dst: 10.0.0.7/32) already exists for an interface other than 'cali12'";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
