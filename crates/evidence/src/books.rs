//! The records of address management: whole ones as `ipam` knows them, cut ones as far as they can be read, and what
//! other tools say about them.

use std::collections::BTreeMap;

use ipam::{Answer, Books};
use model::ipam::IpamConfig;
use model::{AffinityOwner, Cidr, HandleId, Key};

use super::{Origin, Sighted};

/// Blocks, handles and affinities, and where each was seen.
#[derive(Clone, Debug, Default)]
pub struct IpamEvidence {
    pub books: Books,
    /// For records that were not read from the store itself, where a record's key is its place.
    pub origins: BTreeMap<Key, Origin>,
    /// Which of the lists are whole. A single pasted block says nothing about handles that are not there.
    pub whole: Whole,
    pub config: Option<Sighted<IpamConfig>>,
    /// Affinities of a Kubernetes store, by the labels that a list of one node's affinities goes by.
    pub labels: AffinityLabels,
    /// Blocks that were pasted in part. They are in no other list.
    pub cut_blocks: Vec<Sighted<CutBlock>>,
    /// What `calicoctl ipam check` calls a problem: `10.0.0.1 leaked`, in its words.
    pub reported: Vec<Sighted<String>>,
}

/// Of which lists it is known that nothing is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    pub blocks: bool,
    pub handles: bool,
    pub affinities: bool,
}

/// Which affinities have the labels by which newer releases find them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffinityLabels {
    pub present: usize,
    pub missing: Vec<Sighted<(AffinityOwner, Cidr)>>,
}

/// A block of which a part is missing: whatever can be read from the rest, and not a word more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutBlock {
    pub cidr: Option<Cidr>,
    /// Handles its attributes name, each with the line.
    pub handles: Vec<Sighted<HandleId>>,
}

impl Whole {
    pub const ALL: Whole = Whole { blocks: true, handles: true, affinities: true };
}

impl IpamEvidence {
    /// Books as they were read from a live store, whole.
    pub fn of_store(books: Books) -> IpamEvidence {
        IpamEvidence { books, whole: Whole::ALL, ..IpamEvidence::default() }
    }

    /// Takes in one record that was found in a text.
    pub fn add(&mut self, key: Key, value: &[u8], origin: Origin) {
        self.books.add(&key, Answer::read(&key, Some((value, ""))));
        self.origins.insert(key, origin);
    }

    /// Where a record was seen.
    pub fn origin(&self, key: &Key) -> Origin {
        self.origins.get(key).cloned().unwrap_or_else(|| Origin::store(key))
    }

    pub fn absorb(&mut self, other: IpamEvidence) {
        self.books.blocks.extend(other.books.blocks);
        self.books.handles.extend(other.books.handles);
        self.books.affinities.extend(other.books.affinities);
        self.books.unreadable.extend(other.books.unreadable);
        self.origins.extend(other.origins);
        self.whole.blocks |= other.whole.blocks;
        self.whole.handles |= other.whole.handles;
        self.whole.affinities |= other.whole.affinities;
        self.config = self.config.take().or(other.config);
        self.labels.present += other.labels.present;
        self.labels.missing.extend(other.labels.missing);
        self.cut_blocks.extend(other.cut_blocks);
        self.reported.extend(other.reported);
    }
}
