//! Finding an address: in a block the node has, else in one it claims.
//!
//! 1. Keep the pools that may serve: the ones asked for, else those that offer themselves to node and namespace.
//! 2. Look at the node's own blocks in these pools, in the order of the affinities.
//! 3. Look for a block that nobody has, starting at a place that depends on the node, and claim it.
//! 4. Take the address of that block that has been free the longest and is not reserved.
//!
//! Addresses are looked up by asking for one block at a time, so that the usual case reads one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, IpVersion, Key, Kind};

use crate::block::{count_of, free_expired, take};
use crate::{Owner, Pool, PoolUse, Step, Stored, block_order};

/// How many blocks a node may have if the settings do not say.
const BLOCKS_MAX: usize = 20;

/// Who wants an address, and what for.
#[derive(Clone, Debug)]
pub struct Request {
    pub host: String,
    pub owner: Owner,
    pub version: IpVersion,
    pub purpose: PoolUse,
    /// Names or networks of pools; empty means whichever offers itself.
    pub pools: Vec<String>,
    pub node_labels: BTreeMap<String, String>,
    pub namespace_labels: BTreeMap<String, String>,
}

/// The records that a decision starts from.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub config: IpamConfig,
    /// All pools, in the order of their names.
    pub pools: Vec<Stored<Pool>>,
    pub reserved: Vec<Cidr>,
    /// The node's, of the wanted IP version.
    pub affinities: Vec<(Cidr, Stored<Affinity>)>,
    /// The owner's, if it has one already.
    pub handle: Option<Stored<Handle>>,
    pub now: Timestamp,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Read this block and hand it to [`Assignment::show`].
    Look(Cidr),
    /// Commit these steps. If one is outdated, start over.
    Commit(Assigned),
}

/// An address that is the owner's as soon as all steps have happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    pub address: IpAddr,
    pub block: Cidr,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    #[error("there is no IP pool")]
    NoPools,
    #[error("the IP pool {0} that was asked for does not exist or is not enabled for {1}")]
    PoolUnknown(String, Version),
    #[error("no enabled IP pool gives {version} addresses to pods of node {host}")]
    NoPoolServes { host: String, version: Version },
    #[error("no address is free for node {host} in {pools}{}", list_broken(.broken))]
    Exhausted { host: String, pools: String, broken: Vec<String> },
    #[error("node {host} has no free address left in its {blocks} blocks, and may not have more")]
    BlockLimit { host: String, blocks: usize },
    #[error(
        "node {host} has no free address left in its blocks, and blocks are not claimed automatically here"
    )]
    ClaimsOff { host: String },
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

/// The search for one address.
pub struct Assignment {
    request: Request,
    surroundings: Surroundings,
    /// Positions in the list of pools.
    chosen: Vec<usize>,
    own: std::vec::IntoIter<Cidr>,
    unclaimed: Box<dyn Iterator<Item = Cidr> + Send>,
    /// Blocks that contradict themselves; nothing is taken from them.
    broken: Vec<String>,
    found: Option<Assigned>,
}

impl Assignment {
    pub fn new(request: Request, surroundings: Surroundings) -> Result<Assignment, AssignError> {
        let chosen = choose_pools(&request, &surroundings.pools)?;
        let is_chosen = |block: &Cidr| {
            chosen.iter().any(|&position| surroundings.pools[position].value.cidr.contains_cidr(block))
        };
        let own: Vec<Cidr> =
            surroundings.affinities.iter().map(|(block, _)| *block).filter(is_chosen).collect();
        let host = request.host.clone();
        let orders: Vec<_> = chosen
            .iter()
            .map(|&position| &surroundings.pools[position].value)
            .map(|pool| block_order(pool.cidr, pool.block_size, &host))
            .collect();
        Ok(Assignment {
            request,
            surroundings,
            chosen,
            own: own.into_iter(),
            unclaimed: Box::new(orders.into_iter().flatten()),
            broken: Vec::new(),
            found: None,
        })
    }

    pub fn poll(&mut self) -> Result<Next, AssignError> {
        if let Some(found) = self.found.take() {
            return Ok(Next::Commit(found));
        }
        if let Some(block) = self.own.next() {
            return Ok(Next::Look(block));
        }
        self.may_claim()?;
        let is_known = |block: &Cidr| self.surroundings.affinities.iter().any(|(known, _)| known == block);
        match self.unclaimed.find(|block| !is_known(block)) {
            Some(block) => Ok(Next::Look(block)),
            None => Err(self.exhausted()),
        }
    }

    /// What lies under the block that [`Assignment::poll`] wanted to see.
    pub fn show(&mut self, cidr: Cidr, stored: Option<Stored<Block>>) {
        let ours = AffinityOwner::Host(self.request.host.clone());
        let (mut block, revision) = match stored {
            Some(Stored { value, revision }) => (value, Some(revision)),
            None => (self.new_block(cidr, &ours), None),
        };
        if block.cidr != cidr || !block.contradictions().is_empty() {
            self.broken.push(cidr.to_string());
            return;
        }
        if block.owner().as_ref() != Some(&ours) {
            return;
        }
        free_expired(&mut block, self.surroundings.now, self.surroundings.config.ip_cooldown_seconds);
        if let Some(address) = take(&mut block, &self.request.owner, &self.surroundings.reserved) {
            let steps = self.steps(&block, revision);
            self.found = Some(Assigned { address, block: cidr, steps });
        }
    }

