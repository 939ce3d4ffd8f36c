//! A cluster's records and the operations on them, each driven to its end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{
    AffinityRelease, Answer, AssignError, Assigned, Assignment, BlockReleased, Books, Decision,
    HandleRelease, Next, Owner, Pool, PoolUse, ReleaseRule, Released, Request, Steps, Stored, Surroundings,
    Survey, Want, recover,
};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle, IpamConfig};
use model::{AffinityOwner, Cidr, HandleId, IpVersion, Key, Kind, Resource};
use serde_json::{Value, json};

use super::store::{Interrupted, Store};

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) reserved: Vec<Cidr>,
    pub(crate) now: Timestamp,
    /// Commits all or nothing; else record by record.
    pub(crate) is_atomic: bool,
    /// Searches ask for all blocks at once before they look at one that is not the node's.
    pub(crate) surveys: bool,
}

pub(crate) fn now() -> Timestamp {
    "2026-08-22T06:33:20Z".parse().unwrap()
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn owner(handle: &str) -> Owner {
    Owner { handle: handle.into(), attributes: labels(&[("pod", handle)]) }
}

pub(crate) fn want(handle: &str, v4: usize, v6: usize) -> Want {
    Want {
        owner: owner(handle),
        handle: None,
        v4,
        v6,
        accepts_fewer: true,
        handle_max: None,
        extra_changes: 0,
    }
}

fn block_owner(host: &str) -> AffinityOwner {
    let owner = if host == ipam::LOAD_BALANCER { AffinityOwner::Virtual } else { AffinityOwner::Host };
    owner(host.to_owned())
}

impl World {
    /// Pools are called `pool-0`, `pool-1` …
    pub(crate) fn with_pools(pools: &[Value]) -> World {
        let mut world = World {
            store: Store::default(),
            reserved: Vec::new(),
            now: now(),
            is_atomic: true,
            surveys: false,
        };
        for (position, spec) in pools.iter().enumerate() {
            world.put_pool(&format!("pool-{position}"), spec.clone());
        }
        world
    }

    pub(crate) fn with_pool(cidr: &str, block_size: u8) -> World {
        World::with_pools(&[json!({"cidr": cidr, "blockSize": block_size})])
    }

    pub(crate) fn put_pool(&mut self, name: &str, spec: Value) {
        let mut resource = Resource::new(Kind::IpPool, name);
        resource.body.insert("spec".to_owned(), spec);
        self.store.put(resource.key(), resource.encode());
    }

    pub(crate) fn delete_pool(&mut self, name: &str) {
        self.store.delete(&Key::cluster(Kind::IpPool, name));
    }

    /// Writes the settings down, changed.
    pub(crate) fn configure(&mut self, change: impl FnOnce(&mut IpamConfig)) {
        let mut config = self.config();
        change(&mut config);
        self.store.put(Key::IpamConfig, config.encode());
    }

    pub(crate) fn config(&self) -> IpamConfig {
        self.stored_config().map_or_else(IpamConfig::default, |stored| stored.value)
    }

    fn stored_config(&self) -> Option<Stored<IpamConfig>> {
        let (value, revision) = self.store.get(&Key::IpamConfig)?;
        Some(Stored::new(IpamConfig::decode(value).unwrap(), revision))
    }

    pub(crate) fn block(&self, cidr: Cidr) -> Option<Stored<Block>> {
        let (value, revision) = self.store.get(&Key::Block(cidr))?;
        Some(Stored::new(Block::decode(&cidr, value).unwrap(), revision))
    }

    pub(crate) fn handle(&self, id: &str) -> Option<Stored<Handle>> {
        let (value, revision) = self.store.get(&Key::Handle(id.into()))?;
        Some(Stored::new(Handle::decode(&id.into(), value).unwrap(), revision))
    }

    pub(crate) fn affinity(&self, host: &str, block: Cidr) -> Option<Affinity> {
        let owner = AffinityOwner::Host(host.to_owned());
        let (value, _) = self.store.get(&Key::Affinity { owner: owner.clone(), block })?;
        Some(Affinity::decode(&owner, &block, value).unwrap())
    }

    pub(crate) fn put_affinity(&mut self, host: &str, block: Cidr, state: AffinityState) {
        let owner = AffinityOwner::Host(host.to_owned());
        self.store.put(Key::Affinity { owner, block }, Affinity::new(state).encode());
    }

    pub(crate) fn blocks(&self) -> Vec<Cidr> {
        let block = |key: &Key| if let Key::Block(cidr) = key { Some(*cidr) } else { None };
        self.store.keys().filter_map(block).collect()
    }

    /// The host's affinities.
    pub(crate) fn affinities(&self, host: &str) -> Vec<(Cidr, Stored<Affinity>)> {
        let of_host = |key: &Key| match key {
            Key::Affinity { owner, block } if *owner == block_owner(host) => Some((owner.clone(), *block)),
            _ => None,
        };
        let read = |(owner, block): (AffinityOwner, Cidr)| {
            let (value, revision) = self.store.get(&Key::Affinity { owner: owner.clone(), block }).unwrap();
            (block, Stored::new(Affinity::decode(&owner, &block, value).unwrap(), revision))
        };
        self.store.keys().filter_map(of_host).map(read).collect()
    }

    pub(crate) fn pools(&self) -> Vec<Stored<Pool>> {
        let is_pool = |key: &&Key| matches!(key, Key::Resource { kind: Kind::IpPool, .. });
        let read = |key: &Key| {
            let (value, revision) = self.store.get(key).unwrap();
            let resource = Resource::decode(key, Kind::IpPool, value, &revision).unwrap();
            Stored::new(Pool::new(&resource).unwrap(), revision)
        };
        self.store.keys().filter(is_pool).map(read).collect()
    }

    pub(crate) fn surroundings(&self, host: &str) -> Surroundings {
        Surroundings {
            config: self.stored_config(),
            pools: self.pools(),
            reserved: self.reserved.clone(),
            affinities: self.affinities(host),
            unclaimed: Vec::new(),
            now: self.now,
        }
    }

    pub(crate) fn request(&self, host: &str, wants: Vec<Want>) -> Request {
        let wants = wants
            .into_iter()
            .map(|want| Want { handle: self.handle(want.owner.handle.as_str()), ..want })
            .collect();
        Request {
            wants,
            node_labels: labels(&[("name", host)]),
            reads_one_by_one: self.surveys,
            surveys_first: self.surveys,
            ..Request::new(host, Vec::new(), PoolUse::Workload, 128)
        }
    }

    /// Answers what the decision asks for, until it is done.
    pub(crate) fn drive<D: Decision>(&self, decision: &mut D) -> Result<D::Outcome, D::Error> {
        loop {
            match decision.poll()? {
                Next::Look(keys) => {
                    assert!(!keys.is_empty() && keys.len() <= 128, "{} records in one look", keys.len());
                    for key in keys {
                        decision.show(&key, self.store.answer(&key));
                    }
                }
                Next::Survey(survey) => decision.show_survey(self.survey(*survey)),
                Next::Done(outcome) => return Ok(outcome),
            }
        }
    }

    /// All blocks: some only by name, some as they were remembered, some whole.
    fn survey(&self, mut survey: Survey) -> Survey {
        for (position, block) in self.blocks().into_iter().enumerate() {
            let answer = self.store.answer(&Key::Block(block));
            match (position % 3, survey.prospect(block, &answer)) {
                (0, _) | (1, None) => survey.exists(block),
                (1, Some(prospect)) => survey.recall(block, prospect),
                _ => drop(survey.read(block, answer)),
            }
        }
        survey
    }

    pub(crate) fn plan(&self, request: Request) -> Result<Assigned, AssignError> {
        let surroundings = self.surroundings(&request.host);
        self.drive(&mut Assignment::new(request, surroundings)?)
    }

    /// One IPv4 address, or the reason why not.
    pub(crate) fn assign(&mut self, host: &str, handle: &str) -> Result<IpAddr, AssignError> {
        let wants = vec![Want::one_each(owner(handle), None, &[IpVersion::V4])];
        let (granted, steps) = self.plan(self.request(host, wants))?.single()?;
        self.commit(&steps).expect("nobody else writes");
        Ok(granted[0].address)
    }

    /// As many IPv4 addresses as there are, up to `count`; repeated until the commits had room for all.
    pub(crate) fn assign_many(
        &mut self,
        host: &str,
        handle: &str,
        count: usize,
    ) -> (Vec<IpAddr>, Option<AssignError>) {
        let mut addresses = Vec::new();
        loop {
            let request = self.request(host, vec![want(handle, count - addresses.len(), 0)]);
            let assigned = match self.plan(request) {
                Ok(assigned) => assigned,
                Err(error) => return (addresses, Some(error)),
            };
            self.commit(&assigned.steps).expect("nobody else writes");
            let grant = &assigned.grants[0];
            addresses.extend(grant.addresses.iter().map(|granted| granted.address));
            match &grant.shortage {
                Some(AssignError::NextCommit) => {}
                shortage => return (addresses, shortage.clone()),
            }
        }
    }

    pub(crate) fn release(&mut self, handle: &str) -> Vec<IpAddr> {
        let mut release = HandleRelease::new(handle, |_, _, _| true, self.cooldown_from());
        let released = self.drive(&mut release).unwrap();
        self.commit(&released.steps).expect("nobody else writes");
        released.addresses
    }

    pub(crate) fn plan_release(&self, handle: &str) -> Released {
        self.drive(&mut HandleRelease::new(handle, |_, _, _| true, self.cooldown_from())).unwrap()
    }

    pub(crate) fn cooldown_from(&self) -> Option<Timestamp> {
        (self.config().ip_cooldown_seconds > 0).then_some(self.now)
    }

    pub(crate) fn plan_release_of_host(&self, host: &str, rule: ReleaseRule) -> Vec<BlockReleased> {
        let owner = AffinityOwner::Host(host.to_owned());
        let blocks = self.affinities(host).into_iter().map(|(block, _)| (owner.clone(), block)).collect();
        self.drive(&mut AffinityRelease::new(blocks, rule)).unwrap()
    }

    pub(crate) fn commit(&mut self, steps: &Steps) -> Result<(), Interrupted> {
        if self.is_atomic { self.store.commit(steps) } else { self.store.apply_prefix(steps, usize::MAX) }
    }

    pub(crate) fn books(&self) -> Books {
        let mut books = Books::default();
        let keys = self.store.keys().filter(|key| !matches!(key, Key::Resource { .. } | Key::IpamConfig));
        keys.for_each(|key| books.add(key, self.store.answer(key)));
        books
    }

    /// Repairs until nothing is left to repair; says how many passes that took.
    pub(crate) fn recover(&mut self) -> usize {
        for pass in 0..20 {
            let repairs = recover(&self.books());
            if repairs.is_empty() {
                return pass;
            }
            for repair in repairs {
                // One that another has overtaken is for the next pass.
                let _ = self.commit(&repair.steps);
            }
        }
        panic!("repairs without end: {:?}", recover(&self.books()));
    }

    /// Handles, blocks and affinities must tell one story.
    pub(crate) fn assert_books_agree(&self) {
        assert_eq!(recover(&self.books()), []);
        let mut counted: BTreeMap<(HandleId, Cidr), i64> = BTreeMap::new();
        for cidr in self.blocks() {
            let block = self.block(cidr).unwrap().value;
            assert_eq!(block.contradictions(), [] as [String; 0]);
            if let Some(owner) = block.owner() {
                let Answer::Affinity(affinity) = self.store.answer(&Key::Affinity { owner, block: cidr })
                else {
                    panic!("{cidr} has no affinity");
                };
                assert_eq!(affinity.value.state, AffinityState::Confirmed);
            }
            for attribute in (0..block.capacity()).filter_map(|ordinal| block.attribute(ordinal)) {
                // What a node keeps for itself has no handle record.
                if let Some(handle) = attribute.handle().filter(|id| !id.is_windows_reserved()) {
                    *counted.entry((handle.clone(), cidr)).or_default() += 1;
                }
            }
        }
        let mut recorded = BTreeMap::new();
        for key in self.store.keys() {
            let Key::Handle(id) = key else { continue };
            for cidr in self.handle(id.as_str()).unwrap().value.blocks() {
                recorded.insert((id.clone(), cidr), self.handle(id.as_str()).unwrap().value.count(&cidr));
            }
        }
        assert_eq!(counted, recorded);
    }

    /// Every address that a handle has, in all blocks.
    pub(crate) fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        let blocks = self.blocks().into_iter().map(|cidr| self.block(cidr).unwrap().value);
        let held = |block: Block| {
            let ordinals: Vec<usize> =
                ipam::held_by(&block, &handle.into()).map(|(ordinal, _)| ordinal).collect();
            ordinals.into_iter().filter_map(|ordinal| block.address(ordinal)).collect::<Vec<_>>()
        };
        blocks.flat_map(held).collect()
    }
}
