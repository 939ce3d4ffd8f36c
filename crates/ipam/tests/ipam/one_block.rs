//! One block: against the simplest allocator there could be, and case by case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ipam::{
    Owner, Reservations, Stored, count_write, free_cooled, free_count, give_back, held_by, is_empty,
    settle_cooldown, take, take_address,
};
use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute};
use model::{Cidr, HandleId};
use proptest::prelude::*;

const BLOCK: &str = "10.0.0.64/29";

fn block() -> Block {
    Block::new(BLOCK.parse().unwrap(), None, 1_000)
}

fn owner(handle: u8) -> Owner {
    let attributes = BTreeMap::from([("pod".to_owned(), format!("pod-{handle}"))]);
    Owner { handle: format!("net.{handle}").into(), attributes }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn nothing_reserved() -> Reservations {
    Reservations::default()
}

/// What one write of the block is to an assignment.
fn write_taking(block: &mut Block, owner: &Owner, count: usize, reserved: &Reservations) -> Vec<IpAddr> {
    let taken = take(block, owner, count, reserved);
    if !taken.is_empty() {
        count_write(block);
    }
    taken
}

/// What one write of the block is to a release by handle.
fn write_releasing(block: &mut Block, handle: &str, cooldown_from: Option<Timestamp>) -> Vec<IpAddr> {
    let ordinals: Vec<usize> = held_by(block, &handle.into()).map(|(ordinal, _)| ordinal).collect();
    if !ordinals.is_empty() {
        give_back(block, &ordinals, cooldown_from);
        count_write(block);
    }
    ordinals.into_iter().filter_map(|ordinal| block.address(ordinal)).collect()
}

/// Free addresses in the order of their release, and who has which.
struct Naive {
    free: VecDeque<IpAddr>,
    held: BTreeMap<IpAddr, String>,
}

impl Naive {
    fn new(block: &Block) -> Naive {
        let free = (0..block.capacity()).filter_map(|ordinal| block.address(ordinal)).collect();
        Naive { free, held: BTreeMap::new() }
    }

    fn take(&mut self, handle: &str, count: usize, reserved: &[Cidr]) -> Vec<IpAddr> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let is_fit = |address: &IpAddr| !reserved.iter().any(|network| network.contains(*address));
            let Some(address) = self.free.iter().position(is_fit).and_then(|place| self.free.remove(place))
            else {
                break;
            };
            self.held.insert(address, handle.to_owned());
            taken.push(address);
        }
        taken
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
    Take(u8, usize),
    Release(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let take = (0u8..5, 1usize..4).prop_map(|(who, count)| Act::Take(who, count));
    prop_oneof![3 => take, 1 => (0u8..5).prop_map(Act::Release)]
}

proptest! {
    /// Block encodings round-trip on the way, and numbers advance by exactly one per write.
    #[test]
    fn a_block_gives_and_takes_like_the_naive_allocator(
        acts in proptest::collection::vec(act(), 0..60),
        reserved in proptest::collection::btree_set(64u8..72, 0..3),
    ) {
        let networks: Vec<Cidr> = reserved.iter().map(|last| Cidr::single(address(*last))).collect();
        let reserved = Reservations::new(&networks);
        let mut block = block();
        let mut naive = Naive::new(&block);
        for act in acts {
            let before = block.sequence_number;
            match act {
                Act::Take(who, count) => {
                    let owner = owner(who);
                    let taken = write_taking(&mut block, &owner, count, &reserved);
                    prop_assert_eq!(&taken, &naive.take(owner.handle.as_str(), count, &networks));
                    prop_assert_eq!(block.sequence_number - before, u64::from(!taken.is_empty()));
                    for address in taken {
                        let ordinal = block.ordinal(address).unwrap();
                        prop_assert_eq!(block.sequence_of(ordinal), before);
                        prop_assert_eq!(&block.attribute(ordinal).unwrap().secondary, &owner.attributes);
                    }
                }
                Act::Release(who) => {
                    let released = write_releasing(&mut block, owner(who).handle.as_str(), None);
                    prop_assert_eq!(&released, &naive.release(owner(who).handle.as_str()));
                    prop_assert_eq!(block.sequence_number - before, u64::from(!released.is_empty()));
                }
            }
            prop_assert_eq!(block.contradictions(), Vec::<String>::new());
            prop_assert_eq!(&Block::decode(&block.cidr, &block.encode()).unwrap(), &block);
            prop_assert_eq!(is_empty(&block), naive.held.is_empty());
        }
        let free: Vec<IpAddr> = block.unallocated.iter().filter_map(|n| block.address(*n)).collect();
        prop_assert_eq!(free, Vec::from(naive.free));
    }

    /// Whatever a block says, looking at it and tidying it does not panic.
    #[test]
    fn any_block_can_be_looked_at(
        allocations in proptest::collection::vec(proptest::option::of(0usize..9), 0..12),
        unallocated in proptest::collection::vec(0usize..12, 0..12),
        attributes in 0usize..4,
        numbers in proptest::collection::btree_map("[0-9]{1,3}|x", any::<u64>(), 0..4),
        seconds in any::<i32>(),
    ) {
        let mut block = block();
        block.allocations = allocations;
        block.unallocated = unallocated;
        let released_at = (seconds % 3 == 0).then(|| format!("{seconds}"));
        block.attributes = vec![BlockAttribute { released_at, ..BlockAttribute::default() }; attributes];
        block.sequence_number_for_allocation = numbers;
        free_count(&block, &nothing_reserved());
        is_empty(&block);
        let now = Timestamp::from_second(i64::from(seconds)).unwrap();
        settle_cooldown(&Stored::new(block.clone(), "1"), now, 60);
        let key = model::Key::Block(block.cidr);
        let mut books = ipam::Books::default();
        books.add(&key, ipam::Answer::Block(Stored::new(block, "1")));
        ipam::recover(&books);
    }
}

/// Checklist: FIFO reuse. A /30 hands out its four addresses in turn before it repeats the first.
#[test]
fn addresses_are_reused_in_the_order_of_their_release() {
    let mut block = Block::new("10.0.0.0/30".parse().unwrap(), None, 1);
    let mut given = Vec::new();
    for round in 0..8u8 {
        given.extend(write_taking(&mut block, &owner(round), 1, &nothing_reserved()));
        write_releasing(&mut block, owner(round).handle.as_str(), None);
    }
    assert_eq!(given[..4].iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(given[..4], given[4..]);
}

/// Checklist: free and reserved counts, empty, in-use, lookup by handle (0, 1, many).
#[test]
fn counts_and_lookups() {
    let mut block = block();
    let reserved = Reservations::new(&["10.0.0.64/31".parse().unwrap(), "10.0.0.65/32".parse().unwrap()]);
    assert_eq!(
        (free_count(&block, &reserved), free_count(&block, &nothing_reserved()), is_empty(&block)),
        (6, 8, true)
    );
    write_taking(&mut block, &owner(1), 1, &reserved);
    write_taking(&mut block, &owner(2), 3, &reserved);
    assert_eq!((free_count(&block, &reserved), is_empty(&block)), (2, false));
    let held = |handle: &str| held_by(&block, &handle.into()).count();
    assert_eq!((held("net.0"), held("net.1"), held("net.2")), (0, 1, 3));
    // Reserved ones stay free, in their place.
    assert_eq!(block.unallocated[..2], [0, 1]);
    assert_eq!(write_taking(&mut block, &owner(3), 9, &reserved).len(), 2);
    assert_eq!(write_taking(&mut block, &owner(3), 9, &reserved), [] as [IpAddr; 0]);
}

/// Checklist: a block with nothing but a Windows node's own addresses is empty.
#[test]
fn addresses_that_windows_keeps_do_not_make_a_block_used() {
    let mut block = block();
    let windows = Owner { handle: HandleId::WINDOWS_RESERVED.into(), attributes: BTreeMap::new() };
    take(&mut block, &windows, 3, &nothing_reserved());
    assert!(is_empty(&block) && ipam::is_of_windows(&block));
    take(&mut block, &owner(1), 1, &nothing_reserved());
    assert!(!is_empty(&block));
}

/// Checklist: release one, one of a shared attribute, all of it, none.
#[test]
fn attributes_go_with_their_last_address() {
    let mut block = block();
    take(&mut block, &owner(1), 2, &nothing_reserved());
    take(&mut block, &owner(2), 1, &nothing_reserved());
    assert_eq!(block.attributes.len(), 2);
    give_back(&mut block, &[0], None);
    assert_eq!((block.attributes.len(), held_by(&block, &"net.1".into()).count()), (2, 1));
    give_back(&mut block, &[1], None);
    assert_eq!((block.attributes.len(), held_by(&block, &"net.2".into()).count()), (1, 1));
    assert_eq!(block.sequence_number_for_allocation.keys().collect::<Vec<_>>(), ["2"]);
    give_back(&mut block, &[], None);
    assert_eq!(block.contradictions(), [] as [String; 0]);
}

#[test]
fn a_given_address_is_taken_once() {
    let mut block = block();
    assert!(take_address(&mut block, &owner(1), address(70)));
    assert!(!take_address(&mut block, &owner(2), address(70)));
    assert!(
        !take_address(&mut block, &owner(2), address(63))
            && !take_address(&mut block, &owner(2), address(72))
    );
    assert_eq!(held_by(&block, &"net.1".into()).map(|(ordinal, _)| ordinal).collect::<Vec<_>>(), [6]);
}

fn start() -> Timestamp {
    "2026-08-22T06:33:20Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_second(start().as_second() + seconds).unwrap()
}

/// Checklist: only old `releasedAt` entries are freed.
#[test]
fn a_released_address_cools_down_before_it_is_given_again() {
    let mut block = block();
    let taken = take(&mut block, &owner(1), 1, &nothing_reserved());
    assert_eq!(write_releasing(&mut block, "net.1", Some(start())), taken);
    assert_eq!(block.contradictions(), [] as [String; 0]);
    assert_eq!(write_releasing(&mut block, "net.1", Some(start())), [] as [IpAddr; 0]);
    assert!(!is_empty(&block), "a block with a cooling address is not empty");
    let given = take(&mut block, &owner(2), 9, &nothing_reserved());
    assert_eq!((given.len(), given.contains(&taken[0])), (7, false));
    assert!(!take_address(&mut block, &owner(2), taken[0]));
    assert!(!free_cooled(&mut block, after(59), 60));
    assert!(free_cooled(&mut block, after(60), 60));
    assert_eq!(take(&mut block, &owner(2), 9, &nothing_reserved()), taken);
    assert_eq!(block.contradictions(), [] as [String; 0]);
}

/// A clock that is put back neither frees an address early nor keeps it for ever.
#[test]
fn a_clock_that_jumps_backwards_starts_the_delay_anew() {
    let mut block = block();
    let taken = take(&mut block, &owner(1), 1, &nothing_reserved());
    let next_year = after(365 * 86_400);
    write_releasing(&mut block, "net.1", Some(next_year));
    // The clock is right again. The release must have been by now, so the delay counts from now on.
    let stored = Stored::new(block, "1");
    let steps = settle_cooldown(&stored, start(), 60).expect("the time is corrected");
    let ipam::Step::Update { value, .. } = &steps.atomic()[0] else { panic!("{steps:?}") };
    let mut block = Block::decode(&stored.value.cidr, value).unwrap();
    assert_eq!(block.sequence_number, stored.value.sequence_number + 1);
    assert_eq!(settle_cooldown(&Stored::new(block.clone(), "2"), after(1), 60), None, "written once");
    assert!(!free_cooled(&mut block, after(59), 60));
    assert!(free_cooled(&mut block, after(60), 60));
    assert!(take_address(&mut block, &owner(2), taken[0]));
}

#[test]
fn without_a_delay_nothing_cools_down_any_longer() {
    let mut block = block();
    take(&mut block, &owner(1), 1, &nothing_reserved());
    write_releasing(&mut block, "net.1", Some(after(1_000_000)));
    assert!(free_cooled(&mut block, start(), 0));
    assert!(is_empty(&block));
}

/// Checklist: normalisation. No write if nothing has changed; an ownerless block goes with its last address.
#[test]
fn the_delay_is_written_down_only_when_it_is_due() {
    let mut block = block();
    take(&mut block, &owner(1), 1, &nothing_reserved());
    assert_eq!(settle_cooldown(&Stored::new(block.clone(), "1"), after(600), 60), None);
    write_releasing(&mut block, "net.1", Some(start()));
    assert_eq!(settle_cooldown(&Stored::new(block.clone(), "1"), after(30), 60), None);
    let steps = settle_cooldown(&Stored::new(block, "7"), after(60), 60).unwrap();
    assert!(
        matches!(&steps.atomic()[0], ipam::Step::Delete { revision, .. } if revision == "7"),
        "{steps:?}"
    );
}
