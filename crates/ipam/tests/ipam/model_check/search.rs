//! Visiting every state once, depth first.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use super::scenario::Scenario;
use super::state::{Action, Broken, State};

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) states: usize,
    pub(crate) transitions: usize,
    /// States in which nothing more can happen.
    pub(crate) ends: usize,
    pub(crate) depth: usize,
}

/// More than any scenario here has: a search without end is a failure.
const STATES_MAX: usize = 3_000_000;

/// Longer than any way there is. Actors that can defeat each other for ever make ways without end.
const DEPTH_MAX: usize = 500;

/// A state on the way, and what can still be tried from it.
struct Visit {
    state: State,
    actions: Vec<Action>,
    taken: Option<Action>,
}

/// Goes through every state that can be reached. The first that breaks an invariant ends the search, with the way there.
pub(crate) fn explore(scenario: &Scenario) -> Result<Counted, (Broken, Vec<String>)> {
    let mut counted = Counted::default();
    let mut visited = BTreeSet::new();
    let mut path: Vec<Visit> = Vec::new();
    enter(scenario.start(), None, scenario, &mut visited, &mut path, &mut counted)?;
    while let Some(visit) = path.last_mut() {
        let Some(action) = visit.actions.pop() else {
            path.pop();
            continue;
        };
        let next = visit.state.after(&action, scenario);
        counted.transitions += 1;
        enter(next, Some(action), scenario, &mut visited, &mut path, &mut counted)?;
        counted.depth = counted.depth.max(path.len());
    }
    Ok(counted)
}

fn enter(
    state: State,
    taken: Option<Action>,
    scenario: &Scenario,
    visited: &mut BTreeSet<u128>,
    path: &mut Vec<Visit>,
    counted: &mut Counted,
) -> Result<(), (Broken, Vec<String>)> {
    if !visited.insert(fingerprint(&state)) {
        return Ok(());
    }
    counted.states += 1;
    if counted.states > STATES_MAX || path.len() > DEPTH_MAX {
        return Err((Broken("no end in sight".to_owned()), way(path, None)));
    }
    let actions = state.actions(scenario);
    counted.ends += usize::from(actions.is_empty());
    if let Err(broken) = state.check(scenario) {
        return Err((broken, way(path, taken.as_ref())));
    }
    path.push(Visit { state, actions, taken });
    Ok(())
}

/// What was done to get here, in words.
fn way(path: &[Visit], last: Option<&Action>) -> Vec<String> {
    let taken = path.iter().skip(1).map(|visit| visit.taken.as_ref()).chain([last]);
    let steps = path.iter().zip(taken);
    steps.filter_map(|(visit, action)| Some(visit.state.describe(action?))).collect()
}

/// 128 bits of a state: two states with the same are the same for all that we shall ever see.
fn fingerprint(state: &State) -> u128 {
    let mut hasher = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    state.hash(&mut hasher);
    hasher.0
}

/// FNV-1a, 128 bits.
struct Fnv(u128);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn finish(&self) -> u64 {
        (self.0 >> 64) as u64
    }
}
