//! DEL always ends: one that fails and is tried again and again.

use std::collections::BTreeMap;

use super::{calls, clock, short};
use crate::evidence::log::CniCommand;
use crate::evidence::{Happening, LogEvent, PodName};
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "del-retried",
    severity: Severity::Warning,
    title: "A DEL that fails and is retried",
    explanation: "Stopping a sandbox fails, and the kubelet tries again and again. A DEL must succeed when there is nothing left to delete; plugins \
                  that fail then keep the sandbox and its records half alive, and each retry may hit whoever has the pod's name by then.",
    remedy: "see what the DEL complains of; upgrade a plugin that fails for what is already gone",
    needs: &[&[Need::Log]],
    settles: Settles::AtOnce,
    look,
};

#[derive(Default)]
struct Tries<'e> {
    pod: Option<&'e PodName>,
    failures: u32,
    calls: u32,
    events: Vec<&'e Sighted<LogEvent>>,
    error: Option<&'e str>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut tries: BTreeMap<&str, Tries<'_>> = BTreeMap::new();
    for event in case.evidence.log.iter().flatten() {
        if let Happening::SandboxStopFailed { container_id, pod, error } = &event.seen.what {
            let of_sandbox = tries.entry(container_id).or_default();
            of_sandbox.failures += event.seen.count;
            of_sandbox.pod = of_sandbox.pod.or(pod.as_ref());
            of_sandbox.error.get_or_insert(error);
            of_sandbox.events.push(event);
        }
    }
    for del in calls(case).into_values().flatten().filter(|call| call.command == CniCommand::Del) {
        let has_failed =
            del.happened(|what| matches!(what, Happening::CniFailed { command: CniCommand::Del, .. }));
        if has_failed || tries.contains_key(del.container_id) {
            let of_sandbox = tries.entry(del.container_id).or_default();
            of_sandbox.calls += 1;
            of_sandbox.pod = of_sandbox.pod.or(del.pod);
            of_sandbox.events.push(del.start);
        }
    }
    for (id, tries) in tries.into_iter().filter(|(_, tries)| {
        tries.failures + tries.calls > 1
            && (tries.failures > 1
                || tries.calls > 1
                || tries.events.iter().any(|event| is_later_call(event, &tries.events)))
    }) {
        let whose = tries.pod.map_or_else(String::new, |pod| format!(" of pod {pod}"));
        let finding = look.found(
            Subject::Sandbox(id.to_owned()),
            format!("stopping sandbox {}{whose} failed and was tried again", short(id)),
        );
        if let Some(error) = tries.error {
            finding.because(format!("it failed with: {error}"));
        }
        finding.because(format!(
            "tried {}",
            tries.events.iter().map(|event| clock(&event.seen)).collect::<Vec<_>>().join(", ")
        ));
        finding.seen_all(tries.events.iter().map(|event| event.exhibit(format!("sandbox {id}"))));
    }
}

/// A call after a failure: it was tried again.
fn is_later_call(event: &Sighted<LogEvent>, events: &[&Sighted<LogEvent>]) -> bool {
    let is_call = matches!(event.seen.what, Happening::CniCall { .. });
    is_call
        && events.iter().any(|other| {
            matches!(other.seen.what, Happening::SandboxStopFailed { .. }) && other.seen.at < event.seen.at
        })
}

#[cfg(test)]
mod tests {
    use super::super::stale_del::tests::{call, log, pod};
    use super::*;
    use crate::checks::testing::{only, silent};

    fn failed() -> Happening {
        Happening::SandboxStopFailed {
            container_id: "old1".repeat(16),
            pod: Some(pod()),
            error: "no".to_owned(),
        }
    }

    #[test]
    fn fires_for_a_failure_and_another_try() {
        silent(&CHECK, &log(vec![call(CniCommand::Del, "old1"), failed()]));
        silent(&CHECK, &log(vec![call(CniCommand::Del, "old1"), call(CniCommand::Del, "old1")]));
        let finding = only(&CHECK, &log(vec![failed(), call(CniCommand::Del, "old1")]));
        assert_eq!(
            finding.summary,
            "stopping sandbox old1old1old1 of pod lijiaob/etcd1-0 failed and was tried again"
        );
        assert_eq!(only(&CHECK, &log(vec![failed(), failed()])).subject.to_string(), "sandbox old1old1old1");
    }
}
