//! Reported by others: a device cannot be removed.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel cannot remove a network device",
    explanation: "The kernel waits for the last user of a network device that is being deleted. It is a fault of \
                  the kernel. While it lasts, no network namespace can be created or removed on the node: pods \
                  neither start nor stop.",
    remedy: "drain and reboot the node, and update its kernel",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::KernelDeviceStuck, look)
};

const REPORT: Report = Report { least: 2, ..Report::of(Trouble::DeviceStuck) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("the kernel of {place} cannot remove a network device"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "unregister_netdevice: waiting for lo to become free. Usage count = 1";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
