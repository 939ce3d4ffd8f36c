//! Reported by others: the plugin of another network is called.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pods are given to a network that does not run",
    explanation: "The runtime calls the plugin of a network whose program does not run on the node. A network that \
                  was removed left its configuration in /etc/cni/net.d, and that comes first, or the network that \
                  is meant has not started.",
    remedy: "if that network is not wanted, move its file out of /etc/cni/net.d on the node (and its DaemonSet out \
             of the cluster), then delete the pods that wait; else look at its own pod on the node",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::OtherNetworkLeft, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::OtherNetworkLeft) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("pods on {place} are given to a network whose program does not run there")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "plugin type=\"cilium-cni\" failed (add): unable to connect to Cilium daemon: failed to create cilium agent client: dial unix /var/run/cilium/cilium.sock: connect: no such file or directory";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
