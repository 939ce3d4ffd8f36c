//! Logs and events: pods that get no network, again and again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::log::CniCommand;
use evidence::{Event, Exhibit, Happening, PodName};

/// One failure may be the moment of a restart.
const FAILURES_MIN: u64 = 2;
/// A kubelet tries again every few seconds, and at least every few minutes: an older event is history.
const LASTS: SignedDuration = SignedDuration::from_mins(10);

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod gets no network",
    explanation: "The CNI plugin failed more than once to set up a pod's network, and the pod stays in \
                  ContainerCreating. The error names the cause: no free address, no connection to the store, \
                  no permission or no configuration.",
    remedy: "fix the cause named in the error; the kubelet retries automatically",
    needs: &[&[Need::Log], &[Need::Events]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::AddFailing, look)
};

/// What is known of a pod's failures since it last had a network.
#[derive(Default)]
struct Failures<'e> {
    /// Several layers tell of one failure: those that name the sandbox tell it by that.
    sandboxes: BTreeSet<&'e str>,
    without_sandbox: u64,
    error: &'e str,
    exhibits: Vec<Exhibit>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut failures: BTreeMap<PodName, Failures<'_>> = BTreeMap::new();
    for event in case.evidence.log.iter().flatten() {
        match &event.seen.what {
            Happening::CniFailed { command: CniCommand::Add, pod: Some(pod), error, container_id } => {
                let known = failures.entry(pod.clone()).or_default();
                match container_id {
                    Some(id) => drop(known.sandboxes.insert(id)),
                    None => known.without_sandbox += u64::from(event.seen.count),
                }
                known.error = error;
                known.exhibits.push(event.exhibit("ADD failed"));
            }
            // It has its network now.
            Happening::PodAddress { pod, .. } => {
                failures.remove(pod);
            }
            _ => {}
        }
    }
    for event in case.evidence.events.iter().flatten().filter(|event| is_failure(case, &event.seen)) {
        let Some(pod) = event.seen.pod().filter(|pod| may_lack_network(case, pod)) else { continue };
        let known = failures.entry(pod).or_default();
        known.without_sandbox = known.without_sandbox.max(event.seen.count);
        known.error = &event.seen.message;
        known.exhibits.push(event.exhibit("ADD failed"));
    }
    for (pod, known) in failures {
        let count = known.without_sandbox.max(known.sandboxes.len() as u64);
        if count >= FAILURES_MIN {
            look.found(pod.clone(), format!("setting up the network of pod {pod} failed {count} times"))
                .because(format!("the last error was: {}", known.error))
                .seen_all(known.exhibits);
        }
    }
}

/// The kubelet's event of a sandbox that got no network, which repeats as long as it tries.
fn is_failure(case: &Case<'_>, event: &Event) -> bool {
    let age = event.last_age.or_else(|| {
        let (taken_at, last_at) = case.evidence.taken_at.zip(event.last_at)?;
        Some(taken_at.duration_since(last_at))
    });
    event.reason == "FailedCreatePodSandBox"
        && event.message.contains("network")
        && age.is_none_or(|age| age <= LASTS)
}

/// Nothing says that it has one by now, or is gone.
fn may_lack_network(case: &Case<'_>, name: &PodName) -> bool {
    let mut named = case.pods_named(name).peekable();
    let is_gone = case.knows_pods() && named.peek().is_none();
    !is_gone && named.all(|pod| pod.seen.addresses.is_empty() && !pod.seen.is_finished())
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

    /// Three lines of a kubelet, each naming the sandbox, tell of one failure.
    #[test]
    fn one_failure_that_several_lines_tell_is_one() {
        let failed = |id: &str| Happening::CniFailed {
            command: CniCommand::Add,
            container_id: Some(id.to_owned()),
            pod: Some(pod()),
            error: "no".to_owned(),
        };
        silent(&CHECK, &log(vec![failed("a"), failed("a"), failed("a")]));
        let finding = only(&CHECK, &log(vec![failed("a"), failed("a"), failed("b")]));
        assert!(finding.summary.ends_with("failed 2 times"), "{}", finding.summary);
    }

    fn described(ip: &str, age: &str) -> evidence::Evidence {
        let text = format!(
            "Name:             web-0\nNamespace:        shop\nNode:             worker-1/10.0.0.12\nStatus:           Pending\nIP:               {ip}\n\
             Events:\n  Type     Reason                  Age                     From               Message\n  \
             ----     ------                  ----                    ----               -------\n  \
             Warning  FailedCreatePodSandBox  {age:<22}  kubelet            Failed to create pod sandbox: rpc error: failed to setup network for sandbox \"3a1d\": no\n"
        );
        intake::read([("pod.txt", text.as_bytes())])
    }

    #[test]
    fn fires_for_what_the_kubelet_tells_kubernetes() {
        let finding = only(&CHECK, &described("", "4m31s (x41 over 13m)"));
        assert_eq!(finding.summary, "setting up the network of pod shop/web-0 failed 41 times");
        silent(&CHECK, &described("", "4m31s"));
        silent(&CHECK, &described("", "47m (x41 over 59m)"));
        silent(&CHECK, &described("10.0.0.9", "4m31s (x41 over 13m)"));
    }
}
