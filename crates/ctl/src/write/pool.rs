//! Pools: two of them never overlap, and one that goes takes its empty blocks along.

use std::time::Duration;

use model::ipam::{Block, BlockAttribute};
use model::validate::{validate_pool_against, validate_update};
use model::{AffinityOwner, Cidr, HandleId, Key, KeyRange, Kind, Resource};
use serde_json::Value;
use store::{Change, Record, StoreError};
use uuid::Uuid;

use super::basics::one_at_a_time;
use super::{Done, Prepared, Tries, WriteError, Writer};
use crate::compat;
use crate::failure::Failure;
use crate::reader::Pages;
use crate::records;
use crate::report::Verb;
use crate::scope::Named;

/// How long allocations that are under way get to finish after their pool was disabled; Calico's number.
const DISABLED_GRACE: Duration = Duration::from_millis(500);

/// Everything stored that speaks against writing these pools. That they do not overlap each other is known.
pub(super) async fn clashes(
    writer: &Writer,
    prepared: &[Prepared],
    verb: Verb,
) -> Result<Vec<Failure>, Failure> {
    let pools = stored_pools(writer).await?;
    let mut failures = Vec::new();
    for candidate in prepared.iter().filter(|one| one.resource.kind == Kind::IpPool) {
        let new = &candidate.resource;
        let violations = match pools.iter().find(|pool| pool.metadata.name == new.metadata.name) {
            // That it exists is for the verb itself to say.
            Some(_) if verb == Verb::Create => Vec::new(),
            Some(old) => validate_update(old, new),
            None if verb == Verb::Replace => Vec::new(),
            None => validate_pool_against(new, &pools, &blocks_inside(writer, new).await?),
        };
        failures.extend(candidate.failures(violations));
    }
    Ok(failures)
}

