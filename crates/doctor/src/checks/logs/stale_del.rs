//! DEL loops: the DEL of an old sandbox took away what is the new sandbox's.

use model::HandleId;

use super::{clock, short};
use crate::checks::words::listed;
use crate::timeline::{Episode, Fate, StaleDel};
use crate::{Case, Certainty, Check, Finding, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Late DEL removed a new pod's endpoint",
    explanation: "A DEL for an old sandbox arrived after the ADD of a new sandbox with the same pod name, \
                  and removed the endpoint or the address of the new one. Endpoint and handle contained only \
                  the pod's name, so the plugin could not tell the two apart. The pod stays Running, but \
                  nothing maintains its network any longer. Its own DEL will later fail and be retried \
                  against its successor.",
    remedy: "run plumb repair endpoints --apply to write the endpoint and allocation of the running sandbox \
             again, or recreate the pod. Upgrade the CNI plugin to a release that compares the container ID",
    needs: &[&[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::StaleDel, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for episode in case.timeline().episodes() {
        if let Episode::StaleDel(stale) = episode {
            tell(case, look, stale);
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, stale: StaleDel) {
    let (old, new, at) = (short(&stale.old_sandbox), short(&stale.new_sandbox), clock(stale.deleted_at));
    let what = match (stale.is_endpoint_deleted, stale.fate) {
        (true, Fate::Freed) => "deleted the endpoint and released the address",
        (true, _) => "deleted the endpoint",
        (false, Fate::Freed) => "released the address",
        (false, _) => "released by the handle",
    };
    let pod = stale.pod.clone();
    let summary = format!("the DEL of old sandbox {old} at {at} {what} of {new}, which runs as pod {pod}");
    let finding = look.found(Subject::Pod(pod.clone()), summary);
    if let Some(error) = &stale.failed_before {
        finding.because(format!("an earlier DEL of {old} failed ({error}), so the kubelet retries it"));
    }
    let device = stale.device.as_deref().map_or_else(String::new, |device| format!(" and device {device}"));
    let addresses = listed(&stale.addresses);
    finding
        .because(format!(
            "{} ADD of {new} for the same pod name assigned {addresses}{device}",
            clock(stale.added_at)
        ))
        .because(format!(
            "{at} the DEL of {old} removed what is stored under the pod's name, which \
             belonged to {new} by that time"
        ));
    tell_address(case, finding, &stale);
    if stale.more > 0 {
        finding.because(format!("{} more DELs of old sandboxes did the same to the pod", stale.more));
    }
    if stale.is_endpoint_deleted {
        finding.because(format!(
            "since {at} sandbox {new} has had no endpoint, so nothing maintains its \
                                 network"
        ));
    }
    finding.explains(FindingCode::DelRetried, Subject::Sandbox(stale.old_sandbox.clone()));
    finding
        .explains(FindingCode::PodWithoutEndpoint, pod.clone())
        .explains(FindingCode::PodGatewayUnresolved, pod);
    finding.seen_all(stale.evidence);
}

/// What became of the address is told only as far as the log shows it.
fn tell_address(case: &Case<'_>, finding: &mut Finding, stale: &StaleDel) {
    let (addresses, handle) = (listed(&stale.addresses), stale.handle.as_ref().map_or("", HandleId::as_str));
    match stale.fate {
        Fate::Kept => {}
        Fate::Freed => {
            finding.because(format!(
                "the count of handle {handle} was reduced: {addresses} is free in the IPAM records but in \
                 use"
            ));
            for address in &stale.addresses {
                finding.explains(FindingCode::AddressUsedButFree, *address);
            }
        }
        Fate::NotShown => {
            let read = other_blocks(case, stale);
            let only = if read.is_empty() {
                String::new()
            } else {
                format!(": the DEL read block {} only", listed(read))
            };
            finding.because(format!(
                "it released the addresses of handle {handle}; the log does not show what happened to \
                 {addresses}{only}"
            ));
        }
    }
}

/// Blocks that the DEL read and that do not hold the address.
fn other_blocks(case: &Case<'_>, stale: &StaleDel) -> Vec<String> {
    use crate::timeline::Effect;
    let history =
        case.timeline().pods.iter().find(|history| history.pod == stale.pod && history.node == stale.node);
    let calls = history.into_iter().flat_map(|history| &history.calls);
    let dels = calls.filter(|call| call.is_of(&stale.old_sandbox) && call.at == stale.deleted_at);
    let mut blocks: Vec<String> = dels
        .flat_map(|call| &call.effects)
        .filter_map(|effect| match &effect.seen {
            Effect::BlockRead(block) if !stale.addresses.iter().any(|address| block.contains(*address)) => {
                Some(block.to_string())
            }
            _ => None,
        })
        .collect();
    blocks.sort();
    blocks.dedup();
    blocks
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::log::{CniCommand, WrittenEndpoint};
    use evidence::{Evidence, Happening, LogEvent, Origin, PodName, Sighted};

    pub(in crate::checks) fn log(events: Vec<Happening>) -> Evidence {
        let start: jiff::civil::DateTime = "2017-12-12T20:00:00".parse().unwrap();
        let event = |(line, what): (u32, Happening)| {
            let at = Some(start + jiff::SignedDuration::from_secs(line.into()));
            let event = LogEvent { at, node: Some("a".into()), what, count: 1, last_at: None };
            Sighted::new(event, Origin::line("kubelet.log", line, "…"))
        };
        Evidence { log: Some((1..).zip(events).map(event).collect()), ..Evidence::default() }
    }

    pub(in crate::checks) fn pod() -> PodName {
        PodName::new("lijiaob", "etcd1-0")
    }

    pub(in crate::checks) fn call(command: CniCommand, id: &str) -> Happening {
        Happening::CniCall {
            command,
            container_id: id.repeat(16),
            pod: Some(pod()),
            interface: None,
            netns: None,
        }
    }

    fn written() -> Happening {
        let addresses = vec!["10.0.0.1".parse().unwrap()];
        Happening::EndpointWritten {
            endpoint: WrittenEndpoint { pod: Some(pod()), addresses, ..WrittenEndpoint::default() },
        }
    }

    fn deleted() -> Happening {
        Happening::EndpointDeleted { pod: Some(pod()), node: None }
    }

    #[test]
    fn fires_for_a_del_of_another_sandbox() {
        let finding = only(
            &CHECK,
            &log(vec![call(CniCommand::Add, "new1"), written(), call(CniCommand::Del, "old1"), deleted()]),
        );
        assert_eq!(
            finding.summary,
            "the DEL of old sandbox old1old1old1 at 20:00:03 deleted the endpoint of new1new1new1, which \
             runs as pod lijiaob/etcd1-0"
        );
    }

    #[test]
    fn says_that_the_address_is_free_where_the_handle_went() {
        let handle = Happening::HandleDeleted { handle: "lijiaob.etcd1-0".into() };
        let finding = only(
            &CHECK,
            &log(vec![
                call(CniCommand::Add, "new1"),
                written(),
                call(CniCommand::Del, "old1"),
                handle,
                deleted(),
            ]),
        );
        assert!(
            finding.summary.contains("deleted the endpoint and released the address"),
            "{}",
            finding.summary
        );
        assert!(
            finding.cause.iter().any(|step| step.contains("10.0.0.1 is free in the IPAM records")),
            "{:?}",
            finding.cause
        );
    }

    #[test]
    fn is_silent_for_dels_that_are_in_order() {
        silent(
            &CHECK,
            &log(vec![call(CniCommand::Add, "new1"), written(), call(CniCommand::Del, "new1"), deleted()]),
        );
        silent(
            &CHECK,
            &log(vec![call(CniCommand::Del, "old1"), deleted(), call(CniCommand::Add, "new1"), written()]),
        );
        let other = Happening::EndpointOfAnother { pod: Some(pod()), container_id: None };
        silent(
            &CHECK,
            &log(vec![call(CniCommand::Add, "new1"), written(), call(CniCommand::Del, "old1"), other]),
        );
    }
}
