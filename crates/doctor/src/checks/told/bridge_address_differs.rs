//! Reported by others: the bridge has another address.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Bridge of the node has another subnet's address",
    explanation: "The bridge plugin finds an address on cni0 that is not of the subnet which the node has now. The \
                  node was removed and added again, or flannel lost its lease and got another one, and the old \
                  bridge stayed. New pods do not start; old ones keep addresses that other nodes look for \
                  elsewhere.",
    remedy: "drain the node, delete the bridge (ip link delete cni0), and let the pods be created again",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BridgeAddressDiffers, look)
};

const REPORT: Report = Report { passes: true, ..Report::of(Trouble::BridgeAddress) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("cni0 on {place} has an address of another subnet"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "failed to set bridge addr: \"cni0\" already has an IP address different from 10.244.3.1/24";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
