//! The cluster at one moment, what can happen next, and what must be true.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{Books, ReleaseRule, recover};
use jiff::{SignedDuration, Timestamp};
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, HandleId, Key};
use serde_json::json;

use super::process::{Op, Process, ReleaseItemKey, Turn};
use super::scenario::{Closed, Fault, Scenario};
use crate::common::{Store, World, now};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Waiting,
    Adding,
    Live,
    /// The ADD came to nothing or its maker died: a DEL is due.
    Failed,
    Deleting,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    store: Store,
    phases: Vec<Phase>,
    addresses: Vec<Vec<IpAddr>>,
    /// One per sandbox, then the controller, the collector, recovery.
    processes: Vec<Process>,
    crashes: u8,
    stale_dels: Vec<u8>,
    returns: Vec<u8>,
    repeats: u8,
    refusals: u8,
    host_releases: Vec<usize>,
    collections: u8,
    recoveries: u8,
    closings: u8,
    /// The clock: it moves on whenever a block goes, so that a new one has other numbers.
    blocks_gone: u8,
    /// An address was taken in a way that had been closed.
    is_taken_too_late: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Add(usize),
    AddAgain(usize),
    Del(usize),
    DelTogether(Vec<usize>),
    DelAgain(usize),
    ComeBack(usize),
    ReleaseHost(usize),
    Collect(ReleaseItemKey),
    Recover,
    Close,
    /// Who, and which of the things that may come next.
    Turn(usize, usize),
    /// The same, but the store does not take it.
    Refuse(usize, usize),
    Crash(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) String);

const POOL: &str = "pool-0";

impl Scenario {
    pub(crate) fn start(&self) -> State {
        let mut world = World::with_pool(self.pool, self.block_size);
        if let Some((cidr, block_size)) = self.pool_v6 {
            world.put_pool("pool-six", json!({"cidr": cidr, "blockSize": block_size}));
        }
        if self.is_strict {
            world.configure(|config| config.strict_affinity = true);
        }
        if let Some((node, block)) = self.old_block {
            let owner = AffinityOwner::Host(self.nodes[node].clone());
            let block = Block::new(block.parse().unwrap(), Some(&owner), 1_000);
            world.store.put(block.key(), block.encode());
            world.put_affinity(&self.nodes[node], block.cidr, AffinityState::Confirmed);
        }
        let count = self.sandboxes.len();
        world.store.takes_same_for_none = !self.is_atomic;
        State {
            store: world.store,
            phases: vec![Phase::Waiting; count],
            addresses: vec![Vec::new(); count],
            processes: vec![Process::Idle; count + 3],
            crashes: self.crashes,
            stale_dels: vec![self.stale_dels; count],
            returns: vec![self.returns; count],
            repeats: self.repeats,
            refusals: self.refusals,
            host_releases: self.host_releases.clone(),
            collections: self.collections,
            recoveries: self.recoveries,
            closings: u8::from(self.closed.is_some()),
            blocks_gone: 0,
            is_taken_too_late: false,
        }
    }
}

impl State {
    pub(crate) fn actions(&self, scenario: &Scenario) -> Vec<Action> {
        let mut actions = Vec::new();
        for (sandbox, phase) in self.phases.iter().enumerate() {
            if !self.processes[sandbox].is_idle() {
                continue;
            }
            match phase {
                Phase::Waiting if scenario.batch_of(sandbox).is_empty() => {}
                Phase::Waiting => actions.push(Action::Add(sandbox)),
                Phase::Live | Phase::Failed => {
                    actions.push(Action::Del(sandbox));
                    actions.extend(self.dels_with(sandbox, scenario).map(Action::DelTogether));
                }
                Phase::Gone if self.stale_dels[sandbox] > 0 => actions.push(Action::DelAgain(sandbox)),
                _ => {}
            }
            if *phase == Phase::Gone && self.returns[sandbox] > 0 {
                actions.push(Action::ComeBack(sandbox));
            }
            if *phase == Phase::Failed && self.repeats > 0 {
                actions.push(Action::AddAgain(sandbox));
            }
        }
        let [controller, collector, recovery] = self.others();
        if controller.is_idle() {
            actions.extend(self.host_releases.iter().map(|node| Action::ReleaseHost(*node)));
        }
        if collector.is_idle() && self.collections > 0 {
            actions.extend(self.leaks(scenario).into_iter().map(Action::Collect));
        }
        if recovery.is_idle() && self.recoveries > 0 {
            actions.push(Action::Recover);
        }
        if self.closings > 0 {
            actions.push(Action::Close);
        }
        for (actor, process) in self.processes.iter().enumerate() {
            if !process.is_idle() {
                for choice in 0..process.choices(scenario) {
                    actions.push(Action::Turn(actor, choice));
                    if self.refusals > 0 && process.can_be_refused(choice) {
                        actions.push(Action::Refuse(actor, choice));
                    }
                }
                if self.crashes > 0 {
                    actions.push(Action::Crash(actor));
                }
            }
        }
        actions
    }

