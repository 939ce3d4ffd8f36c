//! Nodes that keep some addresses of every block for themselves.

use ipam::{AssignError, HostReserve};
use model::ipam::Block;
use model::{AffinityOwner, Cidr, HandleId, Key};
use serde_json::json;

use crate::common::{World, labels, owner, want};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn reserving(world: &World, host: &str, reserve: HostReserve, count: usize) -> ipam::Request {
    let mut request = world.request(host, vec![want("w.0", count, 0)]);
    request.host_reserve = Some(reserve);
    request
}

/// How many addresses a Windows node gets.
fn assign(world: &mut World, host: &str, count: usize) -> (usize, Option<AssignError>) {
    let mut assigned = world.plan(reserving(world, host, HostReserve::WINDOWS, count)).unwrap();
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    let grant = assigned.grants.remove(0);
    (grant.addresses.len(), grant.shortage)
}

/// Checklist: host-reserved addresses in a new /30: only the third address is free; auto-assign returns it.
#[test]
fn of_a_small_block_what_is_left_is_given() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    let assigned = world.plan(reserving(&world, "node-a", HostReserve { first: 2, last: 1 }, 2)).unwrap();
    world.commit(&assigned.steps).unwrap();
    let given: Vec<String> =
        assigned.grants[0].addresses.iter().map(|granted| granted.address.to_string()).collect();
    assert_eq!(given, ["10.0.0.2"]);
    world.assert_books_agree();
}

/// Checklist: 55 with Windows reserve as well (58 with the reservations alone); Windows suite: 240 of 256.
#[test]
fn the_reserve_adds_to_reservations() {
    let mut world = World::with_pool("10.0.0.0/26", 26);
    // Six addresses, one of which the node keeps anyway.
    world.reserved = ["10.0.0.4/30", "10.0.0.6/31", "10.0.0.10/32", "10.0.0.63/32"].map(cidr).to_vec();
    assert_eq!(world.clone().assign_many("node-a", "a.0", 100).0.len(), 58);
    assert_eq!(assign(&mut world, "node-a", 100).0, 55);
    let mut world = World::with_pool("10.0.0.0/24", 26);
    assert_eq!(assign(&mut world, "node-a", 256).0, 240);
}

/// Checklist: Windows suite: no borrowing by Windows; a block that is taken over gets its reserve.
#[test]
fn such_a_node_does_not_borrow() {
    let mut world = World::with_pool("10.0.0.0/29", 29);
    world.assign("linux", "l.0").unwrap();
    let (given, shortage) = assign(&mut world, "node-a", 1);
    assert!(given == 0 && matches!(shortage, Some(AssignError::Exhausted { .. })));
    world.release("l.0");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    assert_eq!(assign(&mut world, "node-a", 9).0, 4);
    let block = world.block(world.blocks()[0]).unwrap().value;
    assert!(ipam::is_of_windows(&block) && block.owner() == Some(AffinityOwner::Host("node-a".to_owned())));
}

/// An address that such a node names is not borrowed either.
#[test]
fn such_a_node_is_not_given_an_address_of_another() {
    let mut world = World::with_pool("10.0.0.0/29", 29);
    world.assign("linux", "l.0").unwrap();
    for (host_reserve, is_given) in [(Some(HostReserve::WINDOWS), false), (None, true)] {
        let request = ipam::AddressRequest {
            host: "node-a".to_owned(),
            owner: owner("w.0"),
            addresses: vec!["10.0.0.5".parse().unwrap()],
            purpose: None,
            node_labels: labels(&[]),
            blocks_max: None,
            handle_max: None,
            host_reserve,
        };
        let mut decision = ipam::AddressAssignment::new(request, world.surroundings("node-a"));
        match world.drive(&mut decision) {
            Ok(_) => assert!(is_given),
            Err(error) => {
                assert!(matches!(error, AssignError::BlockOfAnother { .. }) && !is_given, "{error}")
            }
        }
    }
}

/// Checklist: reserve too big → no pool; a requested pool with such blocks is an error.
#[test]
fn a_pool_with_too_small_blocks_is_none() {
    let world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 30}),
        json!({"cidr": "10.0.1.0/24", "blockSize": 29}),
    ]);
    let request = reserving(&world, "node-a", HostReserve::WINDOWS, 1);
    let assigned = world.plan(request.clone()).unwrap();
    assert!(cidr("10.0.1.0/24").contains_cidr(&assigned.grants[0].addresses[0].block));
    let asked = ipam::Request { pools_v4: vec!["pool-0".to_owned()], ..request };
    assert!(matches!(world.plan(asked), Err(AssignError::PoolUnknown(..))));
    let small = World::with_pool("10.0.0.0/24", 30);
    let none = small.plan(reserving(&small, "node-a", HostReserve::WINDOWS, 1));
    assert!(matches!(none, Err(AssignError::NoPoolServes { .. })), "{none:?}");
}

/// Checklist: Windows: no borrowing from its blocks.
#[test]
fn nothing_is_borrowed_from_windows() {
    let mut world = World::with_pool("10.0.0.0/29", 29);
    let mut block = Block::new(cidr("10.0.0.0/29"), Some(&AffinityOwner::Host("windows".to_owned())), 1);
    let windows = ipam::Owner { handle: HandleId::WINDOWS_RESERVED.into(), attributes: labels(&[]) };
    ipam::take(&mut block, &windows, 3, &ipam::Reservations::default());
    ipam::take(&mut block, &owner("w.0"), 1, &ipam::Reservations::default());
    world.store.put(block.key(), block.encode());
    world.put_affinity("windows", block.cidr, model::ipam::AffinityState::Confirmed);
    assert!(matches!(world.assign("node-a", "a.0"), Err(AssignError::Exhausted { .. })));
    world.store.put(Key::Handle("w.0".into()), br#"{"block":{"10.0.0.0/29":1}}"#.to_vec());
    world.release("w.0");
    // Empty and old it may be taken over, and then it is whole.
    assert_eq!(world.assign_many("node-a", "a.0", 9).0.len(), 8);
    world.assert_books_agree();
}

/// A node that may have no more blocks borrows, but not from Windows, whether that block is in use or not.
#[test]
fn nothing_is_borrowed_from_windows_at_the_block_limit() {
    for is_used in [true, false] {
        let mut world = World::with_pool("10.0.0.0/28", 29);
        assert_eq!(world.assign_many("node-a", "a.0", 8).0.len(), 8);
        assert_eq!(assign(&mut world, "windows", 1).0, 1);
        if !is_used {
            world.release("w.0");
        }
        world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
        let mut request = world.request("node-a", vec![want("a.1", 1, 0)]);
        request.blocks_max = Some(1);
        let grant = world.plan(request).unwrap().grants.remove(0);
        assert!(matches!(grant.shortage, Some(AssignError::BlockLimit { .. })), "{is_used}: {grant:?}");
    }
}
