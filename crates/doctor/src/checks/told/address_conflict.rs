//! Reported by others: an address is used twice.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Another machine uses this node's address",
    explanation: "The kernel or the network manager found another machine that answers to an address of this node. \
                  Packets go to the one or the other.",
    remedy: "find the other machine by the hardware address (arping -D, ip neigh on a third machine) and give one \
             of the two another address",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::AddressConflict, look)
};

const REPORT: Report = Report::of(Trouble::AddressConflict);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("another machine uses an address of {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "conflict: duplicate address detected for 192.0.2.7 on eth0, used by 52:54:00:aa:00:01";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
