//! Reported by others: the kubelet has another node's name.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubelet reports under a name that is not its own",
    explanation: "The kubelet's certificate is for one node's name and it reports as another. The host name \
                  changed, --hostname-override is wrong, or a machine was cloned together with its credentials. \
                  The API server refuses what it reports.",
    remedy: "give the machine its own name back, or reset it and join it again under the new one; never join a \
             clone with the credentials of its original",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::KubeletNameRefused, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::NodeNotReady], ..Report::of(Trouble::NodeNameRefused) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kubelet on {place} reports under another node's name"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
