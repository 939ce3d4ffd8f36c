//! Random operations on a handful of records, against the naive address book.

use std::net::IpAddr;

use ipam::{AddressAssignment, AddressRelease, AddressRequest, AssignError, ReleaseItem, ReleaseRule};
use model::Cidr;
use proptest::prelude::*;
use serde_json::json;

use crate::common::{World, labels, owner};
use crate::naive::{self, BLOCK_SIZE, POOLS, RESERVED, Subject};

fn world(is_strict: bool, is_atomic: bool, surveys: bool) -> World {
    let specs = POOLS.map(|cidr| json!({"cidr": cidr, "blockSize": BLOCK_SIZE}));
    let mut world = World::with_pools(&specs);
    world.configure(|config| config.strict_affinity = is_strict);
    (world.is_atomic, world.surveys) = (is_atomic, surveys);
    world.reserved = RESERVED.map(|text| text.parse().unwrap()).to_vec();
    world
}

impl Subject for World {
    fn is_strict(&self) -> bool {
        self.config().strict_affinity
    }

    fn assign(&mut self, node: &str, handle: &str, count: usize) -> (Vec<IpAddr>, Option<AssignError>) {
        self.assign_many(node, handle, count)
    }

    fn assign_given(&mut self, node: &str, handle: &str, address: IpAddr) -> Result<(), AssignError> {
        let request = AddressRequest {
            host: node.to_owned(),
            owner: owner(handle),
            addresses: vec![address],
            purpose: None,
            node_labels: labels(&[]),
            blocks_max: None,
            handle_max: None,
            host_reserve: None,
        };
        let assigned = self.drive(&mut AddressAssignment::new(request, self.surroundings(node)))?;
        self.commit(&assigned.steps).unwrap();
        Ok(())
    }

    fn release(&mut self, handle: &str) -> Vec<IpAddr> {
        World::release(self, handle)
    }

    fn release_address(&mut self, item: ReleaseItem) -> Vec<IpAddr> {
        let pools = self.pools().into_iter().map(|pool| pool.value).collect();
        let released = self.drive(&mut AddressRelease::new([item], pools, None, 128)).unwrap();
        self.commit(&released.steps).unwrap();
        released.addresses
    }

    fn release_host(&mut self, node: &str, must_be_empty: bool) -> Vec<(Cidr, bool)> {
        let rule = ReleaseRule { must_be_empty, sequence_number: None };
        let mut outcomes = Vec::new();
        for released in self.plan_release_of_host(node, rule) {
            outcomes.push((released.block, released.result.is_err()));
            if let Ok(steps) = released.result {
                self.commit(&steps).unwrap();
            }
        }
        outcomes
    }

    fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    }

    fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        World::held_by(self, handle)
    }

    fn assert_books_agree(&self) {
        World::assert_books_agree(self);
    }

    fn blocks(&self) -> Vec<Cidr> {
        World::blocks(self)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::count(48, 2_000) as u32, ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_those_of_the_naive_allocator(
        acts in naive::acts(),
        is_strict in any::<bool>(),
        is_atomic in any::<bool>(),
        surveys in any::<bool>(),
    ) {
        naive::compare(world(is_strict, is_atomic, surveys), &acts)?;
    }
}
