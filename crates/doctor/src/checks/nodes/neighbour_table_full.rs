//! Node set-up: neighbour table of a node is full.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Neighbour table of a node is full",
    explanation: "The kernel's neighbour (ARP) table has reached its limit. The node cannot resolve further addresses, so \
                  packets to some pods and nodes are dropped. The limit of 1024 entries is too low for large flat networks \
                  and for nodes with many pods.",
    remedy: "raise net.ipv4.neigh.default.gc_thresh1, gc_thresh2 and gc_thresh3 (IPv6: net.ipv6.neigh.default), and \
             make the setting permanent in /etc/sysctl.d",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NeighbourTableFull, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::NeighboursFull) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the neighbour table of {place} is full, and packets to further addresses are dropped")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "neighbour: arp_cache: neighbor table overflow!";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(
            finding.summary,
            "the neighbour table of node n1 is full, and packets to further addresses are dropped"
        );
        silent(&CHECK, &said_otherwise());
    }
}
