//! Reported by others: the plugin's credentials are of another cluster.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "CNI plugin trusts the certificate authority of another cluster",
    explanation: "The plugin's credentials in /etc/cni/net.d/calico-kubeconfig hold a certificate authority that \
                  did not sign this cluster's API server. The file is left from an earlier cluster on the same \
                  machine (kubeadm reset does not remove it), or the cluster's authority was replaced. No pod gets \
                  a network on this node.",
    remedy: "delete /etc/cni/net.d/calico-kubeconfig on the node and restart its calico-node pod, which writes the \
             file again with the current certificate authority",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ClusterAuthorityChanged, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::ForeignAuthority) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the plugin's calico-kubeconfig on {place} has the certificate authority of another cluster")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis\": x509: certificate signed by unknown authority";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
