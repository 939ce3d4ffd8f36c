//! Whole assignments and releases on a handful of records, with every step's precondition checked.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{
    AssignError, Assigned, Assignment, Next, Owner, Pool, PoolUse, Request, Step, Stored, Surroundings,
    release_handle,
};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, IpVersion, Key, Kind, Resource};
use proptest::prelude::*;
use serde_json::json;

/// Records with revisions, as a store would keep them.
#[derive(Clone, Default)]
struct World {
    records: BTreeMap<Key, (Vec<u8>, u64)>,
    revision: u64,
    config: IpamConfig,
    reserved: Vec<Cidr>,
}

impl World {
    fn with_pools(pools: &[serde_json::Value]) -> World {
        let mut world = World::default();
        for (position, spec) in pools.iter().enumerate() {
            let mut resource = Resource::new(Kind::IpPool, format!("pool-{position}"));
            resource.body.insert("spec".to_owned(), spec.clone());
            world.put(resource.key(), resource.encode());
        }
        world
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.revision += 1;
        self.records.insert(key, (value, self.revision));
    }

    fn get(&self, key: &Key) -> Option<(&[u8], String)> {
        self.records.get(key).map(|(value, revision)| (&value[..], revision.to_string()))
    }

    fn block(&self, cidr: Cidr) -> Option<Stored<Block>> {
        let (value, revision) = self.get(&Key::Block(cidr))?;
        Some(Stored::new(Block::decode(&cidr, value).unwrap(), revision))
    }

    fn handle(&self, id: &str) -> Option<Stored<Handle>> {
        let (value, revision) = self.get(&Key::Handle(id.to_owned()))?;
        Some(Stored::new(Handle::decode(id, value).unwrap(), revision))
    }

    fn surroundings(&self, host: &str, handle: &str) -> Surroundings {
        let (mut pools, mut affinities) = (Vec::new(), Vec::new());
        for (key, (value, revision)) in &self.records {
            let revision = revision.to_string();
            match key {
                Key::Resource { kind: Kind::IpPool, .. } => {
                    let resource = Resource::decode(key, Kind::IpPool, value, &revision).unwrap();
                    pools.push(Stored::new(Pool::new(&resource).unwrap(), revision));
                }
                Key::Affinity { owner, block } if owner.name() == host => {
                    let affinity = Affinity::decode(owner, block, value).unwrap();
                    affinities.push((*block, Stored::new(affinity, revision)));
                }
                _ => {}
            }
        }
        Surroundings {
            config: self.config.clone(),
            pools,
            reserved: self.reserved.clone(),
            affinities,
            handle: self.handle(handle),
            now: now(),
        }
    }

    fn plan(&self, host: &str, handle: &str, pools: &[&str]) -> Result<Assigned, AssignError> {
        let request = Request {
            host: host.to_owned(),
            owner: Owner { handle: handle.to_owned(), attributes: BTreeMap::new() },
            version: IpVersion::V4,
            purpose: PoolUse::Workload,
            pools: pools.iter().map(|name| (*name).to_owned()).collect(),
            node_labels: BTreeMap::from([("name".to_owned(), host.to_owned())]),
            namespace_labels: BTreeMap::new(),
        };
        let mut assignment = Assignment::new(request, self.surroundings(host, handle))?;
        loop {
            match assignment.poll()? {
                Next::Look(cidr) => assignment.show(cidr, self.block(cidr)),
                Next::Commit(assigned) => return Ok(assigned),
            }
        }
    }

    fn assign(&mut self, host: &str, handle: &str) -> Result<IpAddr, AssignError> {
        let assigned = self.plan(host, handle, &[])?;
        self.commit(&assigned.steps).expect("nobody else writes");
        Ok(assigned.address)
    }

    fn release(&mut self, handle: &str) -> Vec<IpAddr> {
        let Some(stored) = self.handle(handle) else { return Vec::new() };
        let blocks = stored.value.blocks().map(|cidr| (cidr, self.block(cidr))).collect();
        let released = release_handle(handle, &stored, blocks, |_, _, _| true, None);
        self.commit(&released.steps).expect("nobody else writes");
        released.addresses
    }

    /// All steps or none, as an atomic store does it.
    fn commit(&mut self, steps: &[Step]) -> Result<(), Key> {
        for step in steps {
            let found = self.get(step.key()).map(|(_, revision)| revision);
            let wanted = match step {
                Step::Create { .. } | Step::RequireAbsent { .. } => None,
                Step::Update { revision, .. }
                | Step::Delete { revision, .. }
                | Step::Require { revision, .. } => Some(revision.clone()),
            };
            if found != wanted {
                return Err(step.key().clone());
            }
        }
        for step in steps {
            match step {
                Step::Create { key, value } | Step::Update { key, value, .. } => {
                    self.put(key.clone(), value.clone());
                }
                Step::Delete { key, .. } => {
                    self.records.remove(key);
                }
                Step::Require { .. } | Step::RequireAbsent { .. } => {}
            }
        }
        Ok(())
    }

