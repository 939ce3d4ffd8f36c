//! What went wrong in a pod's history: stale DELs, retry loops, pods that were replaced without a DEL.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use model::{HandleId, NodeName};

use evidence::log::CniCommand;
use evidence::{Exhibit, PodName, Sighted, same_id};

use super::sandboxes::Sandboxes;
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
    pub node: Option<NodeName>,
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
    pub handle: Option<HandleId>,
    pub fate: Fate,
    /// Why it came so late: an earlier DEL of the old sandbox had failed.
    pub failed_before: Option<String>,
    /// How many more DELs of old sandboxes did this to the pod and are not told one by one.
    pub more: usize,
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
    pub node: Option<NodeName>,
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
    pub node: Option<NodeName>,
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
    /// How many more times the pod was replaced so, which is not told one by one.
    pub more: usize,
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

/// Whatever happens to one pod again and again is told as often as this, and then counted.
const EPISODES_MAX: usize = 100;
/// So many failures of one loop are shown: the first ones and the last.
const FAILURES_SHOWN: usize = 100;

/// One by one through the calls, with what is known so far: the last ADD, and what became of its sandbox.
fn stale_dels(history: &PodHistory) -> Vec<StaleDel> {
    let mut found: Vec<StaleDel> = Vec::new();
    let (mut add, mut is_gone): (Option<&Call>, bool) = (None, false);
    let mut sandboxes = Sandboxes::default();
    let mut failed: BTreeMap<usize, &Sighted<String>> = BTreeMap::new();
    for call in &history.calls {
        if call.command == CniCommand::Add && call.failure.is_none() {
            (add, is_gone) = (Some(call), false);
        }
        let Some(old) = call.container_id.as_deref().filter(|_| call.command == CniCommand::Del) else {
            continue;
        };
        let number = sandboxes.number(old);
        // The sandbox that had the pod's name when the DEL came.
        let new = add.and_then(|add| Some((add, add.container_id.as_deref()?)));
        if let Some((add, new)) = new {
            if !same_id(new, old) && !is_gone {
                let known = failed.get(&number).copied();
                let is_enough = found.len() >= EPISODES_MAX;
                match found.last_mut().filter(|_| is_enough) {
                    Some(last) => last.more += usize::from(does_harm(history, call, new).is_some()),
                    None => found.extend(stale_del(history, known, add, call, (old, new))),
                }
            }
            is_gone |= same_id(new, old) && call.failure.is_none();
        }
        if let Some(failure) = &call.failure {
            failed.entry(number).or_insert(failure);
        }
    }
    found
}

/// Whether a DEL deleted the new sandbox's endpoint, and the handle by which it released. `None`: it did no harm to it.
fn does_harm(history: &PodHistory, del: &Call, new: &str) -> Option<(bool, Option<HandleId>)> {
    let is_endpoint_deleted = del.has(&Effect::EndpointDeleted);
    let handle = released_handle(history, del, new);
    (is_endpoint_deleted || handle.is_some()).then_some((is_endpoint_deleted, handle))
}

fn stale_del(
    history: &PodHistory,
    failed: Option<&Sighted<String>>,
    add: &Call,
    del: &Call,
    (old, new): (&str, &str),
) -> Option<StaleDel> {
    let (is_endpoint_deleted, handle) = does_harm(history, del, new)?;
    let mut evidence: Vec<Exhibit> = Vec::new();
    if let Some(failure) = failed {
        evidence.push(failure.exhibit("an earlier DEL of the old sandbox failed"));
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
        fate: fate(del, handle.as_ref()),
        handle,
        failed_before: failed.map(|failure| failure.seen.clone()),
        more: 0,
        evidence,
    })
}

/// The handle by which a DEL released, if it is one that the new sandbox shares: named for the pod, not for the sandbox.
fn released_handle(history: &PodHistory, del: &Call, new: &str) -> Option<HandleId> {
    let by_name = format!("{}.{}", history.pod.namespace.as_deref().unwrap_or_default(), history.pod.name);
    let handles = del.effects.iter().filter_map(|effect| match &effect.seen {
        Effect::ReleasedByHandle(handle)
        | Effect::HandleDecremented(handle)
        | Effect::HandleDeleted(handle) => Some(handle),
        _ => None,
    });
    handles.into_iter().find(|handle| **handle == *by_name || handle.container() == Some(new)).cloned()
}

fn fate(del: &Call, handle: Option<&HandleId>) -> Fate {
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
    let mut sandboxes = Sandboxes::default();
    let mut dels: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in &history.calls {
        let Some(id) = call.container_id.as_deref() else { continue };
        let number = sandboxes.number(id);
        if call.command == CniCommand::Del {
            dels.entry(number).or_default().push(call);
        }
    }
    let loops = dels.iter().filter(|(_, dels)| dels.len() >= 2);
    loops.filter_map(|(number, dels)| retry_loop(history, sandboxes.ids.get(*number)?, dels)).collect()
}