    fn new_block(&self, cidr: Cidr, owner: &AffinityOwner) -> Block {
        let now = self.surroundings.now;
        let number = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let mut block = Block::new(cidr, Some(owner), number);
        block.affinity_claim_time = Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        block
    }

    fn may_claim(&self) -> Result<(), AssignError> {
        let host = self.request.host.clone();
        let config = &self.surroundings.config;
        if !config.auto_allocate_blocks {
            return Err(AssignError::ClaimsOff { host });
        }
        let limit = usize::try_from(config.max_blocks_per_host).ok().filter(|limit| *limit > 0);
        let is_chosen = |block: &Cidr| self.pools().any(|pool| pool.value.cidr.contains_cidr(block));
        let blocks = self.surroundings.affinities.iter().filter(|(block, _)| is_chosen(block)).count();
        if blocks >= limit.unwrap_or(BLOCKS_MAX) {
            return Err(AssignError::BlockLimit { host, blocks });
        }
        Ok(())
    }

    fn exhausted(&self) -> AssignError {
        let pools: Vec<&str> = self.pools().map(|pool| pool.value.name.as_str()).collect();
        AssignError::Exhausted {
            host: self.request.host.clone(),
            pools: pools.join(", "),
            broken: self.broken.clone(),
        }
    }

    fn pools(&self) -> impl Iterator<Item = &Stored<Pool>> {
        self.chosen.iter().map(|&position| &self.surroundings.pools[position])
    }

    /// Pool, affinity, handle, block: the order in which nothing refers to what is not there yet.
    fn steps(&self, block: &Block, revision: Option<String>) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Some(pool) = self.pools().find(|pool| pool.value.cidr.contains_cidr(&block.cidr)) {
            let key = Key::cluster(Kind::IpPool, &pool.value.name);
            steps.push(Step::Require { key, revision: pool.revision.clone() });
        }
        steps.extend(self.affinity_step(block.cidr, revision.is_none()));
        steps.push(self.handle_step(block));
        steps.push(Step::put(block.key(), block.encode(), revision));
        steps
    }

    /// The block says who it belongs to; the affinity must say the same.
    fn affinity_step(&self, block: Cidr, is_new: bool) -> Option<Step> {
        let key = Key::Affinity { owner: AffinityOwner::Host(self.request.host.clone()), block };
        let known = self.surroundings.affinities.iter().find(|(known, _)| *known == block);
        let Some((_, known)) = known else {
            let value = Affinity::new(AffinityState::Confirmed).encode();
            return Some(Step::Create { key, value });
        };
        let revision = known.revision.clone();
        if known.value.state != AffinityState::Confirmed {
            let confirmed = Affinity { state: AffinityState::Confirmed, ..known.value.clone() };
            return Some(Step::Update { key, value: confirmed.encode(), revision });
        }
        // A block that is there guards itself; one that is made must not outlive the affinity it relies on.
        is_new.then_some(Step::Require { key, revision })
    }

    fn handle_step(&self, block: &Block) -> Step {
        let id = &self.request.owner.handle;
        let (mut handle, revision) = match &self.surroundings.handle {
            Some(stored) => (stored.value.clone(), Some(stored.revision.clone())),
            None => (Handle::default(), None),
        };
        // Counted, not added up: a count that was wrong is right from now on.
        let count = i64::try_from(count_of(block, id)).unwrap_or(i64::MAX);
        handle.block.insert(block.cidr.to_string(), count);
        Step::put(Key::Handle(id.clone()), handle.encode(), revision)
    }
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("request", &self.request)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

/// Pools that were asked for are used as they are: selectors and mode do not matter then.
fn choose_pools(request: &Request, pools: &[Stored<Pool>]) -> Result<Vec<usize>, AssignError> {
    if pools.is_empty() {
        return Err(AssignError::NoPools);
    }
    let version = Version(request.version);
    let is_fit = |pool: &Pool| pool.is_enabled() && pool.version() == request.version;
    let positions = || (0..pools.len()).filter(|&position| is_fit(&pools[position].value));
    let mut chosen: Vec<usize> = if request.pools.is_empty() {
        let offers = |position: &usize| {
            pools[*position].value.offers_itself(&request.node_labels, &request.namespace_labels)
        };
        positions().filter(offers).collect()
    } else {
        let find = |wanted: &String| {
            let found = positions().find(|&position| pools[position].value.is_named(wanted));
            found.ok_or_else(|| AssignError::PoolUnknown(wanted.clone(), version))
        };
        request.pools.iter().map(find).collect::<Result<_, _>>()?
    };
    chosen.retain(|&position| pools[position].value.allows(request.purpose));
    if chosen.is_empty() {
        return Err(AssignError::NoPoolServes { host: request.host.clone(), version });
    }
    Ok(chosen)
}

fn list_broken(broken: &[String]) -> String {
    if broken.is_empty() {
        return String::new();
    }
    format!("; these blocks contradict themselves and were not used: {}", broken.join(", "))
}
