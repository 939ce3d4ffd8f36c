//! Reported by others: the operator refuses a pool.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Operator refuses the pool of the installation",
    explanation: "The operator compares the pools of the Installation with the pod network that the cluster was \
                  created with (kubeadm's podSubnet), and does nothing until they fit. Calico is not installed, so \
                  nodes stay without a network.",
    remedy: "set spec.calicoNetwork.ipPools[0].cidr of the Installation default to a network within the cluster's \
             pod network, or create the cluster again with --pod-network-cidr set to the pool",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::OperatorRefusesPool, look)
};

const REPORT: Report = Report {
    is_of_cluster: true,
    explains: &[
        FindingCode::NodeNotReady,
        FindingCode::CniPluginMissing,
        FindingCode::NodeNetworkUnavailable,
    ],
    ..Report::of(Trouble::OperatorRefuses)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| {
        "the operator installs nothing because a pool lies outside the cluster's pod network".to_owned()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "IPPool 192.168.0.0/16 is not within the platform's configured pod network CIDR(s) [10.244.0.0/16]";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
    }
}
