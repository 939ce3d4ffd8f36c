//! Node set-up: the kubelet is not running, or fails again and again.

use std::collections::BTreeMap;

use model::NodeName;

use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{Exhibit, Happening};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubelet is not running or keeps failing",
    explanation: "The kubelet's unit is not active, or its log shows repeated failures and restarts. Without \
                  a kubelet, pods on the node are not started, stopped or reported, and Kubernetes shows \
                  their last known state.",
    remedy: "check the last lines of journalctl -u kubelet for the reason",
    needs: &[&[Need::Log], &[Need::Setup]],
    ..Check::error(FindingCode::KubeletFailing, look)
};

/// One failure is a restart.
const FAILURES_MIN: u32 = 2;

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut failures: BTreeMap<NodeName, (u32, Vec<Exhibit>)> = BTreeMap::new();
    for event in case.log.iter().flatten() {
        if let (Happening::UnitFailed { unit }, Some(node)) = (&event.seen.what, event.seen.node.as_ref())
            && unit == "kubelet"
        {
            let (count, exhibits) = failures.entry(super::spelled(case, node)).or_default();
            *count += event.seen.count;
            exhibits.push(event.exhibit("kubelet.service failed"));
        }
    }
    for (node, (count, exhibits)) in failures.into_iter().filter(|(_, (count, _))| *count >= FAILURES_MIN) {
        look.found(&node, format!("the kubelet on {node} fails repeatedly"))
            .because(format!("the log has {count} lines about its failures"))
            .explains(FindingCode::NodeNotReady, &node)
            .seen_all(exhibits);
    }
    for node in case.evidence.nodes.values() {
        let units = node.setup.units.iter().flatten();
        for (_, state) in units.filter(|(name, _)| name.trim_end_matches(".service") == "kubelet") {
            if state.seen != "active" && state.seen != "reloading" {
                look.found(&node.name, format!("the kubelet on {} is {}", node.name, state.seen))
                    .explains(FindingCode::NodeNotReady, &node.name)
                    .seen(state.exhibit(format!("kubelet.service is {}", state.seen)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, LogEvent, Origin, Sighted};

    #[test]
    fn fires_for_a_unit_that_is_down() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let setup = &mut evidence.node_mut("worker-0000").setup;
        setup.units.as_mut().unwrap().get_mut("kubelet.service").unwrap().seen = "failed".to_owned();
        assert_eq!(only(&CHECK, &evidence).summary, "the kubelet on worker-0000 is failed");
    }

    #[test]
    fn one_failure_in_a_log_is_a_restart() {
        let log = |count: u32| {
            let what = Happening::UnitFailed { unit: "kubelet".to_owned() };
            let event = LogEvent { at: None, node: Some("a".into()), what, count, last_at: None };
            Evidence {
                log: Some(vec![Sighted::new(event, Origin::line("k.log", 1, "…"))]),
                ..Evidence::default()
            }
        };
        silent(&CHECK, &log(1));
        assert_eq!(only(&CHECK, &log(3)).subject.to_string(), "node a");
    }
}
