//! An operation under way: what it has read, and what it decides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{
    AddressRelease, AffinityRelease, Answer, Assignment, Books, Decision, HandleRelease, Next, Ordered,
    Owner, Pool, PoolUse, ReleaseItem, ReleaseRule, Request, Steps, Stored, Surroundings, Want, held_by,
    recover,
};
use jiff::Timestamp;
use model::ipam::IpamConfig;
use model::{AffinityOwner, Cidr, IpVersion, Key, Kind, Resource};

use super::scenario::{Fault, Scenario};
use super::writing::Writing;
use crate::common::{Store, labels};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// One sandbox, or several that share their writes.
    Add(Vec<usize>),
    /// Gives back what a failed ADD has taken, one sandbox after the other, then starts the ADD over.
    Undo {
        batch: Vec<usize>,
        done: usize,
    },
    /// Removes handles that a failed ADD has made, then starts the ADD over.
    TakeBack(Vec<usize>),
    /// Puts a handle right that already says what the ADD would write, then starts the ADD over.
    Mend {
        batch: Vec<usize>,
        sandbox: usize,
    },
    Del(usize),
    /// Several DELs that share their writes. Those of which handle and blocks do not agree are done one by one afterwards.
    DelTogether {
        batch: Vec<usize>,
        careful: Vec<usize>,
    },
    /// The controller gives up the empty blocks of a host.
    ReleaseHost(usize),
    /// A collector that saw this allocation leak gives it back.
    Collect(ReleaseItemKey),
    Recover,
}

/// A [`ReleaseItem`] that can be hashed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReleaseItemKey {
    pub(crate) address: IpAddr,
    pub(crate) handle: String,
    pub(crate) sequence_number: Option<u64>,
}

