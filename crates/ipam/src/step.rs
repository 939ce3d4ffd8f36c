//! Records as they were read, and changes that belong together.
//!
//! # One list for two kinds of store
//!
//! Every decision ends in one [`Steps`]. A store with transactions commits [`Steps::atomic`]: one change per record,
//! all or nothing. A store without carries out [`Steps::parts`]: one step after the other, except for the handles, which are
//! written beside each other. An owner whose handle cannot be written drops out of an assignment, and its addresses stay free
//! ([`crate::Parts::leave_free`]). An owner has its addresses as soon as its blocks are written; whoever is stopped before
//! gives back what it got so far, with a [`crate::HandleRelease::after_own_failure`], and starts over. A handle that was just
//! made, and of whose blocks none was written, is simply deleted at the revision it was made with.
//! Whoever dies there leaves that to the owner's own release. The order is such that each prefix is harmless and put right by [`mod@crate::recover`]:
//!
//! | operation | its writes, in order | what a crash after each leaves, and what becomes of it |
//! |---|---|---|
//! | assign from an own block, or borrow | handles · blocks | handles that count addresses they do not have: counted again · nothing |
//! | claim a block and assign | affinity pending · block, empty · handles · block · affinity confirmed | a pending affinity without block: removed · with its block: confirmed · as above · confirmed · nothing |
//! | take over another node's empty block | its affinity pendingDeletion · ours pending · handles · block, now ours · its affinity gone · ours confirmed | the release is finished · ours is stale, removed · as above · its affinity is stale, removed · ours is confirmed · nothing |
//! | release addresses | blocks · handles | handles that count what is free: counted again · nothing |
//! | give up a block | affinity pendingDeletion · block gone or without owner · affinity gone | finished if the block is empty, else taken back · the affinity is stale, removed · nothing |
//! | claim or confirm a block | affinity pending · block · affinity confirmed | as for the claim above |
//!
//! In no prefix is an address free that someone holds, or held by two: that is decided by the one write of the block.
//!
//! Blocks are written in the order of their networks by everyone. So whoever fails at a block fails because of someone
//! who is further on, and at the last block because of someone who is through: however often operations that need
//! several blocks defeat each other, one of them comes to its end.
//!
//! Whoever removes a count from a handle first writes the block anew ([`Ordered::Touch`]). Without it, an assigner
//! that wrote the handle but not yet the block would succeed after all, with an address that its handle does not
//! know: whoever then releases by handle would leave it behind. For the same reason no handle is written as it is
//! ([`crate::Assigned::unchanged_handles`]): Kubernetes takes such a write for none, and whoever removes the count would not
//! notice it.

use std::collections::BTreeSet;

use model::Key;

/// A record as it was read. The revision is the store's own word for it; only equality means anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored<T> {
    pub value: T,
    pub revision: String,
}

impl<T> Stored<T> {
    pub fn new(value: T, revision: impl Into<String>) -> Stored<T> {
        Stored { value, revision: revision.into() }
    }
}

/// One change, or one thing that a decision relied on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// There must be no such record yet.
    Create { key: Key, value: Vec<u8> },
    /// The record must still be at this revision.
    Update { key: Key, value: Vec<u8>, revision: String },
    /// The record must still be at this revision.
    Delete { key: Key, revision: String },
    /// Nothing changes, but the decision relied on this record being as it was.
    Require { key: Key, revision: String },
    /// Nothing changes, but the decision relied on there being no such record.
    RequireAbsent { key: Key },
}

impl Step {
    pub fn key(&self) -> &Key {
        match self {
            Step::Create { key, .. }
            | Step::Update { key, .. }
            | Step::Delete { key, .. }
            | Step::Require { key, .. }
            | Step::RequireAbsent { key } => key,
        }
    }

    /// Whether the step changes its record.
    pub fn is_write(&self) -> bool {
        !matches!(self, Step::Require { .. } | Step::RequireAbsent { .. })
    }
}

