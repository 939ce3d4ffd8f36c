//! Records that cannot be read, and what they may hold.
//!
//! A record that nobody can read is still there. Whatever it may hold counts as held: nothing is concluded from its absence in the
//! lists of what could be read, and nothing that could belong to it is removed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::{AffinityOwner, Cidr, HandleId, Key, Kind};

use crate::{Books, Reservations};

/// What the unreadable records of a store may hold.
#[derive(Clone, Debug, Default)]
pub struct Doubt<'a> {
    blocks: BTreeSet<Cidr>,
    inside: Reservations,
    handles: BTreeSet<&'a HandleId>,
    affinities: BTreeSet<(&'a AffinityOwner, Cidr)>,
    nodes: BTreeSet<&'a str>,
    has_endpoints: bool,
    has_pools: bool,
}

impl<'a> Doubt<'a> {
    pub fn of(books: &'a Books) -> Doubt<'a> {
        let mut doubt = Doubt::default();
        for corrupt in &books.unreadable {
            match &corrupt.key {
                Key::Block(cidr) => drop(doubt.blocks.insert(*cidr)),
                Key::Handle(id) => drop(doubt.handles.insert(id)),
                Key::Affinity { owner, block } => drop(doubt.affinities.insert((owner, *block))),
                Key::Resource { kind: Kind::WorkloadEndpoint, .. } => doubt.has_endpoints = true,
                Key::Resource { kind: Kind::Node, name, .. } => drop(doubt.nodes.insert(name)),
                Key::Resource { kind: Kind::IpPool, .. } => doubt.has_pools = true,
                Key::Resource { .. } | Key::IpamConfig => {}
            }
        }
        let blocks: Vec<Cidr> = doubt.blocks.iter().copied().collect();
        doubt.inside = Reservations::new(&blocks);
        doubt
    }

    /// Blocks that cannot be read.
    pub fn blocks(&self) -> impl Iterator<Item = Cidr> {
        self.blocks.iter().copied()
    }

    pub fn is_block(&self, cidr: &Cidr) -> bool {
        self.blocks.contains(cidr)
    }

    /// Whether an unreadable block may hold this address.
    pub fn may_hold(&self, address: IpAddr) -> bool {
        self.inside.contains(address)
    }

    /// Whether an unreadable block may hold addresses of some handle. Which handles it names cannot be known: a handle that counts
    /// nothing there may just count wrong.
    pub fn may_hold_any_handle(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub fn is_handle(&self, id: &HandleId) -> bool {
        self.handles.contains(id)
    }

    pub fn is_affinity(&self, owner: &AffinityOwner, block: &Cidr) -> bool {
        self.affinities.contains(&(owner, *block))
    }

    /// Whether a node of this name has a record that cannot be read: it exists.
    pub fn is_node(&self, name: &str) -> bool {
        self.nodes.contains(name)
    }

    /// Whether an endpoint or a node (by its tunnels) that cannot be read may use any address.
    pub fn may_use_any_address(&self) -> bool {
        self.has_endpoints || !self.nodes.is_empty()
    }

    /// Whether a pool that cannot be read may contain any address.
    pub fn has_pools(&self) -> bool {
        self.has_pools
    }

    /// Whether a node that cannot be read may exist under any name that is not known.
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }
}
