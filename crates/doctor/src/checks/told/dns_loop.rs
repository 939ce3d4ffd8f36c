//! Reported by others: coreDNS asks itself.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "CoreDNS forwards queries to itself",
    explanation: "CoreDNS sends queries that it cannot answer to the name servers of its node's resolv.conf, and \
                  they come back to it. It stops itself then. The file names a local resolver (systemd-resolved's \
                  127.0.0.53, dnsmasq, NodeLocal DNS), which leads back to CoreDNS.",
    remedy: "set resolvConf in the kubelet's configuration to a file with real name servers (with systemd-resolved \
             /run/systemd/resolve/resolv.conf instead of the one with 127.0.0.53), or name them in the forward \
             line of the ConfigMap coredns; then delete the coredns pods",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::DnsLoop, look)
};

const REPORT: Report =
    Report { is_of_cluster: true, explains: &[FindingCode::DnsFailing], ..Report::of(Trouble::DnsLoop) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "CoreDNS has found a loop: its queries come back to itself".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "plugin/loop: Loop (127.0.0.1:38733 -> :53) detected for zone \".\"";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
    }
}
