//! Blocks and whom they belong to: claiming them, giving them up.

use std::collections::BTreeMap;

use ipam::{
    AffinityRelease, Answer, BlockClaim, BlockClaimed, BlockEnsurance, Corrupt, Pool, Refusal, ReleaseRule,
    Steps, deselected_blocks, spare_blocks,
};
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange, Kind};
use store::{Change, Lookup, MAX_CHANGES, StoreError};

use crate::batch::group_request;
use crate::book::{Book, Inner};
use crate::carry::Commit;
use crate::look::Reader;
use crate::scene::{RawScene, Scene, understand_pools};
use crate::upkeep::Looks;
use crate::{AssignRequest, BookError};

/// What became of the blocks of a network that was to be claimed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// The owner's now, or before already.
    pub claimed: Vec<Cidr>,
    /// Another's; nobody's but in use, if there is no owner.
    pub taken: Vec<(Cidr, Option<AffinityOwner>)>,
    /// Being deleted just now, or not what they should be.
    pub unusable: Vec<(Cidr, Option<Corrupt>)>,
}

/// What became of one block that was to be given up.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenUp {
    pub owner: AffinityOwner,
    pub block: Cidr,
    /// Whether there was anything to give up, or why it was not done.
    pub result: Result<bool, Refusal>,
}

impl Book {
    /// Claims every block of a network for an owner. A block that is the owner's already is confirmed.
    pub async fn claim_blocks(&self, network: Cidr, owner: AffinityOwner) -> Result<Claims, BookError> {
        let inner = &self.inner;
        let mut patience = inner.patience();
        loop {
            let answers = inner.store.read(vec![Lookup::Range(KeyRange::Kind(Kind::IpPool))]).await?;
            let pools = understand_pools(&answers.concat())?;
            let required = inner.read_required().await?;
            let mut claim = BlockClaim::new(network, owner.clone(), &pools, inner.now())?;
            let (mut claims, mut wanted) = (Claims::default(), Vec::new());
            for claimed in inner.decide(&mut claim).await? {
                wanted.extend(claims.add(claimed));
            }
            match inner.carry_out_all(&required, &wanted).await {
                None => return Ok(claims),
                Some(error) => patience.after(error).await?,
            }
        }
    }

    /// Sees to it that a node has a block with something free, of each IP version; says which. The request says which
    /// pools may serve and what the node keeps of a new block for itself; how many addresses it wants does not matter.
    pub async fn ensure_blocks(
        &self,
        request: &AssignRequest,
        versions: &[IpVersion],
    ) -> Result<Vec<Cidr>, BookError> {
        let inner = &self.inner;
        let mut patience = inner.patience();
        loop {
            let ground = inner.ground(request, &[], true).await?;
            let required = inner.required(&ground.scene.lock)?;
            let wanted = group_request(inner, request, Vec::new(), &ground.scene, required.len());
            let surroundings = ground.scene.surroundings(inner.now());
            let ensured = inner.decide(&mut BlockEnsurance::new(wanted, versions, surroundings)?).await?;
            match inner.carry_out(required, &ensured.steps).await {
                Ok(()) => return Ok(ensured.blocks),
                Err(error) => patience.after(error).await?,
            }
        }
    }

    /// Gives up blocks. Those that cannot be given up do not hold up the others.
    pub async fn release_blocks(
        &self,
        blocks: Vec<(AffinityOwner, Cidr)>,
        rule: ReleaseRule,
    ) -> Result<Vec<GivenUp>, BookError> {
        let inner = &self.inner;
        let mut patience = inner.patience();
        // Whether anything was given up; a second look finds nothing left.
        let mut given_up: BTreeMap<(AffinityOwner, Cidr), bool> = BTreeMap::new();
        loop {
            let required = inner.read_required().await?;
            let decided = inner.decide(&mut AffinityRelease::new(blocks.clone(), rule)).await?;
            let (mut results, mut wanted) = (Vec::new(), Vec::new());
            for released in decided {
                let place = (released.owner.clone(), released.block);
                let result = released.result.map(|steps| {
                    let has_steps = !steps.is_empty();
                    wanted.push(steps);
                    let known = given_up.entry(place).or_default();
                    *known |= has_steps;
                    *known
                });
                results.push(GivenUp { owner: released.owner, block: released.block, result });
            }
            match inner.carry_out_all(&required, &wanted).await {
                None => return Ok(results),
                Some(error) => patience.after(error).await?,
            }
        }
    }

    /// Gives up an owner's blocks inside a network. Whether there is still a pool does not matter.
    pub async fn release_network(
        &self,
        network: Cidr,
        owner: AffinityOwner,
        rule: ReleaseRule,
    ) -> Result<Vec<GivenUp>, BookError> {
        let blocks = self.inner.blocks_of(&owner).await?;
        let inside = blocks.into_iter().filter(|block| network.contains_cidr(block));
        self.release_blocks(inside.map(|block| (owner.clone(), block)).collect(), rule).await
    }

