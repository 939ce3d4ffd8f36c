//! Reported by others: multus waits.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Multus waits for another network or an attachment definition",
    explanation: "Multus comes first on the node and calls other plugins. It finds neither the file of the default \
                  network, nor the NetworkAttachmentDefinition that a pod names. Pods do not start.",
    remedy: "check that the default network's pod runs on the node and writes its file to /etc/cni/net.d, and that \
             the definition exists in the pod's namespace",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::MetaPluginWaits, look)
};

const REPORT: Report =
    Report { passes: true, explains: &[FindingCode::NodeNotReady], ..Report::of(Trouble::MetaPluginWaits) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("Multus on {place} lacks the default network or an attachment definition")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "have you checked that your default network is ready? still waiting for readinessindicatorfile @ /host/etc/cni/net.d/10-calico.conflist";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
