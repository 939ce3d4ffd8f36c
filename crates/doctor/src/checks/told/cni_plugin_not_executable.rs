//! Reported by others: the plugin is there and cannot be run.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "CNI plugin cannot be executed",
    explanation: "The plugin's file in /opt/cni/bin exists, but the kernel refuses to run it: the file system is \
                  mounted noexec, the file has no execute permission, a security module denies it, or it is built \
                  for another processor.",
    remedy: "check ls -lZ /opt/cni/bin and findmnt -T /opt/cni/bin (noexec), and that the images fit the node's \
             processor; then restart calico-node, which writes the file again",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CniPluginNotExecutable, look)
};

const REPORT: Report = Report {
    passes: true,
    explains: &[FindingCode::NodeNotReady],
    ..Report::of(Trouble::PluginNotExecutable)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the CNI plugin cannot be executed on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "fork/exec /opt/cni/bin/calico: permission denied";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
