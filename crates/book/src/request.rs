//! What callers ask for.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipam::{HostReserve, Owner, PoolUse};
use model::ipam::BlockAttribute;
use model::{AffinityOwner, HandleId, IpVersion};

use crate::{Addition, Additions};

/// Addresses for one owner, whichever are free.
#[derive(Debug)]
pub struct AssignRequest {
    /// The node that the owner is on.
    pub host: String,
    pub owner: Owner,
    pub v4: usize,
    pub v6: usize,
    /// Fewer addresses are better than none. A pod needs all of them.
    pub accepts_fewer: bool,
    /// The owner's handle may be there already, and gets more addresses. Otherwise that is
    /// [`BookError::HandleExists`](crate::BookError::HandleExists), found out without an extra look.
    pub handle_may_exist: bool,
    pub purpose: PoolUse,
    /// Names or networks of pools; empty means whichever offer themselves.
    pub pools_v4: Vec<String>,
    pub pools_v6: Vec<String>,
    pub namespace_labels: BTreeMap<String, String>,
    /// A limit of this request's own beside the one in the settings; the smaller one counts.
    pub blocks_max: Option<usize>,
    /// How many addresses of each IP version the handle may hold; if it would hold more, it gets those again that it
    /// has.
    pub handle_max: Option<usize>,
    /// What the node keeps of every new block for itself.
    pub host_reserve: Option<HostReserve>,
    /// Happens together with the addresses, or not at all.
    pub additions: Additions,
}

impl AssignRequest {
    /// One address of each version for a workload, all or none, under a handle that may be there already.
    pub fn new(host: impl Into<String>, owner: Owner, versions: &[IpVersion]) -> AssignRequest {
        let count = |version| usize::from(versions.contains(&version));
        AssignRequest {
            host: host.into(),
            owner,
            v4: count(IpVersion::V4),
            v6: count(IpVersion::V6),
            accepts_fewer: false,
            handle_may_exist: true,
            purpose: PoolUse::Workload,
            pools_v4: Vec::new(),
            pools_v6: Vec::new(),
            namespace_labels: BTreeMap::new(),
            blocks_max: None,
            handle_max: None,
            host_reserve: None,
            additions: Additions::none(),
        }
    }

    /// Whose blocks the addresses come from.
    pub(crate) fn block_owner(&self) -> AffinityOwner {
        match self.purpose {
            PoolUse::LoadBalancer => AffinityOwner::Virtual(ipam::LOAD_BALANCER.to_owned()),
            PoolUse::Workload | PoolUse::Tunnel => AffinityOwner::Host(self.host.clone()),
        }
    }

    /// Whether both can be served by one decision.
    pub(crate) fn is_alike(&self, other: &AssignRequest) -> bool {
        self.host == other.host
            && self.purpose == other.purpose
            && self.pools_v4 == other.pools_v4
            && self.pools_v6 == other.pools_v6
            && self.namespace_labels == other.namespace_labels
            && self.blocks_max == other.blocks_max
            && self.host_reserve == other.host_reserve
    }
}

type IsMeant = dyn Fn(IpAddr, &BlockAttribute, u64) -> bool + Send + Sync;

/// Addresses to give back: those of a handle.
#[derive(Clone)]
pub struct HandleRequest {
    pub handle: HandleId,
    /// Which of them: gets the address, what is known about it, and the sequence number of its allocation.
    pub is_meant: Arc<IsMeant>,
    /// Happens together with the release, also if there is nothing to release.
    pub additions: Vec<Addition>,
}

impl HandleRequest {
    /// Everything that the handle holds.
    pub fn all(handle: impl Into<HandleId>) -> HandleRequest {
        HandleRequest::only(handle, |_, _, _| true)
    }

    pub fn only(
        handle: impl Into<HandleId>,
        is_meant: impl Fn(IpAddr, &BlockAttribute, u64) -> bool + Send + Sync + 'static,
    ) -> HandleRequest {
        HandleRequest { handle: handle.into(), is_meant: Arc::new(is_meant), additions: Vec::new() }
    }

    #[must_use]
    pub fn with(mut self, additions: Vec<Addition>) -> HandleRequest {
        self.additions = additions;
        self
    }
}

impl fmt::Debug for HandleRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleRequest")
            .field("handle", &self.handle)
            .field("additions", &self.additions)
            .finish_non_exhaustive()
    }
}