/// One step for a store that does them one by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ordered {
    /// One that needs no other before it.
    Step(Step),
    /// Writes a record anew without changing what it says, so that everyone who decided on the revision before must
    /// look again. Where steps happen together it is enough to require that revision.
    Touch { key: Key, value: Vec<u8>, revision: String },
    /// Changes a record that an earlier step of the list wrote; it must still be as that step left it.
    Again { key: Key, value: Vec<u8> },
    /// Deletes a record that an earlier step of the list wrote; it must still be as that step left it.
    Remove { key: Key },
}

impl Ordered {
    pub fn key(&self) -> &Key {
        match self {
            Ordered::Step(step) => step.key(),
            Ordered::Touch { key, .. } | Ordered::Again { key, .. } | Ordered::Remove { key } => key,
        }
    }

    /// A requirement on the settings or on a pool. In a transaction it guarantees that what was decided on still holds. Where
    /// records are written one by one it would be a look shortly before the write, which promises nothing: what changes after
    /// the look is not noticed either.
    pub fn is_courtesy(&self) -> bool {
        let is_of_others = matches!(self.key(), Key::Resource { .. } | Key::IpamConfig);
        is_of_others && matches!(self, Ordered::Step(step) if !step.is_write())
    }

    /// Writes what a block says about its addresses.
    pub(crate) fn is_decisive(&self) -> bool {
        match self {
            Ordered::Step(step) => step.is_write() && matches!(step.key(), Key::Block(_)),
            Ordered::Again { key, .. } | Ordered::Remove { key } => matches!(key, Key::Block(_)),
            Ordered::Touch { .. } => false,
        }
    }
}

/// What a decision wants done: everything or nothing where the store can, else in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Steps(Vec<Ordered>);

impl Steps {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing is written: the steps only say what was relied on.
    pub fn is_idle(&self) -> bool {
        !self.atomic().iter().any(Step::is_write)
    }

    /// For a store that commits several records at once: every record once.
    pub fn atomic(&self) -> Vec<Step> {
        let mut folded: Vec<Step> = Vec::new();
        for ordered in &self.0 {
            match ordered {
                Ordered::Step(step) => folded.push(step.clone()),
                Ordered::Touch { key, revision, .. } => {
                    folded.push(Step::Require { key: key.clone(), revision: revision.clone() });
                }
                Ordered::Again { key, value } => {
                    replace(&mut folded, key, |earlier| written_again(earlier, value));
                }
                Ordered::Remove { key } => replace(&mut folded, key, removed_again),
            }
        }
        folded
    }

    /// For a store that writes record by record.
    pub fn in_order(&self) -> &[Ordered] {
        &self.0
    }

    /// After so many steps of [`Steps::in_order`] the outcome stands, whatever becomes of the others: all blocks are
    /// written, and the blocks are the truth. What is left then is housekeeping that recovery finishes.
    pub fn decided_after(&self) -> usize {
        self.0.iter().rposition(Ordered::is_decisive).map_or(self.0.len(), |last| last + 1)
    }

    /// How many changes the commit has: what stores put a bound on.
    pub fn changes(&self) -> usize {
        self.0.iter().map(Ordered::key).collect::<BTreeSet<_>>().len()
    }

    /// Puts independent decisions into one commit. They must not share a record, except for what both rely on.
    pub fn append(&mut self, other: Steps) {
        for ordered in other.0 {
            let is_reliance = matches!(&ordered, Ordered::Step(step) if !step.is_write());
            if !(is_reliance && self.0.contains(&ordered)) {
                self.0.push(ordered);
            }
        }
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.0.push(Ordered::Step(step));
    }

    /// Makes the record, or replaces the one that was read.
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>, revision: Option<String>) {
        self.push(match revision {
            Some(revision) => Step::Update { key, value, revision },
            None => Step::Create { key, value },
        });
    }

    pub(crate) fn touch(&mut self, key: Key, value: Vec<u8>, revision: String) {
        self.0.push(Ordered::Touch { key, value, revision });
    }

    pub(crate) fn again(&mut self, key: Key, value: Vec<u8>) {
        self.0.push(Ordered::Again { key, value });
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.0.push(Ordered::Remove { key });
    }
}

