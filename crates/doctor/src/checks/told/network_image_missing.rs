//! Reported by others: a network program's image is missing.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Image of a network program cannot be pulled",
    explanation: "A program that the pod network needs (calico-node, kube-proxy, Typha, CoreDNS …) does not start \
                  because its image cannot be pulled: the name or tag is wrong, the registry refuses or limits the \
                  pulls, or is not reachable from the node.",
    remedy: "pull the image on the node by hand (crictl pull) to see the reason; correct the name, the registry's \
             credentials or the mirror",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NetworkImageMissing, look)
};

const REPORT: Report = Report {
    passes: true,
    explains: &[
        FindingCode::KubeProxyNotReady,
        FindingCode::ServiceAddressUnreachable,
        FindingCode::CalicoNodeNotReady,
        FindingCode::NodeNotReady,
        FindingCode::NodeNetworkUnavailable,
        FindingCode::CniPluginMissing,
    ],
    ..Report::of(Trouble::ImageMissing)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the image of a network program cannot be pulled on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to pull image \"registry.example/calico/node:v3.28.0\": toomanyrequests";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
