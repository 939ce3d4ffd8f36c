//! Reported by others: the runtime has its CRI switched off.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Runtime does not offer the CRI that the kubelet asks for",
    explanation: "containerd runs, but its CRI plugin is disabled or too old, so the kubelet cannot start. \
                  Packages of containerd from Docker's repository come with disabled_plugins = [\"cri\"].",
    remedy: "remove cri from disabled_plugins in /etc/containerd/config.toml (or update containerd), restart \
             containerd, then the kubelet",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::RuntimeWithoutCri, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::KubeletFailing, FindingCode::NodeNotReady],
    ..Report::of(Trouble::RuntimeWithoutCri)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("containerd on {place} does not offer the CRI: its CRI plugin is disabled or too old")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "rpc error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