    /// Handles, blocks and affinities must tell one story.
    fn assert_books_agree(&self) {
        let mut counted: BTreeMap<(String, Cidr), i64> = BTreeMap::new();
        for cidr in self.blocks() {
            let block = self.block(cidr).unwrap().value;
            assert_eq!(block.contradictions(), [] as [String; 0]);
            let owner = block.owner().expect("every block has a node");
            assert!(self.records.contains_key(&Key::Affinity { owner, block: cidr }));
            for attribute in (0..block.capacity()).filter_map(|ordinal| block.attribute(ordinal)) {
                *counted.entry((attribute.handle().unwrap().to_owned(), cidr)).or_default() += 1;
            }
        }
        let mut recorded = BTreeMap::new();
        for key in self.records.keys() {
            let Key::Handle(id) = key else { continue };
            for cidr in self.handle(id).unwrap().value.blocks() {
                recorded.insert((id.clone(), cidr), self.handle(id).unwrap().value.count(&cidr));
            }
        }
        assert_eq!(counted, recorded);
    }

    fn blocks(&self) -> Vec<Cidr> {
        let block = |key: &Key| if let Key::Block(cidr) = key { Some(*cidr) } else { None };
        self.records.keys().filter_map(block).collect()
    }
}

fn now() -> Timestamp {
    "2026-08-22T06:33:20Z".parse().unwrap()
}

fn small_pool() -> World {
    World::with_pools(&[json!({"cidr": "10.0.0.0/28", "blockSize": 30})])
}

#[test]
fn the_first_address_claims_a_block_in_one_commit() {
    let mut world = small_pool();
    let assigned = world.plan("node-a", "net.1", &[]).unwrap();
    let kinds: Vec<String> = assigned.steps.iter().map(|step| step.key().to_string()).collect();
    let block = assigned.block;
    assert_eq!(
        kinds,
        [
            "IPPool(pool-0)".to_owned(),
            format!("BlockAffinity(host:node-a, {block})"),
            "IPAMHandle(net.1)".to_owned(),
            format!("IPAMBlock({block})"),
        ]
    );
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    let stored = world.block(block).unwrap().value;
    assert_eq!(stored.affinity_claim_time.as_deref(), Some("2026-08-22T06:33:20Z"));
    // The number of the allocation is the one before the write.
    assert_eq!(stored.sequence_number, stored.sequence_of(0) + 1);
    // The second address comes from the same block, with nothing but handle and block written.
    let second = world.plan("node-a", "net.2", &[]).unwrap();
    assert_eq!((second.block, second.steps.len()), (block, 3));
}

#[test]
fn a_commit_is_refused_when_anything_it_relied_on_has_changed() {
    let world = {
        let mut world = small_pool();
        world.assign("node-a", "net.1").unwrap();
        world
    };
    let assigned = world.plan("node-a", "net.2", &[]).unwrap();
    for step in &assigned.steps {
        let mut changed = world.clone();
        let value = changed.get(step.key()).map_or_else(|| b"{}".to_vec(), |(value, _)| value.to_vec());
        changed.put(step.key().clone(), value);
        assert_eq!(changed.commit(&assigned.steps), Err(step.key().clone()));
    }
}

#[test]
fn two_nodes_never_share_a_block_and_a_full_pool_says_so() {
    let mut world = small_pool();
    let mut given = std::collections::BTreeSet::new();
    for number in 0..8 {
        assert!(given.insert(world.assign("node-a", &format!("a.{number}")).unwrap()));
        assert!(given.insert(world.assign("node-b", &format!("b.{number}")).unwrap()));
    }
    world.assert_books_agree();
    let error = world.assign("node-c", "c.0").unwrap_err();
    assert_eq!(error.to_string(), "no address is free for node node-c in pool-0");
    assert_eq!(world.release("a.3").len(), 1);
    assert!(world.assign("node-c", "c.0").is_err(), "a node's block is not given to another");
    assert!(world.assign("node-a", "a.9").is_ok());
}

#[test]
fn pools_are_chosen_by_selector_use_mode_and_request() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/28", "blockSize": 30, "nodeSelector": "name == 'node-a'"}),
        json!({"cidr": "10.1.0.0/28", "blockSize": 30, "disabled": true}),
        json!({"cidr": "10.2.0.0/28", "blockSize": 30, "allowedUses": ["Tunnel"]}),
        json!({"cidr": "10.3.0.0/28", "blockSize": 30, "assignmentMode": "Manual"}),
    ]);
    assert!(world.assign("node-a", "a.0").unwrap().to_string().starts_with("10.0.0."));
    let error = world.assign("node-b", "b.0").unwrap_err();
    assert_eq!(error.to_string(), "no enabled IP pool gives IPv4 addresses to pods of node node-b");
    for asked in ["pool-3", "10.3.0.0/28"] {
        let assigned = world.plan("node-b", "b.0", &[asked]).unwrap();
        assert!(assigned.address.to_string().starts_with("10.3.0."));
    }
    for asked in ["pool-1", "pool-9", "10.9.0.0/16"] {
        assert!(
            matches!(world.plan("node-b", "b.0", &[asked]), Err(AssignError::PoolUnknown(..))),
            "{asked}"
        );
    }
    assert!(matches!(world.plan("node-b", "b.0", &["pool-2"]), Err(AssignError::NoPoolServes { .. })));
    assert_eq!(World::default().plan("node-a", "a.0", &[]), Err(AssignError::NoPools));
}

