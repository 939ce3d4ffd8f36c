//! Node set-up: the kubelet does not start, because swap is on.

use std::collections::BTreeMap;

use model::NodeName;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::{Exhibit, Happening};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubelet refuses to start because swap is on",
    explanation: "The kubelet does not start while swap is on, unless it is configured to (failSwapOn: \
                  false). Swap that was turned off by hand, but not in /etc/fstab, comes back at the next \
                  boot, and the node stays NotReady.",
    remedy: "run swapoff -a, remove the swap lines from /etc/fstab (or the systemd swap unit), then restart \
             the kubelet",
    needs: &[&[Need::Log], &[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::KubeletRefusesSwap, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut nodes: BTreeMap<NodeName, Vec<Exhibit>> = BTreeMap::new();
    for event in case.log.iter().flatten() {
        // Kubelets before 1.23 say it as their last words, later ones as an error before they exit.
        let (Happening::Fatal { message, .. } | Happening::Error { message, .. }) = &event.seen.what else {
            continue;
        };
        if let Some(node) = event.seen.node.as_ref()
            && message.contains("running with swap on is not supported")
        {
            nodes.entry(super::spelled(case, node)).or_default().push(event.exhibit(message.clone()));
        }
    }
    for node in case.evidence.nodes.values() {
        let units = node.setup.units.iter().flatten();
        let mut kubelet =
            units.filter(|(name, _)| name.trim_end_matches(".service") == "kubelet").map(|(_, state)| state);
        if let (Some(swaps), Some(state)) = (&node.setup.swaps, kubelet.next())
            && !swaps.seen.is_empty()
            && matches!(state.seen.as_str(), "failed" | "activating")
        {
            let exhibits = nodes.entry(super::spelled(case, &node.name)).or_default();
            exhibits.push(swaps.exhibit(format!("swap is on: {}", swaps.seen.join(", "))));
            exhibits.push(state.exhibit(format!("kubelet is {}", state.seen)));
        }
    }
    for (node, exhibits) in nodes {
        look.found(&node, format!("the kubelet on {node} does not start, because swap is on"))
            .explains(FindingCode::KubeletFailing, &node)
            .explains(FindingCode::NodeNotReady, &node)
            .seen_all(exhibits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, LogEvent, Origin, Sighted};

    #[test]
    fn fires_for_swap_and_a_kubelet_that_is_down() {
        let mut evidence = small();
        let setup = &mut evidence.node_mut("worker-0000").setup;
        setup.swaps.as_mut().unwrap().seen.push("/dev/sda2".to_owned());
        silent(&CHECK, &evidence);
        let setup = &mut evidence.node_mut("worker-0000").setup;
        setup.units.as_mut().unwrap().get_mut("kubelet.service").unwrap().seen = "activating".to_owned();
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "node worker-0000");
        let shown: Vec<&str> = finding.evidence.iter().map(|exhibit| exhibit.text.as_str()).collect();
        assert_eq!(shown, ["swap is on: /dev/sda2", "kubelet is activating"]);
    }

    #[test]
    fn a_kubelet_that_was_stopped_did_not_refuse() {
        let mut evidence = small();
        let setup = &mut evidence.node_mut("worker-0000").setup;
        setup.swaps.as_mut().unwrap().seen.push("/dev/sda2".to_owned());
        setup.units.as_mut().unwrap().get_mut("kubelet.service").unwrap().seen = "inactive".to_owned();
        silent(&CHECK, &evidence);
    }

    #[test]
    fn fires_for_the_kubelets_last_words() {
        let words = "failed to run Kubelet: running with swap on is not supported, please disable swap!";
        let (program, message) = ("kubelet".to_owned(), words.to_owned());
        let last_words = Happening::Fatal { program: program.clone(), message: message.clone() };
        let error = Happening::Error {
            program: program.clone(),
            message: format!("\"command failed\" err=\"{words}\""),
        };
        let log = |what: Happening| {
            let event = LogEvent { at: None, node: Some("a".into()), what, count: 1, last_at: None };
            let log = Some(vec![Sighted::new(event, Origin::line("kubelet.log", 12, "F0526 …"))]);
            Evidence { log, ..Evidence::default() }
        };
        assert_eq!(only(&CHECK, &log(last_words)).evidence[0].line, Some(12));
        assert_eq!(only(&CHECK, &log(error)).evidence[0].line, Some(12));
        silent(&CHECK, &log(Happening::Fatal { program, message: "out of memory".to_owned() }));
    }
}
