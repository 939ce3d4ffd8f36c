//! Random operations of several nodes against the simplest address book there could be: who holds which address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{AddressAssignment, AddressRelease, AddressRequest, AssignError, ReleaseItem, ReleaseRule};
use model::Cidr;
use proptest::prelude::*;
use serde_json::json;

use crate::common::{World, labels, owner};

/// The pools of the world: 32 addresses of IPv4 in blocks of 4, some of them reserved.
const POOLS: [&str; 2] = ["10.0.0.0/28", "10.0.1.0/28"];
const RESERVED: [&str; 2] = ["10.0.0.5/32", "10.0.1.4/30"];

#[derive(Clone, Debug)]
enum Act {
    Assign { node: u8, handle: u8, count: usize },
    AssignGiven { node: u8, handle: u8, last: u8 },
    Release { handle: u8 },
    ReleaseAddress { last: u8, handle: Option<u8>, is_stale: bool },
    ReleaseHost { node: u8, must_be_empty: bool },
    Wait { seconds: i64 },
}

fn act() -> impl Strategy<Value = Act> {
    let node = 0u8..3;
    prop_oneof![
        6 => (node.clone(), 0u8..10, 1usize..6).prop_map(|(node, handle, count)| Act::Assign { node, handle, count }),
        1 => (node.clone(), 0u8..10, 0u8..18).prop_map(|(node, handle, last)| Act::AssignGiven { node, handle, last }),
        4 => (0u8..10).prop_map(|handle| Act::Release { handle }),
        2 => (0u8..16, proptest::option::of(0u8..10), any::<bool>())
            .prop_map(|(last, handle, is_stale)| Act::ReleaseAddress { last, handle, is_stale }),
        1 => (node, any::<bool>()).prop_map(|(node, must_be_empty)| Act::ReleaseHost { node, must_be_empty }),
        1 => (0i64..100).prop_map(|seconds| Act::Wait { seconds }),
    ]
}

/// The world, and who holds what as the simplest book would have it.
struct Pair {
    world: World,
    held: BTreeMap<IpAddr, String>,
}

fn name(handle: u8) -> String {
    format!("net.{handle}")
}

