//! Node set-up: the plugin takes this node for another.

use model::NodeName;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "nodename file contains another node's name",
    explanation: "The CNI plugin reads the node's name from /var/lib/calico/nodename, but that name differs \
                  from the one under which the node is registered. Its pods are recorded for the other node: \
                  their addresses are counted there, and garbage collection assumes that the pods have moved \
                  and releases addresses that are in use. Cloned machines and templates often contain such \
                  files.",
    remedy: "stop the node's pods, write the correct name into the file (or delete it and restart the \
             agent), then recreate the pods",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodenameDiffers, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(file) = &node.setup.nodename_file else { continue };
        let written = NodeName::from(file.seen.trim());
        let (registered, exhibit) = match &node.setup.node_name {
            Some(name) => (&name.seen, Some(name.exhibit(format!("registered as {}", name.seen)))),
            None => (&node.name, None),
        };
        if written.is_empty() || written == *registered {
            continue;
        }
        let summary = format!(
            "the nodename file of {registered} contains \
                                                           {written}"
        );
        let finding = look.found(&node.name, summary);
        finding.seen(file.exhibit(written.as_str())).seen_all(exhibit);
        for endpoint in case.endpoints_on(&written) {
            finding.explains(FindingCode::EndpointMisplaced, &endpoint.seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_another_name_and_not_for_another_case() {
        let mut evidence = small();
        evidence.node_mut("worker-0000").setup.nodename_file.as_mut().unwrap().seen =
            "Worker-0000\n".to_owned();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").setup.nodename_file.as_mut().unwrap().seen = "template\n".to_owned();
        assert_eq!(only(&CHECK, &evidence).summary, "the nodename file of worker-0000 contains template");
    }
}
