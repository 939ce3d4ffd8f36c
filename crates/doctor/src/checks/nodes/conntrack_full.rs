//! Node set-up: connection table of a node is full.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Connection table of a node is full",
    explanation: "The kernel's connection tracking table is full, so the node drops the first packet of every new \
                  connection. Pods, services and DNS fail at random while existing connections go on. Many short \
                  connections, or a limit that is too low for the machine, fill it.",
    remedy: "raise net.netfilter.nf_conntrack_max (kube-proxy sets it from conntrack.maxPerCore), and find what opens \
             so many connections: conntrack -S, conntrack -L",
    needs: &[&[Need::Log], &[Need::Events], &[Need::Sysctls]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ConntrackFull, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::ConnectionsFull) };

const COUNT: &str = "net/netfilter/nf_conntrack_count";
const MAX: &str = "net/netfilter/nf_conntrack_max";

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        let read = |path| {
            let value = host.node.kernel.sysctl(path)?;
            Some((value, value.seen.trim().parse::<u64>().ok()?))
        };
        let (Some((count, held)), Some((limit, max))) = (read(COUNT), read(MAX)) else { continue };
        if held >= max && max > 0 {
            let name = host.name();
            look.found(
                name,
                format!("the connection tracking table of node {name} is full: {held} of {max} entries"),
            )
            .known_by("full")
            .seen(count.exhibit(format!("{COUNT} = {held}")))
            .seen(limit.exhibit(format!("{MAX} = {max}")))
            .explains(FindingCode::ConntrackFull, name);
        }
    }
    REPORT.tell(case, look, |place| {
        format!("the connection tracking table of {place} is full, and new connections are dropped")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    #[test]
    fn fires_for_a_count_at_its_limit() {
        let text = "[root@n1 ~]# sysctl -a\nnet.netfilter.nf_conntrack_count = 65536\nnet.netfilter.nf_conntrack_max = 65536\n";
        let finding = only(&CHECK, &intake::read([("a.txt", text.as_bytes())]));
        assert!(finding.summary.ends_with("is full: 65536 of 65536 entries"), "{}", finding.summary);
        let text = text.replace("count = 65536", "count = 812");
        silent(&CHECK, &intake::read([("a.txt", text.as_bytes())]));
    }

    const LINE: &str = "nf_conntrack: nf_conntrack: table full, dropping packet";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(
            finding.summary,
            "the connection tracking table of node n1 is full, and new connections are dropped"
        );
        silent(&CHECK, &said_otherwise());
    }
}
