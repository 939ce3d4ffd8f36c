//! Reported by others: a kernel setting cannot be changed.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Network program may not change a kernel setting",
    explanation: "A program of the network must set a kernel parameter and may not. Inside containers (kind, k3d, \
                  minikube, LXC) newer kernels allow nf_conntrack_max only from outside. kube-proxy ends for that, \
                  so no service works, the API's among them.",
    remedy: "set the value on the machine itself (sysctl -w net.netfilter.nf_conntrack_max=131072), or tell \
             kube-proxy to leave it (conntrack.maxPerCore: 0 in its ConfigMap)",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::KernelSettingDenied, look)
};

const REPORT: Report = Report {
    explains: &[
        FindingCode::KubeProxyNotReady,
        FindingCode::ServiceAddressUnreachable,
        FindingCode::NodeNotReady,
        FindingCode::CalicoNodeNotReady,
        FindingCode::NodeNetworkUnavailable,
    ],
    ..Report::of(Trouble::SettingDenied)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("a network program may not change a kernel setting on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "open /proc/sys/net/netfilter/nf_conntrack_max: permission denied";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
