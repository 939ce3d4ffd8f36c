//! Node set-up: no file can be watched on a node.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "No file can be watched on a node",
    explanation: "Programs on the node cannot watch files any more: the limit of inotify instances or watches, or of open \
                  files, is reached. kube-proxy and the kubelet fail to start, and the runtime does not notice a new CNI \
                  configuration.",
    remedy: "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (and the limit of open files) in \
             /etc/sysctl.d",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::WatchesExhausted, look)
};

const REPORT: Report = Report {
    passes: true,
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::KubeletFailing, FindingCode::KubeProxyNotReady],
    ..Report::of(Trouble::WatchesExhausted)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("programs on {place} cannot watch files any more"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "failed to create fsnotify watcher: too many open files";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(finding.summary, "programs on node n1 cannot watch files any more");
        silent(&CHECK, &said_otherwise());
    }
}
