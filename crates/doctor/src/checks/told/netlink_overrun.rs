//! Reported by others: felix misses messages of the kernel.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel drops messages to Felix",
    explanation: "Felix learns of devices, addresses and routes from the kernel, whose buffer for it was full, so \
                  messages were lost. Felix reads everything again, which takes time on nodes with very many \
                  devices or routes. Pods start late meanwhile.",
    remedy: "raise net.core.rmem_max and netlinkTimeoutSecs, and give calico-node more CPU",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::NetlinkOverrun, look)
};

const REPORT: Report = Report { least: 2, passes: true, ..Report::of(Trouble::NetlinkOverrun) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kernel of {place} drops messages to Felix"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to read from netlink socket error=no buffer space available netlink";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
