//! Reported by others: two speakers have one router ID.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Two BGP speakers have one router ID",
    explanation: "A peer refuses the session because its own router ID is the same. The router ID is the node's \
                  address unless CALICO_ROUTER_ID is set; cloned settings and the hash mode may give two nodes \
                  one.",
    remedy: "unset CALICO_ROUTER_ID, or give each node its own value, and restart calico-node",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BgpIdentifierShared, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::BgpSessionDown], ..Report::of(Trouble::IdentifierShared) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("a BGP peer of {place} has the same router ID"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "bird: Mesh_10_0_0_2: Error: Bad BGP identifier: 10.0.0.1";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
