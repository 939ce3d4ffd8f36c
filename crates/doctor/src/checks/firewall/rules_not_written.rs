//! Packet rules: packet rules cannot be written.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Packet rules cannot be written",
    explanation: "Felix or kube-proxy fails to write its iptables or nftables rules. Rules of services and policies are \
                  outdated: new services do not answer, and pods that were replaced keep being addressed. Another program \
                  that holds the lock, a mix of iptables-legacy and iptables-nft, or a missing kernel module cause it.",
    remedy: "read the error beside it; make all programs use the same iptables variant (FelixConfiguration \
             iptablesBackend), and check that the kernel modules it names exist",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RulesNotWritten, look)
};

const REPORT: Report = Report {
    least: 3,
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::KubeProxyNotReady],
    ..Report::of(Trouble::RulesNotWritten)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("packet rules cannot be written on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to execute iptables-restore: exit status 2";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 3));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "packet rules cannot be written on node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 2));
    }
}