    /// Gives up everything that a node has. A node that is not known has nothing.
    pub async fn release_host(&self, host: &str, rule: ReleaseRule) -> Result<Vec<GivenUp>, BookError> {
        let owner = AffinityOwner::Host(host.to_owned());
        let blocks = self.inner.blocks_of(&owner).await?;
        self.release_blocks(blocks.into_iter().map(|block| (owner.clone(), block)).collect(), rule).await
    }

    /// Gives up all blocks inside a pool's network, whoever has them.
    pub async fn release_pool(&self, network: Cidr, rule: ReleaseRule) -> Result<Vec<GivenUp>, BookError> {
        let mut blocks = Vec::new();
        for range in [KeyRange::HostAffinities, KeyRange::VirtualAffinities] {
            for record in self.inner.store.list_all(range).await?.0 {
                if let Key::Affinity { owner, block } = record.key
                    && network.contains_cidr(&block)
                {
                    blocks.push((owner, block));
                }
            }
        }
        self.release_blocks(blocks, rule).await
    }

    /// Gives up a node's empty blocks in pools that do not select it any more.
    pub async fn release_deselected(&self, host: &str) -> Result<Vec<GivenUp>, BookError> {
        let owner = AffinityOwner::Host(host.to_owned());
        let answers = self.inner.store.read(self.inner.scene_lookups(host, &owner)).await?;
        let scene = Scene::understand(&RawScene::from_answers(&owner, answers))?;
        let pools: Vec<Pool> = scene.pools.into_iter().map(|stored| stored.value).collect();
        let blocks = scene.affinities.into_iter().map(|(block, _)| block);
        let blocks = deselected_blocks(blocks, &pools, &scene.node_labels);
        let blocks = blocks.into_iter().map(|block| (owner.clone(), block)).collect();
        self.release_blocks(blocks, ReleaseRule { must_be_empty: true, sequence_number: None }).await
    }

    /// Gives up the empty blocks that a node can spare: never the last one of an IP version, and only such as nobody has
    /// written between two looks.
    pub async fn release_spare(&self, host: &str, looks: Looks) -> Result<Vec<GivenUp>, BookError> {
        let owner = AffinityOwner::Host(host.to_owned());
        let mut spare = self.inner.spare_blocks(&owner).await?;
        if let Looks::Twice { apart } = looks {
            tokio::time::sleep(apart).await;
            let second = self.inner.spare_blocks(&owner).await?;
            spare.retain(|block| second.contains(block));
        }
        let mut all = Vec::new();
        for (block, number) in spare {
            let rule = ReleaseRule { must_be_empty: true, sequence_number: Some(number) };
            all.extend(self.release_blocks(vec![(owner.clone(), block)], rule).await?);
        }
        Ok(all)
    }
}

impl Claims {
    /// Takes in the outcome for one block; gives what is to be written for it.
    fn add(&mut self, claimed: BlockClaimed) -> Option<Steps> {
        match claimed {
            BlockClaimed::Claimed { block, steps } => {
                self.claimed.push(block);
                Some(steps)
            }
            BlockClaimed::Taken { block, by, steps } => {
                self.taken.push((block, by));
                Some(steps)
            }
            BlockClaimed::Unusable { block, corrupt } => {
                self.unusable.push((block, corrupt));
                None
            }
        }
    }
}

impl Inner {
    /// The blocks that an owner has affinities for.
    async fn blocks_of(&self, owner: &AffinityOwner) -> Result<Vec<Cidr>, BookError> {
        let records = self.store.affinities_of(owner).await?;
        let block = |record: store::Record| match record.key {
            Key::Affinity { block, .. } => Some(block),
            _ => None,
        };
        Ok(records.into_iter().filter_map(block).collect())
    }

    async fn spare_blocks(&self, owner: &AffinityOwner) -> Result<Vec<(Cidr, u64)>, BookError> {
        let keys = self.blocks_of(owner).await?.into_iter().map(Key::Block).collect();
        let mut blocks = Vec::new();
        for (_, answer) in Reader::new(&self.store).look(keys).await? {
            match answer {
                Answer::Block(stored) if stored.value.owner().as_ref() == Some(owner) => {
                    blocks.push(stored.value)
                }
                _ => {}
            }
        }
        Ok(spare_blocks(&blocks))
    }

    /// Carries out decisions that have nothing to do with each other, several in one commit where the store can. The
    /// last error if some of them did not work out; the others did.
    pub(crate) async fn carry_out_all(&self, required: &[Change], decisions: &[Steps]) -> Option<StoreError> {
        let changes_max = if self.is_atomic() { MAX_CHANGES - required.len() } else { 0 };
        let mut failure = None;
        for steps in ipam::pack(decisions.iter().cloned(), changes_max) {
            let requires = required.to_vec();
            let commit = Commit { requires, steps: Some(&steps), ..Commit::default() };
            match commit.carry_out(&self.store).await {
                Ok(written) => self.forget(written.into_iter().map(|written| written.key)),
                Err(stopped) => failure = Some(stopped.error),
            }
        }
        failure
    }
}
