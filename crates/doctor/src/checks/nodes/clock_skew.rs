//! Node set-up: clocks that disagree.

use jiff::SignedDuration;

use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

/// Being asked takes time, too.
const TOLERATED: SignedDuration = SignedDuration::from_secs(5);

pub(in crate::checks) const CHECK: Check = Check {
    code: "clock-skew",
    severity: Severity::Warning,
    title: "A node's clock is off",
    explanation: "A node's clock is more than a few seconds off. Leases and certificates go by the clock, \
                  and so does the reuse delay of addresses: an address that one node released may be given \
                  out too early by another. Logs cannot be compared.",
    remedy: "synchronise the node's clock (chrony or systemd-timesyncd)",
    needs: &[&[Need::Setup]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(ahead) = &node.setup.clock_ahead else { continue };
        if ahead.seen.abs() <= TOLERATED {
            continue;
        }
        let direction = if ahead.seen.is_negative() { "behind" } else { "ahead" };
        let seconds = ahead.seen.abs().as_secs();
        look.found(
            Subject::node(&node.name),
            format!("the clock of {} is {seconds} s {direction}", node.name),
        )
        .known_by(direction)
        .seen(ahead.exhibit(format!("{seconds} s {direction}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_in_either_direction() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let clock = evidence.node_mut("worker-0000").setup.clock_ahead.as_mut().unwrap();
        clock.seen = SignedDuration::from_secs(-90);
        assert_eq!(only(&CHECK, &evidence).summary, "the clock of worker-0000 is 90 s behind");
    }
}
