//! Reported by others: the runtime has no image for sandboxes.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Runtime cannot get the sandbox image",
    explanation: "Every pod needs the sandbox image (pause), and the runtime can neither find nor pull it: the \
                  registry is unreachable or refuses, or the runtime's configuration names an image that is not \
                  there. No pod starts on the node, and no network is set up.",
    remedy: "make the image available (crictl pull, or ctr -n k8s.io images import), or set sandbox_image in \
             /etc/containerd/config.toml to one that the node can pull, then restart containerd",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::SandboxImageMissing, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::SandboxImage) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the runtime on {place} cannot get the sandbox image (pause)"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "failed to get sandbox image \"registry.example/pause:3.8\": failed to pull image";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
