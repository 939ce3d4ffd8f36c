//! Why there is no address.

use std::fmt;
use std::net::IpAddr;

use model::{AffinityOwner, Cidr, HandleId, IpVersion};

use crate::Corrupt;
use crate::ask::Listed;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    #[error("there is no IP pool")]
    NoPools,
    #[error(
        "the IP pool {0} that was asked for does not exist, is not enabled for {1}, or has too small blocks"
    )]
    PoolUnknown(String, Version),
    #[error("no enabled IP pool gives {version} addresses for {purpose} use on node {host}")]
    NoPoolServes { host: String, version: Version, purpose: &'static str },
    #[error("no {version} address is free for node {host} in {}{}", Listed(.pools), list_corrupt(.corrupt))]
    Exhausted { host: String, version: Version, pools: Vec<String>, corrupt: Vec<Corrupt> },
    #[error("node {host} has no free {version} address left in its {blocks} blocks, and may not have more")]
    BlockLimit { host: String, version: Version, blocks: usize },
    #[error(
        "node {host} has no free {version} address left in its blocks, and blocks are not claimed automatically here"
    )]
    ClaimsOff { host: String, version: Version },
    /// Not a failure: the commit is full. The same request again finds the rest.
    #[error("the commit is full; the rest comes with the next one")]
    NextCommit,
    #[error("{addresses} addresses at once need more changes than one commit may have")]
    TooLarge { addresses: usize },
    #[error("handle {handle} may hold no more than {max} {version} addresses")]
    HandleLimit { handle: HandleId, version: Version, max: usize },
    #[error("handle {handle} is marked as deleted and not gone yet")]
    HandleGoing { handle: HandleId },
    #[error("{0} is in no enabled IP pool")]
    NotInPool(IpAddr),
    #[error("the IP pool {pool} of {address} does not allow {purpose} use")]
    UseNotAllowed { address: IpAddr, pool: String, purpose: &'static str },
    #[error("the IP pool {pool} of {address} does not serve node {host}")]
    NodeNotSelected { address: IpAddr, pool: String, host: String },
    #[error("{address} belongs to {}", holder(.handle))]
    Taken { address: IpAddr, handle: Option<HandleId> },
    #[error("{address} was released a moment ago and is not given again yet")]
    CoolingDown { address: IpAddr },
    #[error("{address} is in block {block} of {}, and affinity is strict", name_of(.of))]
    BlockOfAnother { address: IpAddr, block: Cidr, of: Option<AffinityOwner> },
    #[error("block {block} is being deleted; try again")]
    BlockGoing { block: Cidr },
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// An IP version in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub IpVersion);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            IpVersion::V4 => "IPv4",
            IpVersion::V6 => "IPv6",
        })
    }
}

fn list_corrupt(corrupt: &[Corrupt]) -> String {
    if corrupt.is_empty() { String::new() } else { format!(" (not used: {})", Listed(corrupt)) }
}

fn holder(handle: &Option<HandleId>) -> String {
    handle.as_ref().map_or_else(|| "an owner without handle".to_owned(), |handle| format!("handle {handle}"))
}

fn name_of(owner: &Option<AffinityOwner>) -> String {
    match owner {
        Some(AffinityOwner::Host(name)) => format!("node {name}"),
        Some(AffinityOwner::Virtual(name)) => name.clone(),
        None => "nobody".to_owned(),
    }
}
