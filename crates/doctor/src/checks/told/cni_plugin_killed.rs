//! Reported by others: the plugin is killed.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "CNI plugin is killed before it ends",
    explanation: "The runtime started the plugin, which was killed or ended without a word. A memory limit of the \
                  runtime's cgroup, the kernel's out-of-memory killer, or a plugin that hangs until the runtime \
                  gives up lead to this.",
    remedy: "look into dmesg for killed processes at that time, and at the memory limit of containerd's and the \
             kubelet's systemd slices",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::CniPluginKilled, look)
};

const REPORT: Report = Report { least: 2, passes: true, ..Report::of(Trouble::PluginKilled) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the CNI plugin is killed before it ends on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "netplugin failed with no error message: signal: killed";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