#[test]
fn limits_reservations_and_broken_blocks_are_heeded() {
    let mut world = small_pool();
    world.config.max_blocks_per_host = 1;
    for number in 0..4 {
        world.assign("node-a", &format!("a.{number}")).unwrap();
    }
    let error = world.assign("node-a", "a.4").unwrap_err();
    assert_eq!(error, AssignError::BlockLimit { host: "node-a".to_owned(), blocks: 1 });
    world.config.auto_allocate_blocks = false;
    assert!(matches!(world.assign("node-a", "a.4"), Err(AssignError::ClaimsOff { .. })));

    let mut world = small_pool();
    world.reserved = vec!["10.0.0.0/29".parse().unwrap(), "10.0.0.8/31".parse().unwrap()];
    let given: Vec<IpAddr> = (0..6).map(|n| world.assign("node-a", &format!("a.{n}")).unwrap()).collect();
    assert!(
        given.iter().all(|address| !world.reserved.iter().any(|net| net.contains(*address))),
        "{given:?}"
    );
    assert!(world.assign("node-a", "a.6").is_err());

    let mut world = small_pool();
    world.assign("node-a", "a.0").unwrap();
    let cidr = world.blocks()[0];
    let mut broken = world.block(cidr).unwrap().value;
    broken.unallocated.push(0);
    world.put(Key::Block(cidr), broken.encode());
    assert!(
        !cidr.contains(world.assign("node-a", "a.1").unwrap()),
        "taken from a block that contradicts itself"
    );
}

#[test]
fn an_unfinished_claim_is_finished() {
    let mut world = small_pool();
    let owner = AffinityOwner::Host("node-a".to_owned());
    let block: Cidr = "10.0.0.4/30".parse().unwrap();
    let key = Key::Affinity { owner: owner.clone(), block };
    world.put(key.clone(), Affinity::new(AffinityState::Pending).encode());
    assert!(block.contains(world.assign("node-a", "a.0").unwrap()));
    let (value, _) = world.get(&key).unwrap();
    assert_eq!(Affinity::decode(&owner, &block, value).unwrap().state, AffinityState::Confirmed);
    world.assert_books_agree();
    // And one that another node won in the meantime is left alone.
    let other =
        Block::new("10.0.0.8/30".parse().unwrap(), Some(&AffinityOwner::Host("node-b".to_owned())), 1);
    world.put(other.key(), other.encode());
    let stale = Key::Affinity { owner, block: other.cidr };
    world.put(stale, Affinity::new(AffinityState::Pending).encode());
    for number in 1..8 {
        assert!(!other.cidr.contains(world.assign("node-a", &format!("a.{number}")).unwrap()));
    }
}

#[test]
fn a_release_puts_the_handle_right() {
    let mut world = small_pool();
    world.assign("node-a", "a.0").unwrap();
    let gone: Cidr = "10.0.0.8/30".parse().unwrap();
    let stored = world.handle("a.0").unwrap().value;
    let mut wrong = stored.clone();
    wrong.block.insert(gone.to_string(), 3);
    wrong.block.values_mut().for_each(|count| *count += 5);
    world.put(Key::Handle("a.0".to_owned()), wrong.encode());
    assert_eq!(world.release("a.0").len(), 1);
    assert_eq!(world.handle("a.0"), None);
    assert_eq!(world.release("a.0"), [] as [IpAddr; 0]);
    world.assert_books_agree();
}

#[test]
fn an_empty_block_without_owner_goes_with_its_last_address() {
    let mut world = small_pool();
    world.assign("node-a", "a.0").unwrap();
    let cidr = world.blocks()[0];
    let mut orphan = world.block(cidr).unwrap().value;
    orphan.set_owner(None);
    world.put(Key::Block(cidr), orphan.encode());
    assert_eq!(world.release("a.0").len(), 1);
    assert_eq!(world.blocks(), [] as [Cidr; 0]);
}

proptest! {
    #[test]
    fn no_address_has_two_owners_and_the_books_agree(
        acts in proptest::collection::vec((0u8..3, 0u8..12, any::<bool>()), 0..80),
    ) {
        let mut world = small_pool();
        let mut held: BTreeMap<String, IpAddr> = BTreeMap::new();
        for (node, number, takes) in acts {
            let handle = format!("{node}.{number}");
            if takes && !held.contains_key(&handle) {
                if let Ok(address) = world.assign(&format!("node-{node}"), &handle) {
                    prop_assert!(!held.values().any(|other| *other == address), "{} twice", address);
                    held.insert(handle, address);
                }
            } else {
                let released = world.release(&handle);
                prop_assert_eq!(released, held.remove(&handle).into_iter().collect::<Vec<_>>());
            }
            world.assert_books_agree();
        }
    }
}
