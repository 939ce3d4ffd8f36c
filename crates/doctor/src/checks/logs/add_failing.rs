//! Logs: pods that get no network, again and again.

use std::collections::BTreeMap;

use crate::evidence::log::CniCommand;
use crate::evidence::{Happening, LogEvent, PodName};
use crate::{Case, Check, Look, Need, Settles, Severity, Sighted};

/// One failure may be the moment of a restart.
const FAILURES_MIN: u32 = 2;

pub(in crate::checks) const CHECK: Check = Check {
    code: "add-failing",
    severity: Severity::Error,
    title: "A pod gets no network",
    explanation: "The plugin fails to give a pod its network, more than once. The pod stays in \
                  ContainerCreating. The error says what it stumbles over: no address left, no store, no \
                  permission, no configuration.",
    remedy: "mend what the error names; the kubelet tries again by itself",
    needs: &[&[Need::Log]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut failures: BTreeMap<&PodName, (u32, &str, Vec<&Sighted<LogEvent>>)> = BTreeMap::new();
    for event in case.evidence.log.iter().flatten() {
        match &event.seen.what {
            Happening::CniFailed { command: CniCommand::Add, pod: Some(pod), error, .. } => {
                let (count, last, events) = failures.entry(pod).or_default();
                *count += event.seen.count;
                *last = error;
                events.push(event);
            }
            // It has its network now.
            Happening::PodAddress { pod, .. } => {
                failures.remove(pod);
            }
            _ => {}
        }
    }
    for (pod, (count, error, events)) in
        failures.into_iter().filter(|(_, (count, _, _))| *count >= FAILURES_MIN)
    {
        look.found(pod.clone(), format!("pod {pod} got no network {count} times"))
            .because(format!("the last error was: {error}"))
            .seen_all(events.iter().map(|event| event.exhibit("ADD failed")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::stale_del::tests::{log, pod};
    use super::*;
    use crate::checks::testing::{only, silent};

    #[test]
    fn fires_for_a_second_failure_without_success() {
        let failed = || Happening::CniFailed {
            command: CniCommand::Add,
            container_id: None,
            pod: Some(pod()),
            error: "no more addresses".to_owned(),
        };
        let address = "10.0.0.1".parse().unwrap();
        let has = Happening::PodAddress {
            pod: pod(),
            pod_uid: None,
            address,
            containers: Vec::new(),
            started_at: None,
        };
        silent(&CHECK, &log(vec![failed()]));
        silent(&CHECK, &log(vec![failed(), failed(), has]));
        assert_eq!(
            only(&CHECK, &log(vec![failed(), failed()])).cause,
            ["the last error was: no more addresses"]
        );
    }
}
