//! Node set-up: the plugin takes this node for another.

use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "nodename-differs",
    severity: Severity::Error,
    title: "A node whose nodename file names another",
    explanation: "The plugin reads the node's name from /var/lib/calico/nodename, and that is another name \
                  than the node registers under. Its pods are recorded for the other node: their addresses \
                  are counted there, garbage collection takes them for moved, and frees what is in use. \
                  Cloned machines and templates carry such files.",
    remedy: "stop the node's pods, write the right name into the file (or remove it and restart the agent), \
             then recreate the pods",
    needs: &[&[Need::Setup]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        let Some(file) = &node.setup.nodename_file else { continue };
        let written = file.seen.trim();
        let (registered, exhibit) = match &node.setup.node_name {
            Some(name) => {
                (name.seen.trim(), Some(name.exhibit(format!("registers as {}", name.seen.trim()))))
            }
            None => (node.name.as_str(), None),
        };
        if written.is_empty() || written.eq_ignore_ascii_case(registered) {
            continue;
        }
        let finding =
            look.found(Subject::node(&node.name), format!("{registered} has {written} in its nodename file"));
        finding.seen(file.exhibit(written)).seen_all(exhibit);
        for endpoint in case.endpoints_on(written) {
            finding.explains("endpoint-misplaced", crate::checks::words::endpoint_subject(&endpoint.seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_another_name_and_not_for_another_case() {
        let mut evidence = small();
        evidence.node_mut("worker-0000").setup.nodename_file.as_mut().unwrap().seen =
            "Worker-0000\n".to_owned();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").setup.nodename_file.as_mut().unwrap().seen = "template\n".to_owned();
        assert_eq!(only(&CHECK, &evidence).summary, "worker-0000 has template in its nodename file");
    }
}
