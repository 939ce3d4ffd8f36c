//! Random operations of several nodes, and the simplest address book there could be: who holds which address. Whatever
//! manages addresses can be held against it; `ipam` does so in memory, `book` on a store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::{AssignError, ReleaseItem};
use model::{Cidr, HandleId};
use proptest::prelude::*;

/// The pools of the cluster: 32 addresses of IPv4 in blocks of 4, some of them reserved.
pub(crate) const POOLS: [&str; 2] = ["10.0.0.0/28", "10.0.1.0/28"];
pub(crate) const BLOCK_SIZE: u8 = 30;
pub(crate) const RESERVED: [&str; 2] = ["10.0.0.5/32", "10.0.1.4/30"];

/// What is held against the naive book. Everything is carried out at once, and nobody else is at work.
pub(crate) trait Subject {
    fn is_strict(&self) -> bool;
    /// As many as there are, and why there are not more.
    fn assign(&mut self, node: &str, handle: &str, count: usize) -> (Vec<IpAddr>, Option<AssignError>);
    fn assign_given(&mut self, node: &str, handle: &str, address: IpAddr) -> Result<(), AssignError>;
    fn release(&mut self, handle: &str) -> Vec<IpAddr>;
    fn release_address(&mut self, item: ReleaseItem) -> Vec<IpAddr>;
    /// The blocks that the node had, and whether they were refused.
    fn release_host(&mut self, node: &str, must_be_empty: bool) -> Vec<(Cidr, bool)>;
    fn wait(&mut self, seconds: i64);
    /// In the order of the addresses.
    fn held_by(&self, handle: &str) -> Vec<IpAddr>;
    fn assert_books_agree(&self);
    fn blocks(&self) -> Vec<Cidr>;
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Assign { node: u8, handle: u8, count: usize },
    AssignGiven { node: u8, handle: u8, last: u8 },
    Release { handle: u8 },
    ReleaseAddress { last: u8, handle: Option<u8>, is_stale: bool },
    ReleaseHost { node: u8, must_be_empty: bool },
    Wait { seconds: i64 },
}

const NODES: u8 = 3;
const HANDLES: u8 = 10;

pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
    proptest::collection::vec(act(), 0..60)
}

fn act() -> impl Strategy<Value = Act> {
    let (node, handle) = (0..NODES, 0..HANDLES);
    prop_oneof![
        6 => (node.clone(), handle.clone(), 1usize..6)
            .prop_map(|(node, handle, count)| Act::Assign { node, handle, count }),
        1 => (node.clone(), handle.clone(), 0u8..18)
            .prop_map(|(node, handle, last)| Act::AssignGiven { node, handle, last }),
        4 => handle.clone().prop_map(|handle| Act::Release { handle }),
        2 => (0u8..16, proptest::option::of(handle), any::<bool>())
            .prop_map(|(last, handle, is_stale)| Act::ReleaseAddress { last, handle, is_stale }),
        1 => (node, any::<bool>()).prop_map(|(node, must_be_empty)| Act::ReleaseHost { node, must_be_empty }),
        1 => (0i64..100).prop_map(|seconds| Act::Wait { seconds }),
    ]
}

/// Does everything on both, and compares them after each act. At the end nothing may be left.
pub(crate) fn compare(subject: impl Subject, acts: &[Act]) -> Result<(), TestCaseError> {
    let mut pair = Pair { subject, held: BTreeMap::new() };
    for act in acts {
        pair.act(act)?;
        pair.compare()?;
    }
    for handle in 0..HANDLES {
        pair.act(&Act::Release { handle })?;
    }
    for node in 0..NODES {
        pair.act(&Act::ReleaseHost { node, must_be_empty: true })?;
    }
    prop_assert_eq!(pair.subject.blocks(), Vec::<Cidr>::new(), "nothing is left behind");
    Ok(())
}