fn retry_loop(history: &PodHistory, sandbox: &str, dels: &[&Call]) -> Option<RetryLoop> {
    let failures: Vec<&Sighted<String>> = dels.iter().filter_map(|call| call.failure.as_ref()).collect();
    let (first, last, failure) = (dels.first()?, dels.last()?, failures.first()?);
    Some(RetryLoop {
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
            .take(FAILURES_SHOWN)
            .map(|failure| failure.exhibit(failure.seen.clone()))
            .chain([last.origin.exhibit("the DEL is retried")])
            .collect(),
    })
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
    let (ends, missed) = (Ends::of(history), Missed::of(history));
    let mut found: Vec<Replaced> = Vec::new();
    for pair in lives.windows(2) {
        let [old, new] = pair else { continue };
        if old.uid == new.uid || old.address == new.address || ends.is_one_between(old, new) {
            continue;
        }
        let is_enough = found.len() >= EPISODES_MAX;
        if let Some(last) = found.last_mut().filter(|_| is_enough) {
            last.more += 1;
            continue;
        }
        let missing = missed.since(old.seen.seen.at);
        let mut evidence = vec![
            old.seen.exhibit(format!("{} has {}", old.uid, old.address)),
            new.seen.exhibit(format!("{} has {}", new.uid, new.address)),
        ];
        evidence
            .extend(missing.map(|(interface, sighting)| sighting.exhibit(format!("{interface} is missing"))));
        found.push(Replaced {
            node: history.node.clone(),
            pod: history.pod.clone(),
            old_uid: old.uid.to_owned(),
            new_uid: new.uid.to_owned(),
            old_address: old.address,
            new_address: new.address,
            within: old.started_at.zip(new.started_at).map(|(old, new)| old.duration_until(new)),
            at: new.started_at.or(new.seen.seen.at),
            interface_missing: missing.map(|(interface, _)| interface.to_owned()),
            more: 0,
            evidence,
        });
    }
    found
}

/// One per UID, in the order of time, with the start if any sighting tells it.
fn lives(history: &PodHistory) -> Vec<Lived<'_>> {
    let mut lives: Vec<Lived<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for sighting in &history.sightings {
        let Seen::Address { uid: Some(uid), address, started_at } = &sighting.seen.what else { continue };
        let place = *places.entry(uid).or_insert(lives.len());
        match lives.get_mut(place) {
            Some(life) => life.started_at = life.started_at.or(*started_at),
            None => lives.push(Lived { uid, address: *address, started_at: *started_at, seen: sighting }),
        }
    }
    lives
}

/// When a DEL, a stop or a release is in the log, in the order of time.
struct Ends(Vec<Option<DateTime>>);

impl Ends {
    fn of(history: &PodHistory) -> Ends {
        let deleted = |call: &&Call| call.command == CniCommand::Del && call.failure.is_none();
        let stopped =
            |sighting: &&Sighted<Sighting>| matches!(sighting.seen.what, Seen::SandboxStopped { .. });
        let deleted = history.calls.iter().filter(deleted).map(|call| call.at);
        let stopped = history.sightings.iter().filter(stopped).map(|sighting| sighting.seen.at);
        let mut ends: Vec<Option<DateTime>> = deleted.chain(stopped).collect();
        ends.sort_unstable();
        Ends(ends)
    }

    fn is_one_between(&self, old: &Lived<'_>, new: &Lived<'_>) -> bool {
        let first = self.0.partition_point(|at| *at < old.seen.seen.at);
        self.0.get(first).is_some_and(|at| *at <= new.seen.seen.at)
    }
}

/// Interfaces that the kubelet missed, in the order of the log, each with the latest time up to there: the first of them that comes
/// after a time is the first whose latest does.
struct Missed<'a>(Vec<(Option<DateTime>, &'a str, &'a Sighted<Sighting>)>);

impl<'a> Missed<'a> {
    fn of(history: &'a PodHistory) -> Missed<'a> {
        let mut latest = None;
        let missed = history.sightings.iter().filter_map(|sighting| match &sighting.seen.what {
            Seen::InterfaceMissing { interface } => Some((interface.as_str(), sighting)),
            _ => None,
        });
        let with_latest = missed.map(|(interface, sighting)| {
            latest = latest.max(sighting.seen.at);
            (latest, interface, sighting)
        });
        Missed(with_latest.collect())
    }

    fn since(&self, at: Option<DateTime>) -> Option<(&'a str, &'a Sighted<Sighting>)> {
        let first = self.0.partition_point(|(latest, ..)| *latest < at);
        self.0.get(first).map(|(_, interface, sighting)| (*interface, *sighting))
    }
}
