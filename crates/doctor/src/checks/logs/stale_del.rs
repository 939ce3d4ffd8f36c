//! DEL loops: the DEL of an old sandbox took away what is the new sandbox's.

use std::net::IpAddr;

use super::{Call, calls, clock, short};
use crate::checks::ipam::handle_by_name::is_by_name;
use crate::checks::words::listed;
use crate::evidence::log::CniCommand;
use crate::evidence::{Happening, PodName, same_id};
use crate::{Case, Check, Finding, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "stale-del",
    severity: Severity::Error,
    title: "A late DEL removed a new pod's endpoint",
    explanation: "A DEL for an old sandbox came after the ADD of a new one of the same pod name, and removed the endpoint or the address of the new \
                  one. Endpoint and handle carried the pod's name only, so the plugin could not tell the two apart. The pod stays \
                  Running; nothing keeps its network any more, and its own DEL will fail and be retried against its successor.",
    remedy: "write endpoint and allocation of the running sandbox anew (plumb repair endpoints), or recreate the pod; upgrade the CNI plugin to one \
             that compares the container ID",
    needs: &[&[Need::Log]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, calls) in calls(case) {
        for (at, del) in calls.iter().enumerate().filter(|(_, call)| call.command == CniCommand::Del) {
            let Some(pod) = del.pod else { continue };
            if let Some(add) = living(&calls[..at], pod, del) {
                let lost = Lost::by(del, add);
                if lost.has_endpoint || lost.has_address {
                    tell(case, look, &Story { node, pod, del, add, before: &calls[..at], lost });
                }
            }
        }
    }
}

/// The sandbox that this pod's name means when a DEL for another one comes.
fn living<'c, 'e>(before: &'c [Call<'e>], pod: &PodName, del: &Call<'_>) -> Option<&'c Call<'e>> {
    let last = before.iter().rev().find(|call| {
        call.is_of(pod)
            && matches!(call.command, CniCommand::Add | CniCommand::Del)
            && !same_id(call.container_id, del.container_id)
    })?;
    let has_failed =
        last.happened(|what| matches!(what, Happening::CniFailed { command: CniCommand::Add, .. }));
    (last.command == CniCommand::Add && !has_failed).then_some(last)
}

/// What a DEL took, as far as the log tells.
struct Lost {
    has_endpoint: bool,
    has_address: bool,
    handle: Option<String>,
    addresses: Vec<IpAddr>,
}

impl Lost {
    fn by(del: &Call<'_>, add: &Call<'_>) -> Lost {
        let addresses = addresses(add);
        let handle = del.events.iter().find_map(|event| match &event.seen.what {
            Happening::HandleReleasing { handle }
            | Happening::HandleDecremented { handle, .. }
            | Happening::HandleDeleted { handle } => Some(handle.clone()),
            _ => None,
        });
        let is_shared = handle.as_deref().is_some_and(is_by_name);
        let is_counted = del.happened(|what| {
            matches!(what, Happening::HandleDecremented { .. } | Happening::HandleDeleted { .. })
        });
        let is_named = del.events.iter().any(|event| matches!(&event.seen.what, Happening::AddressReleased { address: Some(address), .. } if addresses.contains(address)));
        let is_left = del.happened(|what| {
            matches!(what, Happening::EndpointAbsent { .. } | Happening::EndpointOfAnother { .. })
        });
        let has_failed =
            del.happened(|what| matches!(what, Happening::CniFailed { command: CniCommand::Del, .. }));
        let is_deleted = del.happened(|what| matches!(what, Happening::EndpointDeleted { .. }));
        Lost {
            has_endpoint: is_deleted && !is_left && !has_failed,
            has_address: (is_shared && is_counted) || is_named,
            handle,
            addresses,
        }
    }
}

