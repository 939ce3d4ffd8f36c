//! How a decision asks for records, and what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::ipam::{Affinity, Block, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key};

use crate::block::tidy;
use crate::{Stored, Survey};

/// A decision that reads as it goes. The one who drives it repeats: [`poll`](Decision::poll); on [`Next::Look`] read
/// those records, in one round trip if possible, and [`show`](Decision::show) each; on [`Next::Done`] commit the
/// steps inside. If a precondition does not hold any more, start over with a new decision.
pub trait Decision {
    type Outcome;
    type Error;

    fn poll(&mut self) -> Result<Next<Self::Outcome>, Self::Error>;

    fn show(&mut self, key: &Key, answer: Answer);

    /// Takes back what [`Next::Survey`] asked for. Only assignments of addresses ask.
    fn show_survey(&mut self, _survey: Survey) {}
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<T> {
    /// Read these records and show them.
    Look(Vec<Key>),
    /// Add every block of the survey's IP version that there is, at one moment, and show the survey. Only on request
    /// ([`crate::Request::reads_one_by_one`]).
    Survey(Box<Survey>),
    Done(T),
}

/// What lies under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Absent,
    Block(Stored<Block>),
    Handle(Stored<Handle>),
    Affinity(Stored<Affinity>),
    /// Something that cannot be read, and why.
    Unreadable(String),
}

impl Answer {
    /// Reads a stored value and its revision.
    pub fn read(key: &Key, record: Option<(&[u8], &str)>) -> Answer {
        let Some((value, revision)) = record else { return Answer::Absent };
        let answer = match key {
            Key::Block(cidr) => {
                Block::decode(cidr, value).map(|block| Answer::Block(Stored::new(block, revision)))
            }
            Key::Handle(id) => {
                Handle::decode(id, value).map(|handle| Answer::Handle(Stored::new(handle, revision)))
            }
            Key::Affinity { owner, block } => Affinity::decode(owner, block, value)
                .map(|affinity| Answer::Affinity(Stored::new(affinity, revision))),
            Key::Resource { .. } | Key::IpamConfig => {
                return Answer::Unreadable("not a record that decisions ask for".to_owned());
            }
        };
        answer.unwrap_or_else(|error| {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            Answer::Unreadable(reason.unwrap_or_else(|| error.to_string()))
        })
    }
}

/// A record that contradicts itself. Nothing is taken from it and nothing released into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{key} contradicts itself: {}", contradictions.join("; "))]
pub struct Corrupt {
    pub key: Key,
    pub contradictions: Vec<String>,
}

/// A record as a decision may use it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sight<T> {
    Absent,
    There(Stored<T>),
    /// Marked as deleted, but not gone yet. Whoever finds it finishes the deletion ([`crate::recover`]); until then
    /// the name is taken and nothing is in it.
    Going,
    Broken(Corrupt),
}

/// A block as a decision may use it: in order, or else broken. What does no harm is put right on the way, as Calico
/// does: attributes that no address has, numbers of addresses that are free.
pub(crate) fn sight_block(cidr: Cidr, answer: Answer) -> Sight<Block> {
    let broken = |contradictions| Sight::Broken(Corrupt { key: Key::Block(cidr), contradictions });
    match answer {
        Answer::Absent => Sight::Absent,
        Answer::Block(stored) if stored.value.cidr != cidr => {
            broken(vec![format!("it says it is {}", stored.value.cidr)])
        }
        Answer::Block(stored) if stored.value.deleted => Sight::Going,
        Answer::Block(mut stored) => {
            tidy(&mut stored.value);
            match stored.value.contradictions() {
                found if found.is_empty() => Sight::There(stored),
                found => broken(found),
            }
        }
        Answer::Unreadable(reason) => broken(vec![reason]),
        Answer::Handle(_) | Answer::Affinity(_) => broken(vec!["it is not a block".to_owned()]),
    }
}

/// What a decision has been shown so far. Decisions over it are functions that run from the start each time, until
/// nothing is missing any more; [`Seen::need`] says what is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    blocks: BTreeMap<Cidr, Sight<Block>>,
    handles: BTreeMap<HandleId, Sight<Handle>>,
    affinities: BTreeMap<(AffinityOwner, Cidr), Sight<Affinity>>,
}