struct Pair<S> {
    subject: S,
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

impl<S: Subject> Pair<S> {
    /// Every address that could be given automatically.
    fn free(&self) -> BTreeSet<IpAddr> {
        let all = (0..POOLS.len() as u8)
            .flat_map(|pool| (0..16u8).map(move |offset| IpAddr::from([10, 0, pool, offset])));
        all.filter(|address| !self.held.contains_key(address))
            .filter(|address| !RESERVED.iter().any(|network| cidr(network).contains(*address)))
            .collect()
    }

    fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        let of_handle = |(address, holder): (&IpAddr, &String)| (holder == handle).then_some(*address);
        self.held.iter().filter_map(of_handle).collect()
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Assign { node, handle, count } => self.assign(*node, *handle, *count),
            Act::AssignGiven { node, handle, last } => self.assign_given(*node, *handle, *last),
            Act::Release { handle } => {
                let handle = name(*handle);
                let mut released = self.subject.release(&handle);
                released.sort_unstable();
                prop_assert_eq!(released, self.held_by(&handle));
                self.held.retain(|_, holder| *holder != handle);
                Ok(())
            }
            Act::ReleaseAddress { last, handle, is_stale } => self.release_address(*last, *handle, *is_stale),
            Act::ReleaseHost { node, must_be_empty } => {
                for (block, is_refused) in self.subject.release_host(&node_name(*node), *must_be_empty) {
                    let is_used = self.held.keys().any(|address| block.contains(*address));
                    prop_assert_eq!(is_refused, is_used && *must_be_empty, "{}", block);
                }
                Ok(())
            }
            Act::Wait { seconds } => {
                self.subject.wait(*seconds);
                Ok(())
            }
        }
    }

    fn assign(&mut self, node: u8, handle: u8, count: usize) -> Result<(), TestCaseError> {
        let free = self.free();
        let (given, shortage) = self.subject.assign(&node_name(node), &name(handle), count);
        for address in &given {
            prop_assert!(free.contains(address), "{address} was not free");
            prop_assert_eq!(self.held.insert(*address, name(handle)), None);
        }
        prop_assert_eq!(given.len() == count, shortage.is_none());
        // Without strict affinity, there are too few addresses only if there are none.
        if !self.subject.is_strict() {
            prop_assert_eq!(given.len(), count.min(free.len()));
        }
        Ok(())
    }

    fn assign_given(&mut self, node: u8, handle: u8, last: u8) -> Result<(), TestCaseError> {
        let address = IpAddr::from([10, 0, 0, last]);
        let holder = self.held.get(&address).cloned();
        match self.subject.assign_given(&node_name(node), &name(handle), address) {
            Ok(()) => {
                prop_assert!(holder.is_none_or(|holder| holder == name(handle)));
                self.held.insert(address, name(handle));
            }
            Err(AssignError::Taken { .. }) => {
                prop_assert!(holder.is_some_and(|holder| holder != name(handle)))
            }
            Err(AssignError::NotInPool(_)) => prop_assert!(last >= 16),
            Err(AssignError::BlockOfAnother { .. }) => prop_assert!(self.subject.is_strict()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        Ok(())
    }

    fn release_address(&mut self, last: u8, handle: Option<u8>, is_stale: bool) -> Result<(), TestCaseError> {
        let address = IpAddr::from([10, 0, 0, last]);
        let handle = handle.map(name);
        let item = ReleaseItem {
            address,
            handle: handle.clone().map(HandleId::from),
            sequence_number: is_stale.then_some(1),
        };
        let released = self.subject.release_address(item);
        let holder = self.held.get(&address);
        let is_meant =
            holder.is_some() && !is_stale && handle.as_ref().is_none_or(|handle| Some(handle) == holder);
        prop_assert_eq!(released, if is_meant { vec![address] } else { Vec::new() });
        if is_meant {
            self.held.remove(&address);
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        self.subject.assert_books_agree();
        for handle in self.held.values().collect::<BTreeSet<_>>() {
            prop_assert_eq!(self.subject.held_by(handle), self.held_by(handle));
        }
        Ok(())
    }
}
