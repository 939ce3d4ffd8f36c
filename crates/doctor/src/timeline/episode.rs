//! What went wrong in a pod's history: stale DELs, retry loops, pods that were replaced without a DEL.

use std::net::IpAddr;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use crate::evidence::log::CniCommand;
use crate::evidence::{PodName, same_id};
use crate::{Exhibit, Sighted};

use super::{Call, Effect, PodHistory, Seen, Sighting};

#[derive(Clone, Debug)]
pub enum Episode {
    StaleDel(StaleDel),
    RetryLoop(RetryLoop),
    Replaced(Replaced),
}

/// A DEL of an old sandbox took what belonged to the pod's new one.
#[derive(Clone, Debug)]
pub struct StaleDel {
    pub node: Option<String>,
    pub pod: PodName,
    pub old_sandbox: String,
    pub new_sandbox: String,
    pub added_at: Option<DateTime>,
    pub deleted_at: Option<DateTime>,
    /// Of the new sandbox.
    pub addresses: Vec<IpAddr>,
    pub device: Option<String>,
    pub is_endpoint_deleted: bool,
    /// The handle that both shared, if the DEL released by it.
    pub handle: Option<String>,
    pub fate: Fate,
    /// Why it came so late: an earlier DEL of the old sandbox had failed.
    pub failed_before: Option<String>,
    pub evidence: Vec<Exhibit>,
}

/// What became of the new sandbox's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The handle was counted down or deleted: they are free while in use.
    Freed,
    /// The log does not show it.
    NotShown,
    /// Nothing was released.
    Kept,
}

/// DELs of one sandbox that fail and are tried again.
#[derive(Clone, Debug)]
pub struct RetryLoop {
    pub node: Option<String>,
    pub pod: PodName,
    pub sandbox: String,
    /// How many DELs of it the log shows, and how many of them failed.
    pub tries: usize,
    pub failures: usize,
    pub first_at: Option<DateTime>,
    pub last_at: Option<DateTime>,
    pub error: String,
    pub evidence: Vec<Exhibit>,
}

/// A pod came back under its name with another UID and another address, and no DEL of the old one is in the log.
#[derive(Clone, Debug)]
pub struct Replaced {
    pub node: Option<String>,
    pub pod: PodName,
    pub old_uid: String,
    pub new_uid: String,
    pub old_address: IpAddr,
    pub new_address: IpAddr,
    /// From the start of the old one to the start of the new one.
    pub within: Option<SignedDuration>,
    pub at: Option<DateTime>,
    /// The kubelet missed this interface in between or since.
    pub interface_missing: Option<String>,
    pub evidence: Vec<Exhibit>,
}

impl Episode {
    /// When it was seen.
    pub fn at(&self) -> Option<DateTime> {
        match self {
            Episode::StaleDel(stale) => stale.deleted_at,
            Episode::RetryLoop(retries) => retries.first_at,
            Episode::Replaced(replaced) => replaced.at,
        }
    }
}

pub(super) fn of_pod(history: &PodHistory) -> Vec<Episode> {
    let stale = stale_dels(history).into_iter().map(Episode::StaleDel);
    let retries = retry_loops(history).into_iter().map(Episode::RetryLoop);
    stale.chain(retries).chain(replaced(history).into_iter().map(Episode::Replaced)).collect()
}

fn stale_dels(history: &PodHistory) -> Vec<StaleDel> {
    let mut found = Vec::new();
    for (position, del) in history.calls.iter().enumerate() {
        let Some(old) = del.container_id.as_deref().filter(|_| del.command == CniCommand::Del) else {
            continue;
        };
        let before = &history.calls[..position];
        // The sandbox that had the pod's name when the DEL came.
        let Some(add) =
            before.iter().rev().find(|call| call.command == CniCommand::Add && call.failure.is_none())
        else {
            continue;
        };
        let Some(new) = add.container_id.as_deref().filter(|new| !same_id(new, old)) else { continue };
        let is_gone = before
            .iter()
            .skip_while(|call| !std::ptr::eq(*call, add))
            .any(|call| call.command == CniCommand::Del && call.is_of(new) && call.failure.is_none());
        if is_gone {
            continue;
        }
        found.extend(stale_del(history, before, add, del, (old, new)));
    }
    found
}

/// `None`: the DEL did no harm to the new sandbox.
fn stale_del(
    history: &PodHistory,
    before: &[Call],
    add: &Call,
    del: &Call,
    (old, new): (&str, &str),
) -> Option<StaleDel> {
    let is_endpoint_deleted = del.has(&Effect::EndpointDeleted);
    let handle = released_handle(history, del, new);
    if !is_endpoint_deleted && handle.is_none() {
        return None;
    }
    let failed = before
        .iter()
        .find(|call| call.command == CniCommand::Del && call.is_of(old) && call.failure.is_some());
    let mut evidence: Vec<Exhibit> = Vec::new();
    if let Some(failure) = failed.and_then(|call| call.failure.as_ref()) {
        evidence.push(failure.exhibit("an earlier DEL of the old sandbox fails"));
    }
    evidence.push(add.origin.exhibit("ADD of the new sandbox"));
    evidence.extend(telling(add).map(|effect| effect.exhibit(effect.seen.to_string())));
    evidence.push(del.origin.exhibit("DEL of the old sandbox"));
    evidence.extend(telling(del).map(|effect| effect.exhibit(effect.seen.to_string())));
    Some(StaleDel {
        node: history.node.clone(),
        pod: history.pod.clone(),
        old_sandbox: old.to_owned(),
        new_sandbox: new.to_owned(),
        added_at: add.at,
        deleted_at: del.at,
        addresses: add.addresses(),
        device: add.device().map(str::to_owned),
        is_endpoint_deleted,
        fate: fate(del, handle.as_deref()),
        handle,
        failed_before: failed.and_then(|call| call.failure.as_ref()).map(|failure| failure.seen.clone()),
        evidence,
    })
}

