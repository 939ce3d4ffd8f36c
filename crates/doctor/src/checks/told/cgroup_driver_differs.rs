//! Reported by others: two cgroup drivers are in use.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubelet and runtime use different cgroup drivers",
    explanation: "The kubelet manages cgroups in one way and the runtime in another, so containers do not start or \
                  are killed without a reason. calico-node and kube-proxy restart again and again.",
    remedy: "set SystemdCgroup = true for runc in /etc/containerd/config.toml and cgroupDriver: systemd in the \
             kubelet's configuration, then restart both",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CgroupDriverDiffers, look)
};

const REPORT: Report =
    Report { passes: true, explains: &[FindingCode::KubeletFailing], ..Report::of(Trouble::CgroupDriver) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("kubelet and runtime on {place} use different cgroup drivers"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "runc create failed: expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
