//! Node set-up: kernel killed a program of the network.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel killed a program of the network",
    explanation: "The kernel ran out of memory, or the program reached its own limit, and the kernel killed it. Until it \
                  has started again and read everything, the node follows no change; if it is killed over and over, it \
                  never does.",
    remedy: "raise the memory limit of the container (Felix and Typha need more in large clusters), or find what uses \
             the node's memory",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NetworkProgramKilled, look)
};

const REPORT: Report = Report {
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::KubeProxyNotReady],
    ..Report::of(Trouble::Killed)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| {
        format!("the kernel killed a program of the network for want of memory on {place}")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Memory cgroup out of memory: Killed process 4711 (calico-node) total-vm:1884308kB";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        assert_eq!(
            finding.summary,
            "the kernel killed a program of the network for want of memory on node n1"
        );
        silent(&CHECK, &said_otherwise());
    }
}