impl Writer {
    /// Creates a pool that overlaps no other. Pools are made one at a time: two that are created at the same
    /// moment would not see each other.
    pub(super) async fn create_pool(&self, pool: Resource) -> Result<Done, WriteError> {
        if !self.store.capabilities().atomic_commits {
            return self.create_pool_in_steps(pool).await;
        }
        let mut tries = Tries::default();
        loop {
            let turn = one_at_a_time(self).await?;
            self.refuse_pool(&pool).await?;
            match self.store.commit(vec![Change::create(pool.key(), pool.encode()), turn]).await {
                Ok(_) => return Ok(Done::Created),
                Err(error) if error.is_lost_race() && tries.again().await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The same where several records cannot be written together: the pool is disabled until it is seen that no other was
    /// created at the same moment. Of two that overlap each is seen by the one who looks last. Who sees another withdraws, and
    /// tries again.
    async fn create_pool_in_steps(&self, pool: Resource) -> Result<Done, WriteError> {
        let (key, mut waiting) = (pool.key(), pool.clone());
        waiting.spec_mut().insert("disabled".into(), true.into());
        let mut tries = Tries::default();
        loop {
            self.refuse_pool(&pool).await?;
            let revision = match self.store.create(key.clone(), waiting.encode()).await {
                Err(StoreError::AlreadyExists { .. }) => return Err(WriteError::Exists(Named::of(&pool))),
                created => created?,
            };
            let Err(failure) = refuse_clash(&pool, &stored_pools(self).await?, &[]) else { break };
            self.store.delete(key.clone(), revision).await?;
            // Those who withdrew together must not come back together.
            tokio::time::sleep(DISABLED_GRACE.mul_f64(f64::from(Uuid::new_v4().as_bytes()[0]) / 256.0)).await;
            if !tries.again().await {
                return Err(failure.into());
            }
        }
        self.enable_pool(&pool).await?;
        Ok(Done::Created)
    }

    /// Puts a pool that was created disabled into service, if it is meant to be.
    async fn enable_pool(&self, pool: &Resource) -> Result<Done, WriteError> {
        let disabled = pool.spec("disabled");
        let enabled = |stored: &Resource| {
            let mut next = stored.clone();
            match disabled {
                Some(disabled) => drop(next.spec_mut().insert("disabled".into(), disabled.clone())),
                None => drop(next.spec_mut().remove("disabled")),
            }
            Ok(next)
        };
        self.change(&Named::of(pool), None, enabled).await
    }

    /// Refuses a pool that exists, or that overlaps others or their blocks.
    async fn refuse_pool(&self, pool: &Resource) -> Result<(), WriteError> {
        let others = stored_pools(self).await?;
        if others.iter().any(|other| other.metadata.name == pool.metadata.name) {
            return Err(WriteError::Exists(Named::of(pool)));
        }
        Ok(refuse_clash(pool, &others, &blocks_inside(self, pool).await?)?)
    }

    /// Deletes a pool: disables it, gives up the blocks inside it, then removes the record. Blocks with addresses
    /// in use stay, without owner, until the last address is released.
    pub(super) async fn delete_pool(&self, named: &Named, mut record: Record) -> Result<(), WriteError> {
        let Ok(mut pool) = records::to_resource(&record) else {
            // It stands in the way of every new pool, so it must be possible to get rid of it.
            compat::say(&format!(
                "warning: {named} cannot be read, so the blocks inside its CIDR were not changed"
            ));
            return self.delete_at(record).await;
        };
        if !self.dry_run && pool.spec("disabled") != Some(&Value::Bool(true)) {
            pool.spec_mut().insert("disabled".into(), true.into());
            let revision = self.store.update(record.key.clone(), pool.encode(), record.revision).await?;
            record.revision = revision;
            tokio::time::sleep(DISABLED_GRACE).await;
        }
        let cidr = pool.spec("cidr").and_then(Value::as_str).and_then(|text| Cidr::parse_masked(text).ok());
        let in_use = match cidr {
            Some(cidr) => {
                let given_up = self.give_up_blocks(|_, block| cidr.contains_cidr(block)).await;
                given_up.map_err(|error| {
                    error.within("the pool was disabled, but not all its blocks were released")
                })?
            }
            None => 0,
        };
        if in_use > 0 {
            compat::say(&format!(
                "warning: {in_use} address(es) of {named} are in use and stay allocated until they are released"
            ));
        }
        self.delete_at(record).await
    }

    /// Ends the affinity of every block that `is_meant`; a block that is empty goes too. Says how many addresses of
    /// those blocks are still in use.
    pub(super) async fn give_up_blocks(
        &self,
        is_meant: impl Fn(&AffinityOwner, &Cidr) -> bool,
    ) -> Result<usize, WriteError> {
        let mut in_use = 0;
        let mut pages = Pages::new(&self.store, Kind::BlockAffinity, None);
        while let Some(page) = pages.next().await? {
            for record in page.records {
                let Key::Affinity { owner, block } = &record.key else { continue };
                if is_meant(owner, block) {
                    in_use += self.give_up_block(owner, block).await?;
                }
            }
        }
        Ok(in_use)
    }

    async fn give_up_block(&self, owner: &AffinityOwner, cidr: &Cidr) -> Result<usize, WriteError> {
        let mut tries = Tries::default();
        loop {
            let key = Key::Affinity { owner: owner.clone(), block: *cidr };
            let Some(affinity) = self.store.get(&key).await? else { return Ok(0) };
            let block = self.store.get(&Key::Block(*cidr)).await?;
            let (mut changes, in_use) = giving_up(owner, cidr, block)?;
            changes.push(Change::delete(key, affinity.revision));
            if self.dry_run {
                return Ok(in_use);
            }
            match self.store.commit(changes).await {
                Ok(_) => return Ok(in_use),
                Err(error) if error.is_lost_race() && tries.again().await => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn refuse_clash(pool: &Resource, others: &[Resource], blocks: &[Cidr]) -> Result<(), Failure> {
    match validate_pool_against(pool, others, blocks).into_iter().next() {
        Some(violation) => Err(Failure::new(format!("{}: {violation}", Named::of(pool)))),
        None => Ok(()),
    }
}

/// What happens to a block whose affinity ends, and how many of its addresses are in use. A block that belongs to
/// someone else, or to nobody, is left alone: then only the affinity was wrong.
fn giving_up(
    owner: &AffinityOwner,
    cidr: &Cidr,
    record: Option<Record>,
) -> Result<(Vec<Change>, usize), Failure> {
    let Some(record) = record else { return Ok((Vec::new(), 0)) };
    let mut block = Block::decode(cidr, &record.value).map_err(|error| Failure::of(&error))?;
    if block.owner().as_ref() != Some(owner) {
        return Ok((Vec::new(), 0));
    }
    let in_use = in_use(&block).count();
    let change = if in_use == 0 {
        Change::delete(record.key, record.revision)
    } else {
        block.set_owner(None);
        block.affinity_claim_time = None;
        block.sequence_number += 1;
        Change::update(record.key, block.encode(), record.revision)
    };
    Ok((vec![change], in_use))
}

/// Which of a block's addresses somebody has.
pub(super) fn in_use(block: &Block) -> impl Iterator<Item = usize> {
    let is_used = |ordinal: &usize| {
        block.allocations[*ordinal].is_some()
            && !block
                .attribute(*ordinal)
                .and_then(BlockAttribute::handle)
                .is_some_and(HandleId::is_windows_reserved)
    };
    (0..block.allocations.len()).filter(is_used)
}

async fn stored_pools(writer: &Writer) -> Result<Vec<Resource>, Failure> {
    let (records, _) = writer.store.list_all(KeyRange::Kind(Kind::IpPool)).await?;
    records.iter().map(records::to_resource).collect()
}

/// The blocks that lie in a pool's network, or around it.
async fn blocks_inside(writer: &Writer, pool: &Resource) -> Result<Vec<Cidr>, StoreError> {
    let cidr = pool.spec("cidr").and_then(Value::as_str).and_then(|text| Cidr::parse_masked(text).ok());
    let Some(cidr) = cidr else { return Ok(Vec::new()) };
    let mut blocks = Vec::new();
    let mut pages = Pages::new(&writer.store, Kind::IpamBlock, None);
    while let Some(page) = pages.next().await? {
        blocks.extend(page.records.iter().filter_map(|record| match &record.key {
            Key::Block(block) if block.overlaps(&cidr) => Some(*block),
            _ => None,
        }));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use store::{Revision, Write};

    use super::*;

    fn block(owner: Option<&AffinityOwner>, handle: Option<&str>) -> Record {
        let mut block = Block::new("10.0.0.0/30".parse().unwrap(), owner, 41);
        if let Some(handle) = handle {
            let attribute = BlockAttribute { handle_id: Some(handle.into()), ..BlockAttribute::default() };
            block.attributes.push(attribute);
            block.allocations[1] = Some(0);
            block.unallocated.retain(|ordinal| *ordinal != 1);
        }
        Record { key: block.key(), value: block.encode().into(), revision: Revision::new("7") }
    }

    #[test]
    fn only_a_block_that_is_in_use_outlives_its_affinity() {
        let owner = AffinityOwner::Host("a".into());
        let cidr = "10.0.0.0/30".parse().unwrap();
        let outcome = |record| giving_up(&owner, &cidr, record).unwrap();

        assert_eq!(outcome(None), (vec![], 0));
        let empty = block(Some(&owner), None);
        assert_eq!(outcome(Some(empty.clone())), (vec![Change::delete(empty.key, empty.revision)], 0));
        let (changes, in_use) = outcome(Some(block(Some(&owner), Some(HandleId::WINDOWS_RESERVED))));
        assert_eq!((changes[0].write.clone(), in_use), (Write::Delete, 0));
        assert_eq!(outcome(Some(block(Some(&AffinityOwner::Host("b".into())), None))), (vec![], 0));

        let (changes, in_use) = outcome(Some(block(Some(&owner), Some("k8s-pod-network.x"))));
        assert_eq!(in_use, 1);
        let Write::Put(value) = &changes[0].write else { panic!("the block stays") };
        let kept = Block::decode(&cidr, value).unwrap();
        assert_eq!((kept.owner(), kept.sequence_number), (None, 42));
        assert_eq!(super::in_use(&kept).count(), 1);
    }
}
