//! Reported by others: bPF programs are refused.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel refuses Felix's BPF programs",
    explanation: "The eBPF data plane is on, and the kernel does not load Felix's programs: it is too old, the BPF \
                  file system is not mounted, or calico-node may not do it. The node's pods have no network, or an \
                  older state of it.",
    remedy: "use a kernel of 5.10 or later with BTF, mount /sys/fs/bpf, run calico-node privileged; or set \
             bpfEnabled: false in FelixConfiguration",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BpfProgramRefused, look)
};

const REPORT: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::BpfRefused) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kernel of {place} refuses Felix's BPF programs"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "BPF enabled but not supported by kernel (disabling) error=kernel too old";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