/// Why a decision stops before its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pause<E> {
    Look(Vec<Key>),
    Fail(E),
}

impl<E> From<Vec<Key>> for Pause<E> {
    fn from(keys: Vec<Key>) -> Pause<E> {
        Pause::Look(keys)
    }
}

/// What a decision that may pause says to its driver.
pub(crate) fn next<T, E>(decided: Result<T, Pause<E>>) -> Result<Next<T>, E> {
    match decided {
        Ok(outcome) => Ok(Next::Done(outcome)),
        Err(Pause::Look(keys)) => Ok(Next::Look(keys)),
        Err(Pause::Fail(error)) => Err(error),
    }
}

impl Seen {
    pub(crate) fn show(&mut self, key: &Key, answer: Answer) {
        match key {
            Key::Block(cidr) => {
                self.blocks.insert(*cidr, sight_block(*cidr, answer));
            }
            Key::Handle(id) => {
                self.handles.insert(id.clone(), sight_handle(id, answer));
            }
            Key::Affinity { owner, block } => {
                self.affinities.insert((owner.clone(), *block), sight_affinity(key, answer));
            }
            Key::Resource { .. } | Key::IpamConfig => debug_assert!(false, "{key} was not asked for"),
        }
    }

    /// Fails with those keys that have not been shown yet.
    pub(crate) fn need(&self, keys: impl IntoIterator<Item = Key>) -> Result<(), Vec<Key>> {
        let keys: BTreeSet<Key> = keys.into_iter().collect();
        let missing: Vec<Key> = keys.into_iter().filter(|key| !self.has(key)).collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    fn has(&self, key: &Key) -> bool {
        match key {
            Key::Block(cidr) => self.blocks.contains_key(cidr),
            Key::Handle(id) => self.handles.contains_key(id),
            Key::Affinity { owner, block } => self.affinities.contains_key(&(owner.clone(), *block)),
            Key::Resource { .. } | Key::IpamConfig => true,
        }
    }

    /// These must have been needed before; what was not shown counts as not there.
    pub(crate) fn block(&self, cidr: &Cidr) -> &Sight<Block> {
        self.blocks.get(cidr).unwrap_or(&Sight::Absent)
    }

    pub(crate) fn handle(&self, id: &HandleId) -> &Sight<Handle> {
        self.handles.get(id).unwrap_or(&Sight::Absent)
    }

    pub(crate) fn affinity(&self, owner: &AffinityOwner, block: &Cidr) -> &Sight<Affinity> {
        self.affinities.get(&(owner.clone(), *block)).unwrap_or(&Sight::Absent)
    }
}

fn sight_handle(id: &HandleId, answer: Answer) -> Sight<Handle> {
    let broken = |reason: String| {
        Sight::Broken(Corrupt { key: Key::Handle(id.clone()), contradictions: vec![reason] })
    };
    match answer {
        Answer::Absent => Sight::Absent,
        Answer::Handle(stored) if stored.value.deleted => Sight::Going,
        Answer::Handle(stored) => Sight::There(stored),
        Answer::Unreadable(reason) => broken(reason),
        Answer::Block(_) | Answer::Affinity(_) => broken("it is not a handle".to_owned()),
    }
}

fn sight_affinity(key: &Key, answer: Answer) -> Sight<Affinity> {
    let broken = |reason: String| Sight::Broken(Corrupt { key: key.clone(), contradictions: vec![reason] });
    match answer {
        Answer::Absent => Sight::Absent,
        Answer::Affinity(stored) if stored.value.deleted => Sight::Going,
        Answer::Affinity(stored) => Sight::There(stored),
        Answer::Unreadable(reason) => broken(reason),
        Answer::Block(_) | Answer::Handle(_) => broken("it is not an affinity".to_owned()),
    }
}

/// Names of records in a sentence.
pub(crate) struct Listed<'a, T>(pub(crate) &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, item) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{item}")?;
        }
        Ok(())
    }
}
