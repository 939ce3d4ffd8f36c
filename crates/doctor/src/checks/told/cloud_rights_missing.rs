//! Reported by others: felix lacks rights in the cloud.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Felix may not change the machine in the cloud",
    explanation: "Felix is told to switch off the source/destination check of its machine (awsSrcDstCheck), and \
                  the machine's role does not permit it. The check stays on, so packets of pods that leave without \
                  a tunnel are dropped.",
    remedy: "give the nodes' role the rights ec2:DescribeInstances and ec2:ModifyNetworkInterfaceAttribute, or \
             switch the check off by hand (aws ec2 modify-instance-attribute --no-source-dest-check)",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::CloudRightsMissing, look)
};

const REPORT: Report = Report::of(Trouble::CloudRightsMissing);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("Felix may not switch off the source/destination check on {place}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Error modify network interface attribute source-destination-check error=UnauthorizedOperation: You are not authorized";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
