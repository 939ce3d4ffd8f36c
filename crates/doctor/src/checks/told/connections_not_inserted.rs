//! Reported by others: connections cannot be inserted.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Connections are lost because two packets open the same one",
    explanation: "The counter insert_failed grows: two packets of one socket opened the same connection at the \
                  same time, and the kernel dropped the second. Resolvers send queries for A and AAAA that way, so \
                  DNS answers are missing and lookups take five seconds.",
    remedy: "run NodeLocal DNS, or set options single-request-reopen (glibc) or use-vc in the pods' dnsConfig, and \
             update the kernel to 5.0 or later",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ConnectionsNotInserted, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::DnsFailing], ..Report::of(Trouble::ConnectionsNotInserted) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("connections are lost on {place} (insert_failed); DNS lookups are the first to suffer")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "conntrack: insert_failed is high: 270194";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