    pub(crate) fn after(&self, action: &Action, scenario: &Scenario) -> State {
        let mut next = self.clone();
        let others = self.phases.len();
        match action {
            Action::Add(sandbox) => {
                let batch = scenario.batch_of(*sandbox);
                batch.iter().for_each(|sandbox| next.phases[*sandbox] = Phase::Adding);
                next.processes[*sandbox] = Process::start(Op::Add(batch));
            }
            Action::AddAgain(sandbox) => {
                next.repeats -= 1;
                next.begin(*sandbox, Phase::Adding, Op::Add(vec![*sandbox]));
            }
            Action::Del(sandbox) => next.begin(*sandbox, Phase::Deleting, Op::Del(*sandbox)),
            Action::DelTogether(batch) => {
                batch.iter().for_each(|sandbox| next.phases[*sandbox] = Phase::Deleting);
                let op = Op::DelTogether { batch: batch.clone(), careful: Vec::new() };
                next.processes[batch[0]] = Process::start(op);
            }
            Action::DelAgain(sandbox) => {
                next.stale_dels[*sandbox] -= 1;
                next.processes[*sandbox] = Process::start(Op::Del(*sandbox));
            }
            Action::ComeBack(sandbox) => {
                next.returns[*sandbox] -= 1;
                next.begin(*sandbox, Phase::Adding, Op::Add(vec![*sandbox]));
            }
            Action::ReleaseHost(node) => {
                next.host_releases.retain(|left| left != node);
                next.processes[others] = Process::start(Op::ReleaseHost(*node));
            }
            Action::Collect(item) => {
                next.collections -= 1;
                next.processes[others + 1] = Process::start(Op::Collect(item.clone()));
            }
            Action::Recover => {
                next.recoveries -= 1;
                next.processes[others + 2] = Process::start(Op::Recover);
            }
            Action::Close => {
                next.closings -= 1;
                let mut world = next.world();
                match scenario.closed {
                    Some(Closed::Borrowing) => world.configure(|config| config.strict_affinity = true),
                    _ => world.put_pool(
                        POOL,
                        json!({"cidr": scenario.pool, "blockSize": scenario.block_size, "disabled": true}),
                    ),
                }
                next.store = world.store;
            }
            Action::Turn(actor, choice) => {
                next.turn(*actor, scenario, |process, store, now| {
                    process.turn(*choice, store, now, scenario)
                });
            }
            Action::Refuse(actor, choice) => {
                next.refusals -= 1;
                next.turn(*actor, scenario, |process, _, _| process.refuse(*choice, scenario));
            }
            Action::Crash(actor) => {
                next.crashes -= 1;
                let died = std::mem::replace(&mut next.processes[*actor], Process::Idle);
                for sandbox in died.sandboxes() {
                    if matches!(next.phases[sandbox], Phase::Adding | Phase::Deleting) {
                        next.phases[sandbox] = Phase::Failed;
                    }
                }
            }
        }
        next
    }

    /// An action in this state, in words.
    pub(crate) fn describe(&self, action: &Action) -> String {
        match action {
            Action::Turn(actor, choice) => self.processes[*actor].describe(*choice),
            Action::Refuse(actor, choice) => {
                format!("refused: {}", self.processes[*actor].describe(*choice))
            }
            Action::Crash(actor) => format!("crash before: {}", self.processes[*actor].describe(0)),
            action => format!("{action:?}"),
        }
    }

