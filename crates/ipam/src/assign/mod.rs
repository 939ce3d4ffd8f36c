//! Finding addresses for one owner or for many at once: in blocks the node has, else in blocks it claims, else in
//! blocks of others.
//!
//! Per IP version:
//! 1. Choose the pools that may serve.
//! 2. Look at the node's own blocks in these pools, in the order of the affinities.
//! 3. Look for blocks that nobody has, starting at a place that depends on the node, and claim them, up to the limit.
//! 4. Nothing left: take over blocks of other nodes that are empty and were not claimed just now.
//! 5. Still short, or the limit is reached, and affinity is not strict: borrow from blocks of others.
//!
//! Then the addresses found are given to the owners in their order, and everything is written together: one write per
//! block, however many owners it serves.
//!
//! Blocks are asked for in growing batches, so that the usual case reads one record and a search through a crowded
//! pool takes few round trips. All blocks of the cluster are never listed.

mod choose;
mod ensure;
mod error;
mod grant;
mod holdings;
mod scout;
mod search;
mod specific;
mod survey;
mod writes;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, HandleId, IpVersion, Key};

pub use ensure::{BlockEnsurance, Ensured};
pub use error::{AssignError, Version};
pub use scout::claim_candidates;
pub use specific::{AddressAssignment, AddressRequest};
pub use survey::{Prospect, Survey};

use crate::ask::Seen;
use crate::{
    Answer, Corrupt, Decision, HostReserve, Next, Owner, Pool, PoolUse, Reservations, Step, Steps, Stored,
};
use choose::{Asker, choose_pools};
use holdings::{Holdings, blocks_of_limited};
use search::{Search, Wanted};

/// How many blocks a node may have per IP version if the settings do not say; Calico's number.
pub const BLOCKS_MAX: usize = 20;

/// What etcd reads in one round trip.
const LOOK_KEYS_MAX: usize = 128;

/// The owner of blocks for services, in Calico's words.
pub const LOAD_BALANCER: &str = "load-balancer";

/// Who wants addresses, and what for. A batch shares everything but the owners.
#[derive(Clone, Debug)]
pub struct Request {
    pub host: String,
    pub wants: Vec<Want>,
    pub purpose: PoolUse,
    /// Names or networks of pools; empty means whichever offer themselves.
    pub pools_v4: Vec<String>,
    pub pools_v6: Vec<String>,
    pub node_labels: BTreeMap<String, String>,
    pub namespace_labels: BTreeMap<String, String>,
    /// A limit of this request's own beside the one in the settings; the smaller one counts.
    pub blocks_max: Option<usize>,
    /// What the node keeps of every new block for itself. Such a node does not borrow.
    pub host_reserve: Option<HostReserve>,
    /// How many changes one commit may have. Owners that do not fit are told to come again.
    pub changes_max: usize,
    /// Every record that is looked at costs a request of its own, so the search does not look at several in case the first is
    /// taken. In a crowded pool it asks for all blocks at once ([`Next::Survey`]).
    pub reads_one_by_one: bool,
    /// The pools are crowded as far as is known: the search asks for all blocks before it looks at one that is not the node's. Only
    /// where records are read one by one.
    pub surveys_first: bool,
}

/// What one owner wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    pub owner: Owner,
    /// The owner's handle, if it has one already.
    pub handle: Option<Stored<Handle>>,
    pub v4: usize,
    pub v6: usize,
    /// Fewer addresses are better than none. A pod needs all of them.
    pub accepts_fewer: bool,
    /// How many addresses of each IP version the handle may hold. If it would hold more, it is granted those again
    /// that it has. Where records are written one by one, two who ask at once may both be served.
    pub handle_max: Option<usize>,
    /// Changes that the caller adds to the commit for this owner (its endpoint).
    pub extra_changes: usize,
}

impl Want {
    /// One address of each version asked for, all or none.
    pub fn one_each(owner: Owner, handle: Option<Stored<Handle>>, versions: &[IpVersion]) -> Want {
        let count = |version| usize::from(versions.contains(&version));
        let (v4, v6) = (count(IpVersion::V4), count(IpVersion::V6));
        Want { owner, handle, v4, v6, accepts_fewer: false, handle_max: None, extra_changes: 0 }
    }

