//! Whether blocks, handles, affinities, nodes and endpoints tell one story: what `plumb ipam check` says.
//!
//! Everything is compared in sorted lists, so that a large cluster takes well under a second.

mod addresses;
mod problem;
mod records;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::BlockAttribute;
use model::{Cidr, HandleId};

pub use problem::{Problem, Really};

use crate::{Books, Doubt, Pool, Tunnel};

/// Everything that is known.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub books: &'a Books,
    pub pools: &'a [Pool],
    pub nodes: &'a [NodeFacts],
    pub endpoints: &'a [EndpointFacts<'a>],
    /// Addresses of services that load balancers give out.
    pub services: &'a [(String, IpAddr)],
    pub now: Timestamp,
}

/// A node, and the addresses of its tunnel devices in both IP versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    pub tunnels: Vec<(Tunnel, IpAddr)>,
}

/// Borrowed where somebody else has it all in memory already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFacts<'a> {
    pub namespace: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub addresses: Cow<'a, [IpAddr]>,
}

impl EndpointFacts<'static> {
    pub fn owned(namespace: String, name: String, addresses: Vec<IpAddr>) -> EndpointFacts<'static> {
        EndpointFacts {
            namespace: Cow::Owned(namespace),
            name: Cow::Owned(name),
            addresses: Cow::Owned(addresses),
        }
    }
}

/// Who uses an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    Endpoint { namespace: String, name: String },
    Tunnel { node: String, tunnel: Tunnel },
    Service(String),
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Endpoint { namespace, name } => write!(f, "endpoint {namespace}/{name}"),
            User::Tunnel { node, tunnel } => write!(f, "{} of node {node}", tunnel.type_word()),
            User::Service(name) => write!(f, "service {name}"),
        }
    }
}

/// What the comparison found.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    /// Sorted by kind.
    pub problems: Vec<Problem>,
    /// Every allocated address, sorted.
    pub allocations: Vec<Allocated<'a>>,
    /// How many different addresses are in use.
    pub in_use: usize,
    pub unjudged: Unjudged,
}

/// What could not be judged, because a record that cannot be read may have to do with it ([`Doubt`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unjudged {
    /// Addresses in use that lie in blocks which cannot be trusted. Sorted.
    pub used: Vec<IpAddr>,
    /// Allocated addresses that no readable endpoint or node uses. Sorted.
    pub allocated: Vec<IpAddr>,
    /// Addresses in use that are in no readable pool. Sorted.
    pub outside_pools: Vec<IpAddr>,
    /// Handles that no readable block mentions.
    pub handles: Vec<HandleId>,
}

impl Unjudged {
    pub fn is_empty(&self) -> bool {
        *self == Unjudged::default()
    }
}

/// An allocated address of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allocated<'a> {
    pub address: IpAddr,
    pub block: Cidr,
    pub attribute: &'a BlockAttribute,
    pub sequence_number: u64,
    pub is_in_use: bool,
    /// By a node other than the block's.
    pub is_borrowed: bool,
    pub is_cooling_down: bool,
}

/// Compares everything with everything.
pub fn analyse<'a>(evidence: &Evidence<'a>) -> Analysis<'a> {
    let mut problems = Vec::new();
    let doubt = Doubt::of(evidence.books);
    let sound = records::check_blocks(evidence, &mut problems);
    records::check_overlaps(evidence, &mut problems);
    let mut unjudged = Unjudged::default();
    records::check_handles(evidence, &sound, &doubt, &mut problems, &mut unjudged);
    records::check_affinities(evidence, &doubt, &mut problems);
    let (allocations, in_use) =
        addresses::check_addresses(evidence, &sound, &doubt, &mut problems, &mut unjudged);
    problems.sort_unstable();
    unjudged.handles.sort_unstable();
    Analysis { problems, allocations, in_use, unjudged }
}