/// Fills commits of at most `changes_max` changes with independent decisions, in their order. A decision that is
/// larger by itself stays whole: the store will say that it cannot take it.
pub fn pack(decisions: impl IntoIterator<Item = Steps>, changes_max: usize) -> Vec<Steps> {
    let mut commits: Vec<Steps> = Vec::new();
    for steps in decisions.into_iter().filter(|steps| !steps.is_empty()) {
        match commits.last_mut() {
            Some(last) if last.changes() + steps.changes() <= changes_max => last.append(steps),
            _ => commits.push(steps),
        }
    }
    commits
}

fn replace(folded: &mut [Step], key: &Key, with: impl FnOnce(&Step) -> Step) {
    let earlier = folded.iter_mut().find(|step| step.key() == key);
    debug_assert!(earlier.is_some(), "{key} was not written before");
    if let Some(earlier) = earlier {
        *earlier = with(earlier);
    }
}

fn written_again(earlier: &Step, value: &[u8]) -> Step {
    let (key, value) = (earlier.key().clone(), value.to_vec());
    match earlier {
        Step::Create { .. } | Step::RequireAbsent { .. } => Step::Create { key, value },
        Step::Update { revision, .. } | Step::Delete { revision, .. } | Step::Require { revision, .. } => {
            Step::Update { key, value, revision: revision.clone() }
        }
    }
}

fn removed_again(earlier: &Step) -> Step {
    let key = earlier.key().clone();
    match earlier {
        Step::Create { .. } | Step::RequireAbsent { .. } => Step::RequireAbsent { key },
        Step::Update { revision, .. } | Step::Delete { revision, .. } | Step::Require { revision, .. } => {
            Step::Delete { key, revision: revision.clone() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Key {
        Key::Handle(id.into())
    }

    fn value(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn several_writes_of_a_record_become_one() {
        let mut steps = Steps::default();
        steps.put(key("new"), value("1"), None);
        steps.put(key("known"), value("1"), Some("7".to_owned()));
        steps.touch(key("touched"), value("1"), "8".to_owned());
        steps.touch(key("used"), value("1"), "9".to_owned());
        steps.again(key("new"), value("2"));
        steps.remove(key("known"));
        steps.again(key("used"), value("2"));
        assert_eq!((steps.changes(), steps.in_order().len(), steps.decided_after()), (4, 7, 7));
        assert_eq!(
            steps.atomic(),
            [
                Step::Create { key: key("new"), value: value("2") },
                Step::Delete { key: key("known"), revision: "7".to_owned() },
                Step::Require { key: key("touched"), revision: "8".to_owned() },
                Step::Update { key: key("used"), value: value("2"), revision: "9".to_owned() },
            ]
        );
    }

    #[test]
    fn the_last_block_decides() {
        let block = Key::Block("10.0.0.0/26".parse().unwrap());
        let mut steps = Steps::default();
        steps.put(block.clone(), value("1"), None);
        steps.put(key("handle"), value("1"), None);
        steps.again(block.clone(), value("2"));
        steps.put(key("later"), value("1"), None);
        assert_eq!(steps.decided_after(), 3);
        let mut touching = Steps::default();
        touching.touch(block, value("1"), "1".to_owned());
        touching.put(key("handle"), value("1"), None);
        assert_eq!(touching.decided_after(), 2, "touching a block decides nothing");
    }

    #[test]
    fn commits_are_filled_up_to_their_bound() {
        let one = |id: &str| {
            let mut steps = Steps::default();
            steps.push(Step::Require { key: key("pool"), revision: "1".to_owned() });
            steps.put(key(id), value(""), None);
            steps
        };
        let commits = pack([one("a"), one("b"), one("c"), Steps::default()], 3);
        let sizes: Vec<usize> = commits.iter().map(Steps::changes).collect();
        assert_eq!(sizes, [2, 2, 2]);
        let commits = pack([one("a"), one("b"), one("c")], 4);
        // What both rely on is there once.
        assert_eq!(commits.iter().map(Steps::changes).collect::<Vec<_>>(), [3, 2]);
        assert!(!commits[0].is_idle());
        assert_eq!(commits[0].atomic().len(), 3, "no record twice");
    }
}