type Read = (Key, Option<(Vec<u8>, String)>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Process {
    Idle,
    /// Everything read so far; the decision is made anew from it.
    Reading {
        op: Op,
        rounds: u8,
        started: Option<Timestamp>,
        seen: Vec<Read>,
    },
    Writing(Writing),
}

/// The addresses of each sandbox of a batch; none for one that was refused.
pub(crate) type Granted = Vec<Vec<IpAddr>>;

/// What one turn of a process came to.
pub(crate) enum Turn {
    Goes(Process),
    Done(Op, Granted),
    /// These sandboxes have what they get; for the others it goes on.
    Partly {
        settled: Vec<(usize, Vec<IpAddr>)>,
        process: Process,
    },
    /// There is no address to be had.
    Refused(Op),
}

impl Process {
    pub(crate) fn start(op: Op) -> Process {
        Process::Reading { op, rounds: 0, started: None, seen: Vec::new() }
    }

    /// The next turn, in words.
    pub(crate) fn describe(&self, choice: usize) -> String {
        match self {
            Process::Idle => "nothing".to_owned(),
            Process::Reading { op, rounds, .. } => format!("{op:?} reads, round {rounds}"),
            Process::Writing(writing) => writing.describe(choice),
        }
    }

    /// Those whose ADD or DEL this is.
    pub(crate) fn sandboxes(&self) -> Vec<usize> {
        let op = match self {
            Process::Idle => return Vec::new(),
            Process::Reading { op, .. } => op,
            Process::Writing(writing) => writing.op(),
        };
        match op {
            Op::Add(batch) | Op::TakeBack(batch) => batch.clone(),
            Op::Undo { batch, .. } | Op::Mend { batch, .. } | Op::DelTogether { batch, .. } => batch.clone(),
            Op::Del(sandbox) => vec![*sandbox],
            Op::ReleaseHost(_) | Op::Collect(_) | Op::Recover => Vec::new(),
        }
    }

    /// How many different things it may do next.
    pub(crate) fn choices(&self, scenario: &Scenario) -> usize {
        match self {
            Process::Idle => 0,
            Process::Reading { .. } => 1,
            Process::Writing(writing) => writing.choices(scenario),
        }
    }

    pub(crate) fn can_be_refused(&self, choice: usize) -> bool {
        matches!(self, Process::Writing(writing) if writing.can_be_refused(choice))
    }

    pub(crate) fn is_idle(&self) -> bool {
        *self == Process::Idle
    }

    /// One round trip: a read, or a write.
    pub(crate) fn turn(self, choice: usize, store: &mut Store, now: Timestamp, scenario: &Scenario) -> Turn {
        match self {
            Process::Idle => unreachable!("the idle have no turn"),
            Process::Reading { op, rounds, started, mut seen } => {
                let now = started.unwrap_or(now);
                let wanted = match wants(&op, rounds, &seen, now, scenario) {
                    Wants::Keys(keys) => keys,
                    Wants::Lists(of) => store.keys().filter(|key| of(key)).cloned().collect(),
                };
                for key in wanted {
                    let found = store.get(&key).map(|(value, revision)| (value.to_vec(), revision));
                    seen.push((key, found));
                }
                decide(op, rounds + 1, seen, now, scenario)
            }
            Process::Writing(writing) => writing.turn(choice, store, scenario),
        }
    }

    pub(crate) fn refuse(self, choice: usize, scenario: &Scenario) -> Turn {
        match self {
            Process::Writing(writing) => writing.refuse(choice, scenario),
            other => unreachable!("nothing to refuse: {other:?}"),
        }
    }
}

enum Wants {
    Keys(Vec<Key>),
    Lists(Box<dyn Fn(&Key) -> bool>),
}

/// What to read next. Some operations list records first.
fn wants(op: &Op, rounds: u8, seen: &[Read], now: Timestamp, scenario: &Scenario) -> Wants {
    let owner = |node: usize| AffinityOwner::Host(scenario.nodes[node].clone());
    match (op, rounds) {
        (Op::Add(batch), 0) => {
            let owner = owner(scenario.sandboxes[batch[0]].node);
            let handles: Vec<String> =
                batch.iter().map(|sandbox| scenario.sandboxes[*sandbox].handle.clone()).collect();
            Wants::Lists(Box::new(move |key| match key {
                Key::Resource { kind, .. } => *kind == Kind::IpPool,
                Key::IpamConfig => true,
                Key::Affinity { owner: of, .. } => *of == owner,
                Key::Handle(id) => handles.iter().any(|handle| *id == **handle),
                _ => false,
            }))
        }
        (Op::DelTogether { batch, .. }, 0) => {
            let handles: Vec<Key> = batch.iter().map(|sandbox| scenario.handle_key(*sandbox)).collect();
            Wants::Lists(Box::new(move |key| matches!(key, Key::Resource { .. }) || handles.contains(key)))
        }
        (Op::ReleaseHost(node), 0) => {
            let owner = owner(*node);
            Wants::Lists(Box::new(move |key| matches!(key, Key::Affinity { owner: of, .. } if *of == owner)))
        }
        (Op::Del(_), 0) if scenario.fault == Some(Fault::ReleaseByPodName) => {
            Wants::Lists(Box::new(|key| matches!(key, Key::Block(_))))
        }
        (Op::Recover, 0) => Wants::Lists(Box::new(|key| matches!(key, Key::Block(_)))),
        (Op::Recover, 1) => Wants::Lists(Box::new(|key| matches!(key, Key::Handle(_)))),
        (Op::Recover, 2) => Wants::Lists(Box::new(|key| matches!(key, Key::Affinity { .. }))),
        _ => match progress(op, seen, now, scenario) {
            Progress::Look(keys) => Wants::Keys(keys),
            _ => Wants::Keys(Vec::new()),
        },
    }
}

enum Progress {
    Look(Vec<Key>),
    Write(Vec<Steps>, Granted),
    /// Something else comes first.
    First(Op),
    /// The DELs cannot share their writes.
    Apart,
    Refused,
}

fn decide(op: Op, rounds: u8, seen: Vec<Read>, now: Timestamp, scenario: &Scenario) -> Turn {
    if op == Op::Recover && rounds < 3 {
        return Turn::Goes(Process::Reading { op, rounds, started: Some(now), seen });
    }
    match progress(&op, &seen, now, scenario) {
        // That something was looked at is all that counts from now on; how often is not.
        Progress::Look(_) => Turn::Goes(Process::Reading { op, rounds: 1, started: Some(now), seen }),
        Progress::First(op) => Turn::Goes(Process::start(op)),
        Progress::Apart => match op {
            Op::DelTogether { batch, .. } => {
                Turn::Done(Op::DelTogether { careful: batch.clone(), batch }, Vec::new())
            }
            op => unreachable!("{op:?} is not several DELs"),
        },
        Progress::Refused => Turn::Refused(op),
        Progress::Write(steps, addresses) => {
            let lists: Vec<Vec<Ordered>> =
                steps.iter().map(|steps| scenario.ordered(steps)).filter(|list| !list.is_empty()).collect();
            if lists.is_empty() {
                return Turn::Done(op, addresses);
            }
            Turn::Goes(Process::Writing(Writing::new(op, lists, addresses)))
        }
    }
}

/// Makes the decision from everything that was read.
fn progress(op: &Op, seen: &[Read], now: Timestamp, scenario: &Scenario) -> Progress {
    match op {
        Op::Add(batch) => add(batch, seen, now, scenario),
        Op::Del(sandbox) if scenario.fault == Some(Fault::ReleaseByPodName) => {
            release_by_name(&scenario.sandboxes[*sandbox].pod, seen)
        }
        Op::Del(sandbox) => {
            let handle = scenario.sandboxes[*sandbox].handle.clone();
            let release = HandleRelease::new(handle, |_, _, _| true, None);
            finish(release, seen, |released| vec![released.steps])
        }
        Op::Undo { batch, done } => {
            let handle = scenario.sandboxes[batch[*done]].handle.clone();
            let release = HandleRelease::new(handle, |_, _, _| true, None).after_own_failure();
            finish(release, seen, |released| vec![released.steps])
        }
        Op::Mend { sandbox, .. } => {
            let handle = scenario.sandboxes[*sandbox].handle.clone();
            let release = HandleRelease::new(handle, |_, _, _| false, None);
            finish(release, seen, |released| vec![released.steps])
        }
        Op::TakeBack(_) => unreachable!("it reads nothing"),
        Op::DelTogether { batch, .. } => del_together(batch, seen, scenario),
        Op::ReleaseHost(_) => {
            let listed = seen.iter().filter_map(|(key, _)| match key {
                Key::Affinity { owner, block } => Some((owner.clone(), *block)),
                _ => None,
            });
            let blocks: std::collections::BTreeSet<(AffinityOwner, Cidr)> = listed.collect();
            let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
            let release = AffinityRelease::new(blocks.into_iter().collect(), rule);
            finish(release, seen, |released| {
                released.into_iter().filter_map(|block| block.result.ok()).collect()
            })
        }
        Op::Collect(item) => {
            let item = ReleaseItem {
                address: item.address,
                handle: Some(item.handle.clone().into()),
                sequence_number: item.sequence_number,
            };
            finish(AddressRelease::new([item], Vec::new(), None, 128), seen, |released| vec![released.steps])
        }
        Op::Recover => {
            let mut books = Books::default();
            seen.iter().for_each(|(key, found)| books.add(key, answer(key, found)));
            Progress::Write(recover(&books).into_iter().map(|repair| repair.steps).collect(), Vec::new())
        }
    }
}

fn add(batch: &[usize], seen: &[Read], now: Timestamp, scenario: &Scenario) -> Progress {
    let (request, surroundings) = request(batch, seen, now, scenario);
    let Ok(mut assignment) = Assignment::new(request, surroundings) else { return Progress::Refused };
    match drive(&mut assignment, seen) {
        Err(_) => Progress::Refused,
        Ok(Next::Look(keys)) => Progress::Look(keys),
        Ok(Next::Survey(_)) => unreachable!("records are read together"),
        Ok(Next::Done(assigned)) => {
            let addresses = |grant: &ipam::Grant| {
                grant.addresses.iter().map(|granted| granted.address).collect::<Vec<_>>()
            };
            let granted: Granted = assigned.grants.iter().map(addresses).collect();
            if granted.iter().all(Vec::is_empty) {
                return Progress::Refused;
            }
            let unchanged = assigned.unchanged_handles.first().filter(|_| scenario.mends_handles());
            if let Some(handle) = unchanged {
                let is_its = |sandbox: &&usize| *handle == scenario.sandboxes[**sandbox].handle;
                let sandbox = *batch.iter().find(is_its).expect("one of the batch");
                return Progress::First(Op::Mend { batch: batch.to_vec(), sandbox });
            }
            Progress::Write(vec![assigned.steps], granted)
        }
    }
}

/// The addresses of all in one decision, if every handle agrees with its blocks.
fn del_together(batch: &[usize], seen: &[Read], scenario: &Scenario) -> Progress {
    let found =
        |key: &Key| seen.iter().find(|(known, _)| known == key).map(|(key, found)| answer(key, found));
    let (mut items, mut missing, mut is_sound) = (Vec::new(), Vec::new(), true);
    for sandbox in batch {
        let Some(Answer::Handle(handle)) = found(&scenario.handle_key(*sandbox)) else { continue };
        let id = scenario.sandboxes[*sandbox].handle.as_str().into();
        for cidr in handle.value.blocks() {
            let Some(looked) = found(&Key::Block(cidr)) else {
                missing.push(Key::Block(cidr));
                continue;
            };
            let Answer::Block(Stored { value: block, .. }) = looked else {
                is_sound = false;
                continue;
            };
            let held = held_by(&block, &id).map(|(ordinal, _)| ReleaseItem {
                address: block.address(ordinal).unwrap(),
                handle: Some(id.clone()),
                sequence_number: Some(block.sequence_of(ordinal)),
            });
            let held: Vec<ReleaseItem> = held.collect();
            is_sound &= i64::try_from(held.len()) == Ok(handle.value.count(&cidr));
            items.extend(held);
        }
    }
    if !missing.is_empty() {
        return Progress::Look(missing);
    }
    if !is_sound {
        return Progress::Apart;
    }
    let pools = pools(seen).into_iter().map(|pool| pool.value).collect();
    finish(AddressRelease::new(items, pools, None, 128), seen, |released| vec![released.steps])
}

fn pools(seen: &[Read]) -> Vec<Stored<Pool>> {
    let pool = |(key, found): &Read| {
        let (Key::Resource { .. }, Some((value, revision))) = (key, found) else { return None };
        let resource = Resource::decode(key, Kind::IpPool, value, revision).unwrap();
        Some(Stored::new(Pool::new(&resource).unwrap(), revision.clone()))
    };
    seen.iter().filter_map(pool).collect()
}

fn answer(key: &Key, found: &Option<(Vec<u8>, String)>) -> Answer {
    Answer::read(key, found.as_ref().map(|(value, revision)| (&value[..], revision.as_str())))
}

fn drive<D: Decision>(decision: &mut D, seen: &[Read]) -> Result<Next<D::Outcome>, D::Error> {
    loop {
        match decision.poll()? {
            Next::Look(keys) => {
                let found: Vec<&Read> = seen.iter().filter(|(key, _)| keys.contains(key)).collect();
                if found.len() < keys.len() {
                    return Ok(Next::Look(keys));
                }
                found.into_iter().for_each(|(key, found)| decision.show(key, answer(key, found)));
            }
            done @ (Next::Done(_) | Next::Survey(_)) => return Ok(done),
        }
    }
}

fn finish<D: Decision<Error = std::convert::Infallible>>(
    mut decision: D,
    seen: &[Read],
    steps: impl FnOnce(D::Outcome) -> Vec<Steps>,
) -> Progress {
    match drive(&mut decision, seen) {
        Ok(Next::Look(keys)) => Progress::Look(keys),
        Ok(Next::Survey(_)) => unreachable!("records are read together"),
        Ok(Next::Done(outcome)) => Progress::Write(steps(outcome), Vec::new()),
        Err(never) => match never {},
    }
}

fn request(batch: &[usize], seen: &[Read], now: Timestamp, scenario: &Scenario) -> (Request, Surroundings) {
    let node = &scenario.nodes[scenario.sandboxes[batch[0]].node];
    let (mut affinities, mut handles, mut config) = (Vec::new(), BTreeMap::new(), None);
    for (key, found) in seen {
        match (key, answer(key, found)) {
            (Key::IpamConfig, _) => {
                let (value, revision) = found.as_ref().expect("listed");
                config = Some(Stored::new(IpamConfig::decode(value).unwrap(), revision.clone()));
            }
            (Key::Affinity { owner, block }, Answer::Affinity(stored)) if owner.name() == node => {
                affinities.push((*block, stored));
            }
            (Key::Handle(id), Answer::Handle(stored)) => {
                handles.insert(id.as_str(), stored);
            }
            _ => {}
        }
    }
    let versions: &[IpVersion] = match scenario.pool_v6 {
        Some(_) => &[IpVersion::V4, IpVersion::V6],
        None => &[IpVersion::V4],
    };
    let want = |sandbox: &usize| {
        let spec = &scenario.sandboxes[*sandbox];
        let owner = Owner { handle: spec.handle.as_str().into(), attributes: labels(&[("pod", &spec.pod)]) };
        Want::one_each(owner, handles.get(spec.handle.as_str()).cloned(), versions)
    };
    let request = Request::new(node, batch.iter().map(want).collect(), PoolUse::Workload, 128);
    let pools = pools(seen);
    (request, Surroundings { config, pools, reserved: Vec::new(), affinities, unclaimed: Vec::new(), now })
}

/// The fault that gave the project its name for sandboxes: whoever has the pod's name is meant.
fn release_by_name(pod: &str, seen: &[Read]) -> Progress {
    let mut items = Vec::new();
    for (key, found) in seen {
        let Answer::Block(stored) = answer(key, found) else { continue };
        let block = stored.value;
        for ordinal in 0..block.capacity() {
            let of_pod = block.attribute(ordinal).and_then(|known| known.secondary.get("pod"));
            if of_pod.is_some_and(|of| of == pod) {
                let address = block.address(ordinal).unwrap();
                items.push(ReleaseItem { address, handle: None, sequence_number: None });
            }
        }
    }
    finish(AddressRelease::new(items, Vec::new(), None, 128), seen, |released| vec![released.steps])
}
