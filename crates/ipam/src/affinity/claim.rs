//! Claiming blocks by name, as an operator or a start-up does.

use jiff::Timestamp;
use model::ipam::AffinityState;
use model::{AffinityOwner, Cidr, Key, Kind};

use super::{begin_claim, finish_claim};
use crate::ask::{Pause, Seen, Sight, next};
use crate::block::{count_write, new_block};
use crate::reserved::size;
use crate::{Answer, Corrupt, Decision, Next, Pool, Step, Steps, Stored};

/// More blocks than that are not claimed at once.
const BLOCKS_AT_ONCE_MAX: u128 = 4096;

/// Claims every block of a network for an owner. A block that is the owner's already is confirmed.
#[derive(Debug)]
pub struct BlockClaim {
    owner: AffinityOwner,
    pool: Stored<Pool>,
    blocks: Vec<Cidr>,
    now: Timestamp,
    seen: Seen,
}

/// What became of the claim of one block. Each is a commit of its own; [`crate::pack`] fills larger ones.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockClaimed {
    /// The owner's, once the steps have happened. No steps: it was before.
    Claimed { block: Cidr, steps: Steps },
    /// Another's, or nobody's but in use. An affinity that said otherwise goes with the steps.
    Taken { block: Cidr, by: Option<AffinityOwner>, steps: Steps },
    /// Being deleted just now, or not what it should be.
    Unusable { block: Cidr, corrupt: Option<Corrupt> },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("{0} is in no IP pool")]
    NotInPool(Cidr),
    #[error("{cidr} is smaller than a block of the IP pool {pool}, which has prefix length {block_size}")]
    TooSmall { cidr: Cidr, pool: String, block_size: u8 },
    #[error("{cidr} has {blocks} blocks, more than can be claimed at once")]
    TooMany { cidr: Cidr, blocks: u128 },
}

impl BlockClaim {
    pub fn new(
        cidr: Cidr,
        owner: AffinityOwner,
        pools: &[Stored<Pool>],
        now: Timestamp,
    ) -> Result<BlockClaim, ClaimError> {
        let pool = pools.iter().find(|pool| pool.value.is_enabled() && pool.value.cidr.contains_cidr(&cidr));
        let pool = pool.ok_or(ClaimError::NotInPool(cidr))?.clone();
        let blocks = blocks_in(cidr, &pool.value)?;
        Ok(BlockClaim { owner, pool, blocks, now, seen: Seen::default() })
    }

    fn decide(&self) -> Result<Vec<BlockClaimed>, Pause<ClaimError>> {
        let keys = self.blocks.iter().flat_map(|block| [Key::Block(*block), self.affinity_key(block)]);
        self.seen.need(keys)?;
        Ok(self.blocks.iter().map(|block| self.claim(*block)).collect())
    }

    fn claim(&self, cidr: Cidr) -> BlockClaimed {
        let known = match self.seen.affinity(&self.owner, &cidr) {
            Sight::Absent => None,
            Sight::There(stored) => Some(stored),
            Sight::Going => return BlockClaimed::Unusable { block: cidr, corrupt: None },
            Sight::Broken(corrupt) => {
                return BlockClaimed::Unusable { block: cidr, corrupt: Some(corrupt.clone()) };
            }
        };
        let mut steps = self.require_pool();
        let key = self.affinity_key(&cidr);
        match self.seen.block(&cidr) {
            Sight::Absent => {
                let block = new_block(cidr, &self.owner, None, self.now);
                begin_claim(key.clone(), known, &mut steps);
                steps.put(block.key(), block.encode(), None);
                finish_claim(key, known, true, &mut steps);
                BlockClaimed::Claimed { block: cidr, steps }
            }
            Sight::There(stored) if stored.value.owner().as_ref() == Some(&self.owner) => {
                if known.is_some_and(|known| known.value.state == AffinityState::Confirmed) {
                    return BlockClaimed::Claimed { block: cidr, steps: Steps::default() };
                }
                confirm(key, known, stored, &mut steps);
                BlockClaimed::Claimed { block: cidr, steps }
            }
            Sight::There(stored) => {
                let mut steps = Steps::default();
                if let Some(known) = known {
                    steps.push(Step::Delete { key, revision: known.revision.clone() });
                }
                BlockClaimed::Taken { block: cidr, by: stored.value.owner(), steps }
            }
            Sight::Going => BlockClaimed::Unusable { block: cidr, corrupt: None },
            Sight::Broken(corrupt) => BlockClaimed::Unusable { block: cidr, corrupt: Some(corrupt.clone()) },
        }
    }

    fn require_pool(&self) -> Steps {
        let mut steps = Steps::default();
        let key = Key::cluster(Kind::IpPool, &self.pool.value.name);
        steps.push(Step::Require { key, revision: self.pool.revision.clone() });
        steps
    }

    fn affinity_key(&self, block: &Cidr) -> Key {
        Key::Affinity { owner: self.owner.clone(), block: *block }
    }
}

/// Makes the affinity say what the block says. The block is written anew in between, which defeats a release that has
/// looked at it already.
pub(crate) fn confirm(
    key: Key,
    known: Option<&Stored<model::ipam::Affinity>>,
    stored: &Stored<model::ipam::Block>,
    steps: &mut Steps,
) {
    begin_claim(key.clone(), known, steps);
    let mut block = stored.value.clone();
    count_write(&mut block);
    steps.touch(block.key(), block.encode(), stored.revision.clone());
    finish_claim(key, known, false, steps);
}

/// The blocks of a network inside a pool.
pub fn blocks_in(cidr: Cidr, pool: &Pool) -> Result<Vec<Cidr>, ClaimError> {
    if cidr.prefix_len() > pool.block_size {
        let (pool, block_size) = (pool.name.clone(), pool.block_size);
        return Err(ClaimError::TooSmall { cidr, pool, block_size });
    }
    let Some(first) = Cidr::containing(cidr.network(), pool.block_size) else { return Ok(Vec::new()) };
    let blocks = size(&cidr) / size(&first).max(1);
    if blocks > BLOCKS_AT_ONCE_MAX {
        return Err(ClaimError::TooMany { cidr, blocks });
    }
    let mut all: Vec<Cidr> =
        crate::BlockOrder::new(cidr, pool.block_size, "", &crate::Reservations::default()).collect();
    all.sort_unstable();
    Ok(all)
}

impl Decision for BlockClaim {
    type Outcome = Vec<BlockClaimed>;
    type Error = ClaimError;

    fn poll(&mut self) -> Result<Next<Vec<BlockClaimed>>, ClaimError> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}