    /// What must be true of every state; see the module.
    pub(crate) fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        let held = self.check_one_owner(scenario)?;
        if self.is_taken_too_late && scenario.is_atomic {
            return Err(Broken("an address was taken in a way that was closed before".to_owned()));
        }
        let is_at_rest = self.processes.iter().all(Process::is_idle);
        if scenario.is_atomic {
            self.check_books(&self.world(), &held, scenario)?;
        } else if is_at_rest {
            let mut world = self.world();
            world.is_atomic = false;
            if scenario.recovers_at_rest {
                world.recover();
            }
            self.check_books(&world, &holders(&world), scenario)?;
        }
        if is_at_rest && self.phases.iter().all(|phase| *phase == Phase::Gone) {
            self.check_nothing_left(scenario)?;
        }
        Ok(())
    }

    /// Invariant 1. Gives back who holds which address.
    fn check_one_owner(&self, scenario: &Scenario) -> Result<BTreeMap<IpAddr, HandleId>, Broken> {
        let held = holders(&self.world());
        let mut used = BTreeSet::new();
        for (sandbox, phase) in self.phases.iter().enumerate() {
            if *phase != Phase::Live {
                continue;
            }
            for address in &self.addresses[sandbox] {
                if !used.insert(*address) {
                    return Err(Broken(format!("{address} belongs to two live sandboxes")));
                }
                let holder = held.get(address);
                if holder != Some(&scenario.sandboxes[sandbox].handle.as_str().into()) {
                    return Err(Broken(format!("{address} of live sandbox {sandbox} is held by {holder:?}")));
                }
            }
        }
        Ok(held)
    }

    /// Invariants 5 and 3.
    fn check_books(
        &self,
        world: &World,
        held: &BTreeMap<IpAddr, HandleId>,
        scenario: &Scenario,
    ) -> Result<(), Broken> {
        let books: Books = world.books();
        if let Some(repair) = recover(&books).into_iter().next() {
            return Err(Broken(format!("the books do not agree: {:?}", repair.fault)));
        }
        for (address, handle) in held {
            let of = scenario.sandboxes.iter().position(|spec| *handle == spec.handle);
            let phase = of.map(|sandbox| self.phases[sandbox]);
            if matches!(phase, None | Some(Phase::Waiting | Phase::Gone)) {
                return Err(Broken(format!("{address} is held by {handle}, which is {phase:?}")));
            }
        }
        Ok(())
    }

    /// Invariant 3, at the end: the blocks are given up, and then there is only the pool.
    fn check_nothing_left(&self, scenario: &Scenario) -> Result<(), Broken> {
        let mut world = self.world();
        world.is_atomic = scenario.is_atomic;
        if scenario.recovers_at_rest {
            world.recover();
        }
        for node in &scenario.nodes {
            let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
            for released in world.plan_release_of_host(node, rule) {
                let steps = released.result.map_err(|refusal| Broken(refusal.to_string()))?;
                world.commit(&steps).expect("nobody else writes");
            }
        }
        match world.store.keys().find(|key| !matches!(key, Key::Resource { .. } | Key::IpamConfig)) {
            Some(key) => Err(Broken(format!("{key} is left behind"))),
            None => Ok(()),
        }
    }

    fn others(&self) -> [&Process; 3] {
        let others = self.phases.len();
        [&self.processes[others], &self.processes[others + 1], &self.processes[others + 2]]
    }

    fn begin(&mut self, sandbox: usize, phase: Phase, op: Op) {
        self.phases[sandbox] = phase;
        self.processes[sandbox] = Process::start(op);
    }

    /// Those that are deleted together with a sandbox, if it is the first of them.
    fn dels_with(&self, sandbox: usize, scenario: &Scenario) -> Option<Vec<usize>> {
        let is_ready = |sandbox: &usize| {
            self.processes[*sandbox].is_idle() && matches!(self.phases[*sandbox], Phase::Live | Phase::Failed)
        };
        let batch =
            Some(scenario.batch_of(sandbox)).filter(|batch| scenario.dels_together && batch.len() > 1);
        batch.filter(|batch| batch.iter().all(is_ready))
    }

    fn turn(
        &mut self,
        actor: usize,
        scenario: &Scenario,
        act: impl FnOnce(Process, &mut Store, Timestamp) -> Turn,
    ) {
        let (blocks, held) = (self.world().blocks(), holders(&self.world()));
        let process = std::mem::replace(&mut self.processes[actor], Process::Idle);
        let now = self.now();
        let turn = act(process, &mut self.store, now);
        let is_gone = |block: &&Cidr| self.store.get(&Key::Block(**block)).is_none();
        self.blocks_gone += u8::try_from(blocks.iter().filter(is_gone).count()).unwrap();
        let is_closed = scenario.closed.is_some() && self.closings == 0;
        self.is_taken_too_late |= is_closed
            && holders(&self.world()).iter().any(|(address, handle)| {
                !held.contains_key(address) && self.is_forbidden(*address, handle.as_str(), scenario)
            });
        match turn {
            Turn::Goes(process) => self.processes[actor] = process,
            Turn::Done(Op::Add(batch), granted) => self.settle(batch.into_iter().zip(granted)),
            Turn::Partly { settled, process } => {
                self.settle(settled);
                // The next sandbox's own place is free: its ADD is under way.
                let first = process.sandboxes()[0];
                self.processes[first] = process;
            }
            Turn::Done(Op::TakeBack(batch) | Op::Mend { batch, .. }, _) => {
                self.processes[actor] = Process::start(Op::Add(batch));
            }
            Turn::Done(Op::Undo { batch, done }, _) => {
                let next =
                    if done + 1 < batch.len() { Op::Undo { batch, done: done + 1 } } else { Op::Add(batch) };
                self.processes[actor] = Process::start(next);
            }
            Turn::Done(Op::Del(sandbox), _) => {
                self.phases[sandbox] = Phase::Gone;
                self.addresses[sandbox].clear();
            }
            Turn::Done(Op::DelTogether { batch, careful }, _) => {
                for sandbox in batch {
                    if careful.contains(&sandbox) {
                        self.processes[sandbox] = Process::start(Op::Del(sandbox));
                    } else {
                        self.phases[sandbox] = Phase::Gone;
                        self.addresses[sandbox].clear();
                    }
                }
            }
            Turn::Done(..) => {}
            Turn::Refused(Op::Add(batch)) => {
                batch.into_iter().for_each(|sandbox| self.phases[sandbox] = Phase::Failed);
            }
            Turn::Refused(op) => unreachable!("{op:?} is never refused"),
        }
    }

    /// What the ADD of these sandboxes has come to.
    fn settle(&mut self, granted: impl IntoIterator<Item = (usize, Vec<IpAddr>)>) {
        for (sandbox, addresses) in granted {
            self.phases[sandbox] = if addresses.is_empty() { Phase::Failed } else { Phase::Live };
            self.addresses[sandbox] = addresses;
        }
    }

    /// Whether an address may not be taken any more once that is closed which is to be closed.
    fn is_forbidden(&self, address: IpAddr, handle: &str, scenario: &Scenario) -> bool {
        let sandbox = scenario.sandboxes.iter().find(|spec| spec.handle == handle).expect("one of ours");
        let of_node = AffinityOwner::Host(scenario.nodes[sandbox.node].clone());
        let world = self.world();
        let cidr = world.blocks().into_iter().find(|cidr| cidr.contains(address)).expect("a block");
        let is_borrowed = world.block(cidr).unwrap().value.owner() != Some(of_node);
        scenario.closed == Some(Closed::Pool) || is_borrowed
    }

    /// Allocations whose sandbox is dead, as a collector sees them.
    fn leaks(&self, scenario: &Scenario) -> Vec<ReleaseItemKey> {
        let world = self.world();
        let mut leaks = Vec::new();
        for cidr in world.blocks() {
            let block = world.block(cidr).unwrap().value;
            for (sandbox, spec) in scenario.sandboxes.iter().enumerate() {
                if self.phases[sandbox] != Phase::Failed {
                    continue;
                }
                for (ordinal, _) in ipam::held_by(&block, &spec.handle.as_str().into()) {
                    let number = block.sequence_of(ordinal);
                    leaks.push(ReleaseItemKey {
                        address: block.address(ordinal).unwrap(),
                        handle: spec.handle.clone(),
                        sequence_number: (scenario.fault != Some(Fault::NoSequenceNumber)).then_some(number),
                    });
                }
            }
        }
        leaks
    }

    fn now(&self) -> Timestamp {
        now().checked_add(SignedDuration::from_hours(i64::from(self.blocks_gone))).unwrap()
    }

    fn world(&self) -> World {
        let mut world = World::with_pools(&[]);
        world.store = self.store.clone();
        world
    }
}

fn holders(world: &World) -> BTreeMap<IpAddr, HandleId> {
    let mut holders = BTreeMap::new();
    for cidr in world.blocks() {
        let block = world.block(cidr).unwrap().value;
        for ordinal in 0..block.capacity() {
            if let Some(handle) = block.attribute(ordinal).and_then(|attribute| attribute.handle()) {
                holders.insert(block.address(ordinal).unwrap(), handle.to_owned());
            }
        }
    }
    holders
}