fn addresses(add: &Call<'_>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for event in &add.events {
        match &event.seen.what {
            Happening::AddressesAssigned { addresses, .. } => found.extend(addresses),
            Happening::EndpointWritten { endpoint } => found.extend(&endpoint.addresses),
            _ => {}
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

struct Story<'c, 'e> {
    node: &'e str,
    pod: &'e PodName,
    del: &'c Call<'e>,
    add: &'c Call<'e>,
    before: &'c [Call<'e>],
    lost: Lost,
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, story: &Story<'_, '_>) {
    let Story { pod, del, add, lost, .. } = story;
    let (old, new, at) = (short(del.container_id), short(add.container_id), clock(&del.start.seen));
    let what = match (lost.has_endpoint, lost.has_address) {
        (true, true) => "deleted the endpoint and released the address",
        (true, false) => "deleted the endpoint",
        (false, _) => "released the address",
    };
    let finding = look.found(
        Subject::Pod((*pod).clone()),
        format!("the DEL of old sandbox {old} at {at} {what} of {new}, which runs as pod {pod}"),
    );
    tell_retries(finding, story, case);
    let device = add.events.iter().find_map(|event| match &event.seen.what {
        Happening::EndpointWritten { endpoint } => endpoint.device.as_deref(),
        _ => None,
    });
    let device = device.map_or_else(String::new, |device| format!(" and device {device}"));
    finding.because(format!(
        "{} ADD of {new} for the same pod name gave it {}{device}",
        clock(&add.start.seen),
        listed(&lost.addresses)
    ));
    finding.because(format!(
        "{at} the DEL of {old} came again and took what goes by the pod's name, which was {new}'s by then"
    ));
    tell_address(finding, story);
    if lost.has_endpoint {
        finding.because(format!("since {at} sandbox {new} has no endpoint, so nothing keeps its network, and its own DEL will fail in turn"));
    }
    show(finding, story);
    finding.explains("del-retried", Subject::Sandbox(del.container_id.to_owned()));
    finding
        .explains("pod-without-endpoint", (*pod).clone())
        .explains("pod-gateway-unresolved", (*pod).clone());
    for address in story.lost.addresses.iter().filter(|_| story.lost.has_address) {
        finding.explains("address-used-but-free", *address);
    }
}

/// Why the DEL came that late.
fn tell_retries(finding: &mut Finding, story: &Story<'_, '_>, case: &Case<'_>) {
    for event in
        case.log.iter().flatten().filter(|event| event.seen.node.as_deref().unwrap_or_default() == story.node)
    {
        if std::ptr::eq(event, story.del.start) {
            return;
        }
        if let Happening::SandboxStopFailed { container_id, .. } = &event.seen.what
            && same_id(container_id, story.del.container_id)
        {
            finding
                .because(format!(
                    "{} stopping old sandbox {} failed, so the kubelet keeps trying",
                    clock(&event.seen),
                    short(container_id)
                ))
                .seen(event.exhibit(format!("stopping {container_id} failed")));
        }
    }
    let earlier = story
        .before
        .iter()
        .filter(|call| call.command == CniCommand::Del && same_id(call.container_id, story.del.container_id));
    for call in earlier {
        finding.seen(call.start.exhibit(format!("DEL of {}", call.container_id)));
        let failed =
            call.events.iter().filter(|event| matches!(event.seen.what, Happening::CniFailed { .. }));
        finding.seen_all(failed.map(|event| event.exhibit("DEL failed")));
    }
}

/// What became of the address is told only as far as the log shows it.
fn tell_address(finding: &mut Finding, story: &Story<'_, '_>) {
    let lost = &story.lost;
    let addresses = listed(&lost.addresses);
    let handle = lost.handle.as_deref().unwrap_or_default();
    if lost.has_address {
        finding.because(format!("the handle {handle} was decremented and deleted: {addresses} is free in the books while it is in use"));
        return;
    }
    let read: Vec<String> = story
        .del
        .events
        .iter()
        .filter_map(|event| match &event.seen.what {
            Happening::BlockRead { block }
                if !lost.addresses.iter().any(|address| block.contains(*address)) =>
            {
                Some(block.to_string())
            }
            _ => None,
        })
        .collect();
    if lost.handle.is_some() && !lost.addresses.is_empty() {
        let only = if read.is_empty() {
            String::new()
        } else {
            format!(": the DEL read block {} only", listed(read))
        };
        finding.because(format!(
            "it released by the handle {handle}; the log does not show what became of {addresses}{only}"
        ));
    }
}

fn show(finding: &mut Finding, story: &Story<'_, '_>) {
    finding.seen(story.add.start.exhibit(format!("ADD of {}", story.add.container_id)));
    finding.seen(story.del.start.exhibit(format!("DEL of {}", story.del.container_id)));
    for event in &story.del.events {
        if matches!(
            event.seen.what,
            Happening::EndpointDeleted { .. }
                | Happening::HandleReleasing { .. }
                | Happening::HandleDecremented { .. }
                | Happening::HandleDeleted { .. }
        ) {
            finding.seen(event.exhibit("what the DEL did"));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::evidence::LogEvent;
    use crate::evidence::log::WrittenEndpoint;
    use crate::{Evidence, Origin, Sighted};

    pub(in crate::checks) fn log(events: Vec<Happening>) -> Evidence {
        let event = |(line, what): (u32, Happening)| {
            let at = Some(
                "2017-12-12T20:00:00".parse::<jiff::civil::DateTime>().unwrap()
                    + jiff::SignedDuration::from_secs(line.into()),
            );
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
            "the DEL of old sandbox old1old1old1 at 20:00:03 deleted the endpoint of new1new1new1, which runs as pod lijiaob/etcd1-0"
        );
    }

    #[test]
    fn says_that_the_address_is_free_where_the_handle_went() {
        let handle = Happening::HandleDeleted { handle: "lijiaob.etcd1-0".to_owned() };
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
            finding.cause.iter().any(|step| step.contains("10.0.0.1 is free in the books")),
            "{:?}",
            finding.cause
        );
    }

    #[test]
    fn is_silent_for_dels_that_are_in_order() {
        let own = vec![call(CniCommand::Add, "new1"), written(), call(CniCommand::Del, "new1"), deleted()];
        silent(&CHECK, &log(own));
        let before = vec![call(CniCommand::Del, "old1"), deleted(), call(CniCommand::Add, "new1"), written()];
        silent(&CHECK, &log(before));
        let other = Happening::EndpointOfAnother { pod: Some(pod()), container_id: None };
        silent(
            &CHECK,
            &log(vec![call(CniCommand::Add, "new1"), written(), call(CniCommand::Del, "old1"), other]),
        );
        let gone = vec![
            call(CniCommand::Add, "new1"),
            call(CniCommand::Del, "new1"),
            deleted(),
            call(CniCommand::Del, "old1"),
            deleted(),
        ];
        silent(&CHECK, &log(gone));
    }
}
