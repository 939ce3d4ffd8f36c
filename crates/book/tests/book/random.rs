//! Random operations through the book, on SQLite, against the naive address book that `ipam` is held against.

use std::net::IpAddr;
use std::sync::Arc;

use ipam::{AssignError, ReleaseItem, ReleaseRule};
use model::{Cidr, Kind};
use proptest::prelude::*;
use serde_json::json;
use store::wrap::StepwiseStore;
use tokio::runtime::Runtime;

use crate::common::put;
use crate::naive::{self, BLOCK_SIZE, POOLS, RESERVED, Subject};
use crate::places::Place;
use crate::scenarios::World;

/// A cluster, and what drives it.
struct Driven {
    runtime: Runtime,
    world: World,
    is_strict: bool,
}

impl Driven {
    fn new(is_strict: bool, is_atomic: bool) -> Driven {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let specs = POOLS.map(|cidr| json!({"cidr": cidr, "blockSize": BLOCK_SIZE}));
        let world = runtime.block_on(async {
            let mut world = World::start(Place::sqlite(), &specs).await;
            put(&world.store, Kind::IpReservation, "reserved", json!({"reservedCIDRs": RESERVED})).await;
            world.book.change_config(|config| config.strict_affinity = is_strict).await.unwrap();
            if !is_atomic {
                world.book = world.book_on(Arc::new(StepwiseStore::new(world.store.clone())));
            }
            world
        });
        Driven { runtime, world, is_strict }
    }
}

impl Subject for Driven {
    fn is_strict(&self) -> bool {
        self.is_strict
    }

    fn assign(&mut self, node: &str, handle: &str, count: usize) -> (Vec<IpAddr>, Option<AssignError>) {
        self.runtime.block_on(self.world.assign_many(node, handle, count))
    }

    fn assign_given(&mut self, node: &str, handle: &str, address: IpAddr) -> Result<(), AssignError> {
        self.runtime.block_on(self.world.give(node, handle, &address.to_string(), None))
    }

    fn release(&mut self, handle: &str) -> Vec<IpAddr> {
        self.runtime.block_on(self.world.release(handle))
    }

    fn release_address(&mut self, item: ReleaseItem) -> Vec<IpAddr> {
        self.runtime.block_on(self.world.book.release_addresses([item])).unwrap().addresses
    }

    fn release_host(&mut self, node: &str, must_be_empty: bool) -> Vec<(Cidr, bool)> {
        let rule = ReleaseRule { must_be_empty, sequence_number: None };
        let released = self.runtime.block_on(self.world.book.release_host(node, rule)).unwrap();
        released.into_iter().map(|given_up| (given_up.block, given_up.result.is_err())).collect()
    }

    fn wait(&mut self, seconds: i64) {
        self.world.put_clock_forward(seconds);
    }

    fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        let mut held = self.runtime.block_on(self.world.held(handle));
        held.sort_unstable();
        held
    }

    fn assert_books_agree(&self) {
        self.runtime.block_on(self.world.assert_clean());
    }

    fn blocks(&self) -> Vec<Cidr> {
        self.runtime.block_on(self.world.blocks())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::count(12, 400) as u32, ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_those_of_the_naive_allocator(
        acts in naive::acts(),
        is_strict in any::<bool>(),
        is_atomic in any::<bool>(),
    ) {
        naive::compare(Driven::new(is_strict, is_atomic), &acts)?;
    }
}