fn node_name(node: u8) -> String {
    format!("node-{node}")
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

impl Pair {
    fn new(is_strict: bool, is_atomic: bool) -> Pair {
        let specs = POOLS.map(|cidr| json!({"cidr": cidr, "blockSize": 30}));
        let mut world = World::with_pools(&specs);
        world.configure(|config| config.strict_affinity = is_strict);
        world.is_atomic = is_atomic;
        world.reserved = RESERVED.map(cidr).to_vec();
        Pair { world, held: BTreeMap::new() }
    }

    /// Every address that could be given automatically.
    fn free(&self) -> BTreeSet<IpAddr> {
        let all = POOLS.iter().flat_map(|pool| {
            let base = cidr(pool).network();
            (0..16u8).map(move |offset| match base {
                IpAddr::V4(base) => {
                    IpAddr::from([base.octets()[0], base.octets()[1], base.octets()[2], offset])
                }
                IpAddr::V6(_) => unreachable!("the pools are IPv4"),
            })
        });
        all.filter(|address| !self.held.contains_key(address))
            .filter(|address| !RESERVED.iter().any(|network| cidr(network).contains(*address)))
            .collect()
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Assign { node, handle, count } => self.assign(*node, *handle, *count),
            Act::AssignGiven { node, handle, last } => self.assign_given(*node, *handle, *last),
            Act::Release { handle } => {
                let handle = name(*handle);
                let mut released = self.world.release(&handle);
                released.sort_unstable();
                let of_handle =
                    |(address, holder): (&IpAddr, &String)| (*holder == handle).then_some(*address);
                let expected: Vec<IpAddr> = self.held.iter().filter_map(of_handle).collect();
                prop_assert_eq!(released, expected);
                self.held.retain(|_, holder| *holder != handle);
                Ok(())
            }
            Act::ReleaseAddress { last, handle, is_stale } => self.release_address(*last, *handle, *is_stale),
            Act::ReleaseHost { node, must_be_empty } => {
                let rule = ReleaseRule { must_be_empty: *must_be_empty, sequence_number: None };
                for released in self.world.plan_release_of_host(&node_name(*node), rule) {
                    let is_used = self.held.keys().any(|address| released.block.contains(*address));
                    prop_assert_eq!(released.result.is_err(), is_used && *must_be_empty);
                    if let Ok(steps) = released.result {
                        self.world.commit(&steps).unwrap();
                    }
                }
                Ok(())
            }
            Act::Wait { seconds } => {
                let later = self.world.now.checked_add(jiff::SignedDuration::from_secs(*seconds));
                self.world.now = later.unwrap();
                Ok(())
            }
        }
    }

    fn assign(&mut self, node: u8, handle: u8, count: usize) -> Result<(), TestCaseError> {
        let free = self.free();
        let (given, shortage) = self.world.assign_many(&node_name(node), &name(handle), count);
        for address in &given {
            prop_assert!(free.contains(address), "{address} was not free");
            prop_assert_eq!(self.held.insert(*address, name(handle)), None);
        }
        prop_assert_eq!(given.len() == count, shortage.is_none());
        // Without strict affinity, there are too few addresses only if there are none.
        if !self.world.config().strict_affinity {
            prop_assert_eq!(given.len(), count.min(free.len()));
        }
        Ok(())
    }

    fn assign_given(&mut self, node: u8, handle: u8, last: u8) -> Result<(), TestCaseError> {
        let address = IpAddr::from([10, 0, 0, last]);
        let request = AddressRequest {
            host: node_name(node),
            owner: owner(&name(handle)),
            addresses: vec![address],
            purpose: None,
            node_labels: labels(&[]),
            blocks_max: None,
            handle_max: None,
            host_reserve: None,
        };
        let surroundings = self.world.surroundings(&node_name(node));
        let holder = self.held.get(&address).cloned();
        match self.world.drive(&mut AddressAssignment::new(request, surroundings)) {
            Ok(assigned) => {
                prop_assert!(holder.is_none_or(|holder| holder == name(handle)));
                self.world.commit(&assigned.steps).unwrap();
                self.held.insert(address, name(handle));
            }
            Err(AssignError::Taken { .. }) => {
                prop_assert!(holder.is_some_and(|holder| holder != name(handle)))
            }
            Err(AssignError::NotInPool(_)) => prop_assert!(last >= 16),
            Err(AssignError::BlockOfAnother { .. }) => prop_assert!(self.world.config().strict_affinity),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        Ok(())
    }

    fn release_address(&mut self, last: u8, handle: Option<u8>, is_stale: bool) -> Result<(), TestCaseError> {
        let address = IpAddr::from([10, 0, 0, last]);
        let handle = handle.map(name);
        let item = ReleaseItem { address, handle: handle.clone(), sequence_number: is_stale.then_some(1) };
        let pools = self.world.pools().into_iter().map(|pool| pool.value).collect();
        let released = self.world.drive(&mut AddressRelease::new([item], pools, None, 128)).unwrap();
        self.world.commit(&released.steps).unwrap();
        let holder = self.held.get(&address);
        let is_meant =
            holder.is_some() && !is_stale && handle.as_ref().is_none_or(|handle| Some(handle) == holder);
        prop_assert_eq!(released.addresses, if is_meant { vec![address] } else { Vec::new() });
        if is_meant {
            self.held.remove(&address);
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        self.world.assert_books_agree();
        let handles: BTreeSet<&String> = self.held.values().collect();
        for handle in handles {
            let of_handle = |(address, holder): (&IpAddr, &String)| (holder == handle).then_some(*address);
            let expected: Vec<IpAddr> = self.held.iter().filter_map(of_handle).collect();
            prop_assert_eq!(self.world.held_by(handle), expected);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::count(48, 2_000) as u32, ..ProptestConfig::default() })]

    #[test]
    fn the_books_are_those_of_the_naive_allocator(
        acts in proptest::collection::vec(act(), 0..60),
        is_strict in any::<bool>(),
        is_atomic in any::<bool>(),
    ) {
        let mut pair = Pair::new(is_strict, is_atomic);
        for act in &acts {
            pair.act(act)?;
            pair.compare()?;
        }
        for handle in 0..10 {
            pair.act(&Act::Release { handle })?;
        }
        for node in 0..3 {
            pair.act(&Act::ReleaseHost { node, must_be_empty: true })?;
        }
        prop_assert_eq!(pair.world.blocks(), Vec::<Cidr>::new(), "nothing is left behind");
    }
}
