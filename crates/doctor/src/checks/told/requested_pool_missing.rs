//! Reported by others: a pod asks for a pool that is not there.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod or namespace asks for a pool that cannot be used",
    explanation: "An annotation (cni.projectcalico.org/ipv4pools), or the CNI configuration, names a pool that \
                  does not exist, is disabled, or is written in a way that cannot be read. Pods with it do not \
                  start.",
    remedy: "correct the annotation, or create or enable the pool; the value is a JSON list of names or networks, \
             such as [\"pool-1\"]",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RequestedPoolMissing, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::RequestedPoolMissing) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("pods on {place} ask for a pool that cannot be used"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "error parsing pool \"new-pool2\": invalid CIDR address: new-pool2";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