    fn count(&self, version: IpVersion) -> usize {
        match version {
            IpVersion::V4 => self.v4,
            IpVersion::V6 => self.v6,
        }
    }
}

/// The records that a decision starts from.
///
/// The commit relies on the settings, or on there being none, and on the pools of the blocks it uses: a change of
/// either makes it fail, however old the picture was that it was decided on. It does not rely on reservations and on
/// the labels of nodes and namespaces. A reservation never concerns addresses that are taken already, and a selector
/// never takes a block away that is in use; so a commit that overtakes such a change is like one that came before it.
/// Nor could it be had for reservations: no store promises that none was *added*.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// `None` if there is no such record: then the defaults hold.
    pub config: Option<Stored<IpamConfig>>,
    /// All pools, in the order of their names.
    pub pools: Vec<Stored<Pool>>,
    pub reserved: Vec<Cidr>,
    /// The node's, of every IP version that is wanted.
    pub affinities: Vec<(Cidr, Stored<Affinity>)>,
    /// Blocks that were seen not to be there, in the order in which they are to be claimed. They are claimed without a
    /// look: if someone was faster, the commit fails, and whoever starts over gives none. None is always right.
    pub unclaimed: Vec<Cidr>,
    pub now: Timestamp,
}

impl Surroundings {
    pub(crate) fn settings(&self) -> Cow<'_, IpamConfig> {
        self.config
            .as_ref()
            .map_or_else(|| Cow::Owned(IpamConfig::default()), |stored| Cow::Borrowed(&stored.value))
    }

    /// What every assignment relies on.
    pub(crate) fn settings_step(&self) -> Step {
        match &self.config {
            Some(stored) => Step::Require { key: Key::IpamConfig, revision: stored.revision.clone() },
            None => Step::RequireAbsent { key: Key::IpamConfig },
        }
    }

    fn is_confirmed(&self, block: &Cidr) -> bool {
        self.affinity(block).is_some_and(|known| known.value.state == AffinityState::Confirmed)
    }

    fn affinity(&self, block: &Cidr) -> Option<&Stored<Affinity>> {
        self.affinities.iter().find(|(known, _)| known == block).map(|(_, affinity)| affinity)
    }
}

/// Addresses that are their owners' as soon as all steps have happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// One per want, in the same order.
    pub grants: Vec<Grant>,
    pub steps: Steps,
    /// Blocks that were met and not used, because they contradict themselves.
    pub corrupt: Vec<Corrupt>,
    /// Handles that already say what they are to say: an earlier attempt died between handle and block. In a transaction
    /// that is all right. Kubernetes takes a write that changes nothing for none, so it would not stop whoever is about to
    /// put the handle right ([`crate::HandleRelease`], [`mod@crate::recover`]): there that must be done first.
    pub unchanged_handles: Vec<HandleId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    pub addresses: Vec<Granted>,
    /// Why there are fewer addresses than wanted.
    pub shortage: Option<AssignError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    pub address: IpAddr,
    pub block: Cidr,
    /// From a block of another node.
    pub is_borrowed: bool,
    /// The handle did not have it before.
    pub is_new: bool,
}

impl Assigned {
    /// For a request with one want that takes all or nothing.
    pub fn single(mut self) -> Result<(Vec<Granted>, Steps), AssignError> {
        let grant = self.grants.pop().unwrap_or_default();
        match grant.shortage {
            Some(shortage) => Err(shortage),
            None => Ok((grant.addresses, self.steps)),
        }
    }
}

/// The search for addresses.
#[derive(Debug)]
pub struct Assignment {
    request: Request,
    surroundings: Surroundings,
    reserved: Reservations,
    /// One per IP version that is wanted.
    searches: Vec<Search>,
    /// The blocks of handles that have a maximum.
    limited: Seen,
}

