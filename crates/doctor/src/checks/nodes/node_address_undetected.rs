//! Node set-up: calico-node finds no address for its node.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "calico-node finds no address for its node",
    explanation: "calico-node looks for the node's address with IP_AUTODETECTION_METHOD and finds none, so it exits and \
                  starts again. The node has no network for new pods. The method names a NIC or a network that this machine \
                  does not have, or the NIC came up later than calico-node.",
    remedy: "correct IP_AUTODETECTION_METHOD (nodeAddressAutodetectionV4 of the Installation) so that it matches a NIC \
             on every node, or set IP",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodeAddressUndetected, look)
};

const REPORT: Report = Report {
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::NodeAddressMissing],
    ..Report::of(Trouble::NodeAddressUndetected)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("calico-node finds no address on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Unable to auto-detect an IPv4 address using interface regexes [eth9]: no valid host interfaces found";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "calico-node finds no address on node n1");
        silent(&CHECK, &said_otherwise());
    }
}
