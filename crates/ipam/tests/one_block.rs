//! One block against the simplest allocator there could be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ipam::{INTERFACE_ATTRIBUTE, Owner, free_expired, release, take};
use jiff::Timestamp;
use model::Cidr;
use model::ipam::Block;
use proptest::prelude::*;

const BLOCK: &str = "10.0.0.64/29";

fn block() -> Block {
    Block::new(BLOCK.parse().unwrap(), None, 1_000)
}

fn owner(handle: u8) -> Owner {
    let attributes = BTreeMap::from([("pod".to_owned(), format!("pod-{handle}"))]);
    Owner { handle: format!("net.{handle}"), attributes }
}

/// Free addresses in the order of their release, and who has which.
struct Naive {
    free: VecDeque<IpAddr>,
    held: BTreeMap<IpAddr, String>,
}

impl Naive {
    fn new(block: &Block) -> Naive {
        Naive {
            free: (0..block.capacity()).filter_map(|n| block.address(n)).collect(),
            held: BTreeMap::new(),
        }
    }

    fn take(&mut self, handle: &str, reserved: &[Cidr]) -> Option<IpAddr> {
        let fit = self.free.iter().position(|address| !reserved.iter().any(|net| net.contains(*address)))?;
        let address = self.free.remove(fit)?;
        self.held.insert(address, handle.to_owned());
        Some(address)
    }

    fn release(&mut self, handle: &str) -> Vec<IpAddr> {
        let of_handle = |(address, holder): (&IpAddr, &String)| (holder == handle).then_some(*address);
        let addresses: Vec<IpAddr> = self.held.iter().filter_map(of_handle).collect();
        self.held.retain(|_, holder| holder != handle);
        self.free.extend(&addresses);
        addresses
    }
}

#[derive(Clone, Debug)]
enum Act {
    Take(u8),
    Release(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![3 => (0u8..5).prop_map(Act::Take), 1 => (0u8..5).prop_map(Act::Release)]
}

proptest! {
    #[test]
    fn a_block_gives_and_takes_like_the_naive_allocator(
        acts in proptest::collection::vec(act(), 0..60),
        reserved in proptest::collection::btree_set(64u8..72, 0..3),
    ) {
        let reserved: Vec<Cidr> =
            reserved.iter().map(|last| Cidr::single(IpAddr::from([10, 0, 0, *last]))).collect();
        let mut block = block();
        let mut naive = Naive::new(&block);
        for act in acts {
            let before = block.sequence_number;
            match act {
                Act::Take(who) => {
                    let owner = owner(who);
                    let taken = take(&mut block, &owner, &reserved);
                    prop_assert_eq!(taken, naive.take(&owner.handle, &reserved));
                    prop_assert_eq!(block.sequence_number - before, u64::from(taken.is_some()));
                    if let Some(address) = taken {
                        let ordinal = block.ordinal(address).unwrap();
                        prop_assert_eq!(block.sequence_of(ordinal), before);
                        prop_assert_eq!(&block.attribute(ordinal).unwrap().secondary, &owner.attributes);
                    }
                }
                Act::Release(who) => {
                    let released = release(&mut block, &owner(who).handle, |_, _, _| true, None);
                    prop_assert_eq!(&released, &naive.release(&owner(who).handle));
                    prop_assert_eq!(block.sequence_number - before, u64::from(!released.is_empty()));
                }
            }
            prop_assert_eq!(block.contradictions(), Vec::<String>::new());
            let written = block.encode();
            prop_assert_eq!(&Block::decode(&block.cidr, &written).unwrap(), &block);
        }
        let free: Vec<IpAddr> = block.unallocated.iter().filter_map(|n| block.address(*n)).collect();
        prop_assert_eq!(free, Vec::from(naive.free));
    }

    #[test]
    fn a_release_by_number_frees_only_that_allocation(count in 1usize..8, which in 0usize..8) {
        let mut block = block();
        let owner = owner(1);
        let taken: Vec<IpAddr> = (0..count).filter_map(|_| take(&mut block, &owner, &[])).collect();
        let number = block.sequence_of(block.ordinal(taken[which % count]).unwrap());
        let released = release(&mut block, &owner.handle, |_, _, sequence| sequence == number, None);
        prop_assert_eq!(released, vec![taken[which % count]]);
        // Taken again it has another number, and the old one frees nothing any more.
        while take(&mut block, &owner, &[]).is_some() {}
        let again = release(&mut block, &owner.handle, |_, _, sequence| sequence == number, None);
        prop_assert_eq!(again, Vec::<IpAddr>::new());
    }
}

#[test]
fn interfaces_of_one_handle_are_released_apart() {
    let mut block = block();
    let mut of_interface = |interface: &str| {
        let mut owner = owner(1);
        owner.attributes.insert(INTERFACE_ATTRIBUTE.to_owned(), interface.to_owned());
        take(&mut block, &owner, &[]).unwrap()
    };
    let (first, second) = (of_interface("eth0"), of_interface("net1"));
    let is_first = |_: IpAddr, attribute: &model::ipam::BlockAttribute, _: u64| {
        attribute.secondary[INTERFACE_ATTRIBUTE] == "eth0"
    };
    assert_eq!(release(&mut block, "net.1", is_first, None), [first]);
    assert_eq!(release(&mut block, "net.1", |_, _, _| true, None), [second]);
}

#[test]
fn a_released_address_cools_down_before_it_is_given_again() {
    let mut block = block();
    let taken = take(&mut block, &owner(1), &[]).unwrap();
    let start: Timestamp = "2026-08-22T06:33:20Z".parse().unwrap();
    assert_eq!(release(&mut block, "net.1", |_, _, _| true, Some(start)), [taken]);
    assert_eq!(block.contradictions(), [] as [String; 0]);
    assert_eq!(release(&mut block, "net.1", |_, _, _| true, Some(start)), [] as [IpAddr; 0]);
    let mut given = BTreeSet::new();
    while let Some(address) = take(&mut block, &owner(2), &[]) {
        given.insert(address);
    }
    assert_eq!((given.len(), given.contains(&taken)), (7, false));
    let after = |seconds: i64| Timestamp::from_second(start.as_second() + seconds).unwrap();
    free_expired(&mut block, after(59), 60);
    assert_eq!(take(&mut block, &owner(2), &[]), None);
    free_expired(&mut block, after(60), 60);
    assert_eq!(take(&mut block, &owner(2), &[]), Some(taken));
    assert_eq!(block.contradictions(), [] as [String; 0]);
}