impl Assignment {
    pub fn new(request: Request, surroundings: Surroundings) -> Result<Assignment, AssignError> {
        let going = |want: &Want| want.handle.as_ref().is_some_and(|handle| handle.value.deleted);
        if let Some(want) = request.wants.iter().find(|want| going(want)) {
            return Err(AssignError::HandleGoing { handle: want.owner.handle.clone() });
        }
        let reserved = Reservations::new(&surroundings.reserved);
        let mut searches = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let needed: usize = request.wants.iter().map(|want| want.count(version)).sum();
            if needed > 0 {
                let pools =
                    choose_pools(request.asker(), version, request.pools(version), &surroundings.pools)?;
                searches.push(Search::new(version, needed, pools, &request, &surroundings, &reserved));
            }
        }
        Ok(Assignment { request, surroundings, reserved, searches, limited: Seen::default() })
    }

    fn grant(&self) -> Assigned {
        let holdings = Holdings::of(&self.request.wants, &self.request.block_owner(), &self.limited);
        grant::grant(&self.request, &self.surroundings, &self.reserved, &self.searches, holdings)
    }
}

impl Decision for Assignment {
    type Outcome = Assigned;
    type Error = AssignError;

    fn poll(&mut self) -> Result<Next<Assigned>, AssignError> {
        let mut keys: Vec<Key> = Vec::new();
        for search in &mut self.searches {
            match search.poll(&self.surroundings) {
                Wanted::Records(records) => keys.extend(records),
                Wanted::Survey(survey) => return Ok(Next::Survey(survey)),
            }
        }
        if let Err(missing) = self.limited.need(blocks_of_limited(&self.request.wants)) {
            let room = LOOK_KEYS_MAX.saturating_sub(keys.len());
            let missing: Vec<Key> =
                missing.into_iter().filter(|key| !keys.contains(key)).take(room).collect();
            keys.extend(missing);
        }
        if !keys.is_empty() {
            return Ok(Next::Look(keys));
        }
        Ok(Next::Done(self.grant()))
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        for search in &mut self.searches {
            search.show(key, &answer, &self.surroundings);
        }
        if blocks_of_limited(&self.request.wants).any(|known| known == *key) {
            self.limited.show(key, answer);
        }
    }

    fn show_survey(&mut self, survey: Survey) {
        for search in &mut self.searches {
            search.show_survey(survey.clone(), &self.surroundings);
        }
    }
}

impl Request {
    /// Addresses from whichever pools offer themselves to a node and a namespace without labels.
    pub fn new(host: impl Into<String>, wants: Vec<Want>, purpose: PoolUse, changes_max: usize) -> Request {
        Request {
            host: host.into(),
            wants,
            purpose,
            pools_v4: Vec::new(),
            pools_v6: Vec::new(),
            node_labels: BTreeMap::new(),
            namespace_labels: BTreeMap::new(),
            blocks_max: None,
            host_reserve: None,
            changes_max,
            reads_one_by_one: false,
            surveys_first: false,
        }
    }

    /// Who the blocks belong to that this request claims.
    pub fn block_owner(&self) -> AffinityOwner {
        block_owner(&self.host, self.purpose)
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            host: &self.host,
            purpose: self.purpose,
            node_labels: &self.node_labels,
            namespace_labels: &self.namespace_labels,
            host_reserve: self.host_reserve,
        }
    }

    fn pools(&self, version: IpVersion) -> &[String] {
        match version {
            IpVersion::V4 => &self.pools_v4,
            IpVersion::V6 => &self.pools_v6,
        }
    }
}

pub(crate) fn block_owner(host: &str, purpose: PoolUse) -> AffinityOwner {
    match purpose {
        PoolUse::LoadBalancer => AffinityOwner::Virtual(LOAD_BALANCER.to_owned()),
        PoolUse::Workload | PoolUse::Tunnel => AffinityOwner::Host(host.to_owned()),
    }
}

/// The smaller of the two limits; 0 in the settings is none.
fn blocks_limit(config: &IpamConfig, requested: Option<usize>) -> usize {
    let configured = usize::try_from(config.max_blocks_per_host).ok().filter(|limit| *limit > 0);
    let requested = requested.filter(|limit| *limit > 0);
    match (configured, requested) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other).unwrap_or(BLOCKS_MAX),
    }
}
