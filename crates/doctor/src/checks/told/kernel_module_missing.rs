//! Reported by others: the kernel lacks a module.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel lacks a module that the network needs",
    explanation: "The node's kernel has no module for something that Felix, kube-proxy or flannel must do: match \
                  packets (xt_rpfilter, xt_set), hold sets (ip_set), make tunnels (vxlan, ipip) or see bridged \
                  packets (br_netfilter). Small kernels of clouds and single-board computers come without them, \
                  and a kernel update without a reboot leaves none to load.",
    remedy: "install the package with the remaining modules (linux-modules-extra-…) or another kernel, load the \
             module with modprobe, and reboot if the kernel was updated since the last boot",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::KernelModuleMissing, look)
};

const REPORT: Report = Report {
    explains: &[
        FindingCode::RulesNotWritten,
        FindingCode::TunnelNotMade,
        FindingCode::KubeProxyNotReady,
        FindingCode::CalicoNodeNotReady,
    ],
    ..Report::of(Trouble::ModuleMissing)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kernel of {place} lacks a module that the network needs"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "iptables-restore v1.8.4 (legacy): Couldn't load match `rpfilter':No such file or directory";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