/// The handle by which a DEL released, if it is one that the new sandbox shares: named for the pod, not for the sandbox.
fn released_handle(history: &PodHistory, del: &Call, new: &str) -> Option<String> {
    let by_name = format!("{}.{}", history.pod.namespace.as_deref().unwrap_or_default(), history.pod.name);
    let handles = del.effects.iter().filter_map(|effect| match &effect.seen {
        Effect::ReleasedByHandle(handle)
        | Effect::HandleDecremented(handle)
        | Effect::HandleDeleted(handle) => Some(handle),
        _ => None,
    });
    handles.into_iter().find(|handle| **handle == by_name || handle.ends_with(new)).cloned()
}

fn fate(del: &Call, handle: Option<&str>) -> Fate {
    let Some(handle) = handle else { return Fate::Kept };
    let is_freed = del.effects.iter().any(|effect| match &effect.seen {
        Effect::HandleDecremented(freed) | Effect::HandleDeleted(freed) => freed == handle,
        _ => false,
    });
    if is_freed { Fate::Freed } else { Fate::NotShown }
}

/// What is worth showing of a call, each thing once.
fn telling(call: &Call) -> impl Iterator<Item = &Sighted<Effect>> {
    let mut told: Vec<&Effect> = Vec::new();
    call.effects.iter().filter(move |effect| {
        let is_new = !told.contains(&&effect.seen);
        told.push(&effect.seen);
        is_new && !matches!(&effect.seen, Effect::EndpointWritten(endpoint) if endpoint.device.is_none())
    })
}

fn retry_loops(history: &PodHistory) -> Vec<RetryLoop> {
    let mut found = Vec::new();
    for sandbox in history.sandboxes() {
        let dels: Vec<&Call> = history
            .calls
            .iter()
            .filter(|call| call.command == CniCommand::Del && call.is_of(sandbox))
            .collect();
        let failures: Vec<&Sighted<String>> = dels.iter().filter_map(|call| call.failure.as_ref()).collect();
        let (Some(first), Some(last), Some(failure)) = (dels.first(), dels.last(), failures.first()) else {
            continue;
        };
        if dels.len() < 2 {
            continue;
        }
        found.push(RetryLoop {
            node: history.node.clone(),
            pod: history.pod.clone(),
            sandbox: sandbox.to_owned(),
            tries: dels.len(),
            failures: failures.len(),
            first_at: first.at,
            last_at: last.at,
            error: failure.seen.clone(),
            evidence: failures
                .iter()
                .map(|failure| failure.exhibit(failure.seen.clone()))
                .chain([last.origin.exhibit("the DEL is tried again")])
                .collect(),
        });
    }
    found
}

/// A sighting of the pod's address: of which UID, when started, where seen.
struct Lived<'a> {
    uid: &'a str,
    address: IpAddr,
    started_at: Option<DateTime>,
    seen: &'a Sighted<Sighting>,
}

fn replaced(history: &PodHistory) -> Vec<Replaced> {
    let lives = lives(history);
    let mut found = Vec::new();
    for pair in lives.windows(2) {
        let [old, new] = pair else { continue };
        if old.uid == new.uid || old.address == new.address || was_ended(history, old, new) {
            continue;
        }
        let missing = history.sightings.iter().find_map(|sighting| match &sighting.seen.what {
            Seen::InterfaceMissing { interface } if sighting.seen.at >= old.seen.seen.at => {
                Some((interface, sighting))
            }
            _ => None,
        });
        let mut evidence = vec![
            old.seen.exhibit(format!("{} has {}", old.uid, old.address)),
            new.seen.exhibit(format!("{} has {}", new.uid, new.address)),
        ];
        evidence
            .extend(missing.map(|(interface, sighting)| sighting.exhibit(format!("{interface} is missed"))));
        found.push(Replaced {
            node: history.node.clone(),
            pod: history.pod.clone(),
            old_uid: old.uid.to_owned(),
            new_uid: new.uid.to_owned(),
            old_address: old.address,
            new_address: new.address,
            within: old.started_at.zip(new.started_at).map(|(old, new)| old.duration_until(new)),
            at: new.started_at.or(new.seen.seen.at),
            interface_missing: missing.map(|(interface, _)| interface.clone()),
            evidence,
        });
    }
    found
}

/// One per UID, in the order of time, with the start if any sighting tells it.
fn lives(history: &PodHistory) -> Vec<Lived<'_>> {
    let mut lives: Vec<Lived<'_>> = Vec::new();
    for sighting in &history.sightings {
        let Seen::Address { uid: Some(uid), address, started_at } = &sighting.seen.what else { continue };
        match lives.iter_mut().find(|life| life.uid == uid) {
            Some(life) => life.started_at = life.started_at.or(*started_at),
            None => lives.push(Lived { uid, address: *address, started_at: *started_at, seen: sighting }),
        }
    }
    lives
}

/// A DEL, a stop or a release of the old one is in the log.
fn was_ended(history: &PodHistory, old: &Lived<'_>, new: &Lived<'_>) -> bool {
    let is_between = |at: Option<DateTime>| at >= old.seen.seen.at && at <= new.seen.seen.at;
    let deleted = history
        .calls
        .iter()
        .any(|call| call.command == CniCommand::Del && call.failure.is_none() && is_between(call.at));
    deleted
        || history.sightings.iter().any(|sighting| {
            matches!(sighting.seen.what, Seen::SandboxStopped { .. }) && is_between(sighting.seen.at)
        })
}
