//! Giving blocks up: one, those of a network, of a host or of a pool.

use std::collections::BTreeMap;
use std::convert::Infallible;

use model::ipam::{Affinity, AffinityState, Block};
use model::{AffinityOwner, Cidr, IpVersion, Key};

use super::affinity_value;
use crate::ask::{Pause, Seen, Sight, next};
use crate::block::{count_write, is_empty};
use crate::{Answer, Corrupt, Decision, Next, Pool, Step, Steps, Stored};

/// When a block may be given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReleaseRule {
    /// Only if no address in it is taken. Otherwise such a block stays, without owner, until its last address goes.
    pub must_be_empty: bool,
    /// Only if the block is still at this number.
    pub sequence_number: Option<u64>,
}

/// Ends the affinity of blocks. Whom to ask about is the caller's: a host's affinities are listed by host, a pool's
/// among all. It does not matter whether the pool is still there.
///
/// Very old releases of Calico left a marker `/calico/ipam/v2/host/HOST` for each host, and newer ones delete it when
/// they remove the host. Nobody writes it any more, it is no affinity and says nothing (`{}`): it is no record known
/// here, and stays.
#[derive(Debug)]
pub struct AffinityRelease {
    blocks: Vec<(AffinityOwner, Cidr)>,
    rule: ReleaseRule,
    seen: Seen,
}

/// What becomes of one block. Each is a commit of its own; [`crate::pack`] fills larger ones.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockReleased {
    pub owner: AffinityOwner,
    pub block: Cidr,
    /// The steps, or why nothing is done. No steps: there was nothing to give up.
    pub result: Result<Steps, Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("block {0} is in use")]
    InUse(Cidr),
    #[error("block {block} has changed since: its number is {found}")]
    Changed { block: Cidr, found: u64 },
    #[error("block {0} or its affinity is being deleted already")]
    Going(Cidr),
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl AffinityRelease {
    pub fn new(blocks: Vec<(AffinityOwner, Cidr)>, rule: ReleaseRule) -> AffinityRelease {
        AffinityRelease { blocks, rule, seen: Seen::default() }
    }

    fn decide(&self) -> Result<Vec<BlockReleased>, Pause<Infallible>> {
        let keys = |(owner, block): &(AffinityOwner, Cidr)| {
            [Key::Block(*block), Key::Affinity { owner: owner.clone(), block: *block }]
        };
        self.seen.need(self.blocks.iter().flat_map(keys))?;
        let release = |(owner, block): &(AffinityOwner, Cidr)| BlockReleased {
            owner: owner.clone(),
            block: *block,
            result: self.release(owner, *block),
        };
        Ok(self.blocks.iter().map(release).collect())
    }

    fn release(&self, owner: &AffinityOwner, cidr: Cidr) -> Result<Steps, Refusal> {
        let known = match self.seen.affinity(owner, &cidr) {
            Sight::Absent => None,
            Sight::There(stored) => Some(stored),
            Sight::Going => return Err(Refusal::Going(cidr)),
            Sight::Broken(corrupt) => return Err(corrupt.clone().into()),
        };
        let stored = match self.seen.block(&cidr) {
            Sight::There(stored) if stored.value.owner().as_ref() == Some(owner) => stored,
            // Without a block, or with another's, the affinity says something that is not so.
            Sight::Absent | Sight::There(_) => return Ok(remove_stale(owner, cidr, known)),
            Sight::Going => return Err(Refusal::Going(cidr)),
            Sight::Broken(corrupt) => return Err(corrupt.clone().into()),
        };
        if let Some(expected) = self.rule.sequence_number
            && expected != stored.value.sequence_number
        {
            return Err(Refusal::Changed { block: cidr, found: stored.value.sequence_number });
        }
        if self.rule.must_be_empty && !is_empty(&stored.value) {
            return Err(Refusal::InUse(cidr));
        }
        Ok(give_up(owner, known, stored))
    }
}

/// The affinity says that it goes, the block goes or loses its owner, the affinity goes.
pub(crate) fn give_up(
    owner: &AffinityOwner,
    known: Option<&Stored<Affinity>>,
    stored: &Stored<Block>,
) -> Steps {
    let key = Key::Affinity { owner: owner.clone(), block: stored.value.cidr };
    let mut steps = Steps::default();
    if let Some(known) = known {
        let value = affinity_value(&known.value, AffinityState::PendingDeletion);
        steps.put(key.clone(), value, Some(known.revision.clone()));
    }
    steps.push(without_owner(stored));
    if known.is_some() {
        steps.remove(key);
    }
    steps
}

/// An empty block goes, one in use loses its owner.
fn without_owner(stored: &Stored<Block>) -> Step {
    let (key, revision) = (stored.value.key(), stored.revision.clone());
    if is_empty(&stored.value) {
        return Step::Delete { key, revision };
    }
    let mut block = stored.value.clone();
    block.set_owner(None);
    block.affinity_claim_time = None;
    count_write(&mut block);
    Step::Update { key, value: block.encode(), revision }
}

fn remove_stale(owner: &AffinityOwner, block: Cidr, known: Option<&Stored<Affinity>>) -> Steps {
    let mut steps = Steps::default();
    if let Some(known) = known {
        let key = Key::Affinity { owner: owner.clone(), block };
        steps.push(Step::Delete { key, revision: known.revision.clone() });
    }
    steps
}

/// Of a node's blocks, those in pools that are in service but do not select the node any more. Give them up with
/// [`AffinityRelease`], if they are empty. That a pool is not meant for some use, or was not asked for, is no reason.
pub fn deselected_blocks(
    blocks: impl IntoIterator<Item = Cidr>,
    pools: &[Pool],
    node_labels: &BTreeMap<String, String>,
) -> Vec<Cidr> {
    let is_deselected = |block: &Cidr| {
        let pool = pools.iter().find(|pool| pool.cidr.contains_cidr(block));
        pool.is_some_and(|pool| pool.is_enabled() && !pool.selects_node(node_labels))
    };
    blocks.into_iter().filter(is_deselected).collect()
}

/// Of a node's blocks, those with nothing in them that it can do without, each with its number for [`ReleaseRule`]: of
/// each IP version one block stays, in use or not.
pub fn spare_blocks(blocks: &[Block]) -> Vec<(Cidr, u64)> {
    let is_spare = |block: &&Block| !block.deleted && block.contradictions().is_empty() && is_empty(block);
    let mut spare = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let all = || blocks.iter().filter(move |block| block.cidr.version() == version);
        let empty: Vec<&Block> = all().filter(is_spare).collect();
        let stays = usize::from(empty.len() == all().count());
        spare.extend(empty.into_iter().skip(stays).map(|block| (block.cidr, block.sequence_number)));
    }
    spare
}

impl Decision for AffinityRelease {
    type Outcome = Vec<BlockReleased>;
    type Error = Infallible;

    fn poll(&mut self) -> Result<Next<Vec<BlockReleased>>, Infallible> {
        next(self.decide())
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        self.seen.show(key, answer);
    }
}
