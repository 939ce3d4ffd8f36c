//! Reported by others: names are not resolved.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Names are not resolved in time",
    explanation: "Programs in pods or CoreDNS itself wait for name servers that do not answer. Either the way from \
                  pods to CoreDNS is broken, or CoreDNS cannot reach the name servers outside, or answers are lost \
                  for want of connection entries.",
    remedy: "resolve a name from a pod directly at a CoreDNS pod's address, then at the service's: what works \
             tells whether pod network, kube-proxy or the name servers outside are at fault",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::DnsFailing, look)
};

const REPORT: Report = Report { least: 3, is_of_cluster: true, ..Report::of(Trouble::DnsFailing) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "name servers do not answer in time".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "dial tcp: lookup cart.shop.svc on 10.96.0.10:53: read udp 10.4.9.31:41022->10.96.0.10:53: i/o timeout";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 3));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 2));
    }
}
