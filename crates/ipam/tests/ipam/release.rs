//! Giving addresses back.

use std::net::IpAddr;

use ipam::{AddressLookup, AddressRelease, ReleaseItem, Released, Step, Why};
use model::{Cidr, HandleId, Key};
use serde_json::json;

use crate::common::World;

fn item(address: IpAddr) -> ReleaseItem {
    ReleaseItem { address, handle: None, sequence_number: None }
}

fn plan(world: &World, items: Vec<ReleaseItem>) -> Released {
    let pools = world.pools().into_iter().map(|pool| pool.value).collect();
    world.drive(&mut AddressRelease::new(items, pools, world.cooldown_from(), 128)).unwrap()
}

fn release(world: &mut World, items: Vec<ReleaseItem>) -> Released {
    let released = plan(world, items);
    world.commit(&released.steps).expect("nobody else writes");
    released
}

fn number_of(world: &World, address: IpAddr) -> u64 {
    let found = lookup(world, address).expect("allocated");
    found.sequence_number
}

fn lookup(world: &World, address: IpAddr) -> Option<ipam::Allocation> {
    let pools = world.pools().into_iter().map(|pool| pool.value).collect();
    world.drive(&mut AddressLookup::new(address, pools)).unwrap()
}

/// Checklist: the release table: base, valid number, wrong number, wrong handle.
#[test]
fn handle_and_number_must_match_if_they_are_given() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let address = world.assign("node-a", "a.0").unwrap();
    let number = number_of(&world, address);
    let with = |handle: Option<&str>, sequence_number| ReleaseItem {
        address,
        handle: handle.map(HandleId::from),
        sequence_number,
    };
    let cases = [
        (with(Some("a.1"), None), Some(Why::OtherHandle(Some("a.0".into())))),
        (with(Some("a.1"), Some(number)), Some(Why::OtherHandle(Some("a.0".into())))),
        (with(None, Some(number - 1)), Some(Why::OtherNumber(number))),
        (with(Some("a.0"), Some(number + 1)), Some(Why::OtherNumber(number))),
        (with(None, None), None),
        (with(Some("a.0"), None), None),
        (with(None, Some(number)), None),
        (with(Some("a.0"), Some(number)), None),
    ];
    for (item, refusal) in cases {
        let mut world = world.clone();
        let released = release(&mut world, vec![item.clone()]);
        let why: Vec<Why> = released.unreleased.into_iter().map(|unreleased| unreleased.why).collect();
        assert_eq!(why, Vec::from_iter(refusal.clone()), "{item:?}");
        assert_eq!(world.held_by("a.0").is_empty(), refusal.is_none());
        assert_eq!(released.steps.is_empty(), refusal.is_some());
        world.assert_books_agree();
    }
}

/// Checklist: address in no pool and unallocated address are reported; assign and release; 66 addresses in 2 blocks.
#[test]
fn what_is_not_allocated_is_reported() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let elsewhere: IpAddr = "192.168.0.1".parse().unwrap();
    let free: IpAddr = "10.0.0.7".parse().unwrap();
    let released = release(&mut world, vec![item(elsewhere), item(free)]);
    assert!(released.unreleased.iter().all(|unreleased| unreleased.why == Why::NotAllocated));
    assert_eq!(released.unreleased.len(), 2);
    let (many, _) = world.assign_many("node-a", "a.0", 66);
    assert_eq!((many.len(), world.blocks().len()), (66, 2));
    let released = release(&mut world, many.iter().map(|address| item(*address)).collect());
    assert_eq!((released.addresses.len(), released.unreleased.len()), (66, 0));
    assert_eq!(world.handle("a.0"), None);
    world.assert_books_agree();
    let again = release(&mut world, vec![item(many[0])]);
    assert_eq!(again.unreleased[0].to_string(), format!("{}: not allocated", many[0]));
}

/// §7 #12 and the checklist's duplicates: a stale entry does not hold up the others, and nothing is freed twice.
#[test]
fn each_entry_stands_for_itself() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let (many, _) = world.assign_many("node-a", "a.0", 3);
    let stale = ReleaseItem { sequence_number: Some(1), ..item(many[0]) };
    let named = ReleaseItem { handle: Some("a.0".into()), ..item(many[1]) };
    let released =
        release(&mut world, vec![stale.clone(), item(many[1]), named, item(many[1]), item(many[2])]);
    assert_eq!(released.addresses, many[1..]);
    assert_eq!(released.unreleased.iter().map(|one| &one.item).collect::<Vec<_>>(), [&stale]);
    assert_eq!(world.handle("a.0").unwrap().value.block.values().sum::<i64>(), 1);
    world.assert_books_agree();
}

/// Checklist: the same address and handle released and assigned again: the old number fails, the new one works, and
/// numbers advance by exactly one per write (ten rounds); the same with the block gone in between.
#[test]
fn an_old_number_does_not_free_a_new_allocation() {
    for block_goes in [false, true] {
        let mut world = World::with_pool("10.0.0.1/32", 32);
        let address = world.assign("node-a", "a.0").unwrap();
        let block = world.blocks()[0];
        for _ in 0..10 {
            let old = number_of(&world, address);
            let before = world.block(block).unwrap().value.sequence_number;
            assert_eq!(old + 1, before);
            let with =
                |number| ReleaseItem { sequence_number: Some(number), handle: Some("a.0".into()), address };
            assert_eq!(release(&mut world, vec![with(old)]).addresses, [address]);
            assert_eq!(world.block(block).unwrap().value.sequence_number, before + 1);
            if block_goes {
                for released in world.plan_release_of_host("node-a", ipam::ReleaseRule::default()) {
                    world.commit(&released.result.unwrap()).unwrap();
                }
                assert!(world.blocks().is_empty());
                world.now = world.now.checked_add(jiff::SignedDuration::from_millis(1)).unwrap();
            }
            assert_eq!(world.assign("node-a", "a.0").unwrap(), address);
            assert_eq!(
                release(&mut world, vec![with(old)]).unreleased[0].why,
                Why::OtherNumber(number_of(&world, address))
            );
            assert_eq!(world.held_by("a.0"), [address]);
        }
    }
}

/// Checklist: 100 addresses over 4 nodes, v4 and v6, several blocks, one pool disabled: all released in one call (and
/// here: in commits that each have room).
#[test]
fn many_addresses_of_many_nodes_are_released_at_once() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 28}),
        json!({"cidr": "fd00::/112", "blockSize": 122}),
    ]);
    let mut all = Vec::new();
    for number in 0..100 {
        let mut request = world.request(
            &format!("node-{}", number % 4),
            vec![crate::common::want(&format!("h.{number}"), 1, 1)],
        );
        request.changes_max = 128;
        let assigned = world.plan(request).unwrap();
        world.commit(&assigned.steps).unwrap();
        all.extend(assigned.grants[0].addresses.iter().map(|granted| item(granted.address)));
    }
    world.put_pool("pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 28, "disabled": true}));
    assert_eq!(all.len(), 200);
    let mut commits = 0;
    while !all.is_empty() {
        let released = release(&mut world, all);
        assert!(released.steps.changes() <= 128 && released.unreleased.is_empty());
        all = released.later;
        commits += 1;
    }
    assert!(commits <= 3, "{commits} commits");
    assert!(!world.store.keys().any(|key| matches!(key, Key::Handle(_))));
    world.assert_books_agree();
}

/// §7 #21: an address in a disabled pool, in a deleted one or in a block of another size is found all the same.
#[test]
fn whose_an_address_is_does_not_depend_on_its_pool() {
    let mut world = World::with_pool("10.0.0.0/24", 28);
    let address = world.assign("node-a", "a.0").unwrap();
    let found = lookup(&world, address).unwrap();
    assert_eq!((found.attribute.handle(), found.block.prefix_len()), (Some(&"a.0".into()), 28));
    world.put_pool("pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 26, "disabled": true}));
    assert_eq!(lookup(&world, address).as_ref(), Some(&found));
    world.delete_pool("pool-0");
    assert_eq!(lookup(&world, address), Some(found));
    assert_eq!(lookup(&world, "10.0.0.200".parse().unwrap()), None);
    assert_eq!(lookup(&world, "fd00::1".parse().unwrap()), None);
    assert_eq!(release(&mut world, vec![item(address)]).addresses, [address]);
    world.assert_books_agree();
}

/// Checklist: query and release by handle; borrowed addresses released by handle.
#[test]
fn a_handle_gives_back_everything_it_has_everywhere() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    assert_eq!(world.assign_many("node-a", "a.0", 9).0.len(), 9);
    world.assign_many("node-b", "b.0", 4);
    assert_eq!(world.assign_many("node-b", "b.0", 3).0.len(), 3, "borrowed");
    assert_eq!((world.release("b.0").len(), world.release("a.0").len()), (7, 9));
    assert_eq!(world.release("a.0"), [] as [IpAddr; 0], "what is gone is done");
    assert!(!world.store.keys().any(|key| matches!(key, Key::Handle(_))));
    world.assert_books_agree();
}

/// Checklist: release by handle: none, one, sequence mismatch skipped, several attributes, one attribute.
#[test]
fn a_release_by_handle_can_mean_some_of_its_addresses() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let first = world.assign("node-a", "a.0").unwrap();
    let old = number_of(&world, first);
    // With other attributes, and later.
    let other = crate::common::owner("a.0").with("interface", "net1");
    let wants = vec![ipam::Want::one_each(other, None, &[model::IpVersion::V4])];
    let assigned = world.plan(world.request("node-a", wants)).unwrap();
    world.commit(&assigned.steps).unwrap();
    let second = assigned.grants[0].addresses[0].address;
    let release = |world: &World, is_meant: fn(u64, u64) -> bool| {
        let mut decision = ipam::HandleRelease::new("a.0", |_, _, number| is_meant(number, old), None);
        world.drive(&mut decision).unwrap()
    };
    assert_eq!(release(&world, |_, _| false), Released::default());
    let mut one = world.clone();
    let released = release(&one, |number, old| number == old);
    assert_eq!(released.addresses, [first]);
    one.commit(&released.steps).unwrap();
    assert_eq!(one.held_by("a.0"), [second]);
    one.assert_books_agree();
    let released = release(&world, |_, _| true);
    assert_eq!(released.addresses, [first, second]);
    world.commit(&released.steps).unwrap();
    assert_eq!(world.handle("a.0"), None);
    world.assert_books_agree();
}

/// §7 #5 and #9 of the algorithm: counts are counted, not added up; entries without addresses go.
#[test]
fn a_release_puts_the_handle_right() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.assign("node-a", "a.0").unwrap();
    world.assign("node-b", "b.0").unwrap();
    let mut wrong = world.handle("a.0").unwrap().value;
    let gone: Cidr = "10.0.0.8/29".parse().unwrap();
    wrong.block.insert(gone.to_string(), 3);
    wrong.block.insert(world.handle("b.0").unwrap().value.blocks().next().unwrap().to_string(), 2);
    wrong.block.insert("not a network", 1);
    wrong.block.values_mut().for_each(|count| *count += 5);
    world.store.put(Key::Handle("a.0".into()), wrong.encode());
    for is_atomic in [true, false] {
        let mut world = world.clone();
        world.is_atomic = is_atomic;
        assert_eq!(world.release("a.0").len(), 1);
        assert_eq!(world.handle("a.0"), None);
        world.assert_books_agree();
    }
}

/// §7 #7: a release that comes between an assigner's handle and its block. Where records are written one by one, the
/// block is written anew, so that the assigner cannot succeed behind the release's back.
#[test]
fn a_release_stops_an_assignment_that_is_halfway() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.is_atomic = false;
    world.assign("node-a", "a.0").unwrap();
    let assigned = world.plan(world.request("node-a", vec![crate::common::want("a.1", 1, 0)])).unwrap();
    let steps = assigned.steps;
    let mut own = std::collections::BTreeMap::new();
    let last = steps.in_order().len() - 1;
    assert!(matches!(steps.in_order()[last].key(), Key::Block(_)));
    for ordered in &steps.in_order()[..last] {
        world.store.apply(ordered, &mut own).unwrap();
    }
    assert_eq!(world.release("a.1"), [] as [IpAddr; 0]);
    assert!(world.store.apply(&steps.in_order()[last], &mut own).is_err());
    world.assert_books_agree();
}

/// With a reuse delay an address cools down on release; without, nothing is written about it.
#[test]
fn the_reuse_delay_is_only_written_where_it_is_configured() {
    let mut world = World::with_pool("10.0.0.0/31", 31);
    let first = world.assign("node-a", "a.0").unwrap();
    world.release("a.0");
    assert!(!format!("{:?}", world.block(world.blocks()[0])).contains("released_at: Some"));
    world.configure(|config| config.ip_cooldown_seconds = 30);
    let second = world.assign("node-a", "a.1").unwrap();
    assert_ne!(first, second, "least recently released first");
    release(&mut world, vec![item(second)]);
    let again = release(&mut world, vec![item(second)]);
    assert_eq!(again.unreleased[0].why, Why::NotAllocated);
    assert_eq!(world.assign("node-a", "a.2").unwrap(), first);
    assert!(world.assign("node-a", "a.3").is_err(), "cooling down");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(30)).unwrap();
    assert_eq!(world.assign("node-a", "a.3").unwrap(), second);
    world.assert_books_agree();
}

#[test]
fn a_release_changes_one_block_and_one_handle() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    world.assign("node-a", "a.0").unwrap();
    world.assign("node-a", "a.1").unwrap();
    let steps = world.plan_release("a.0").steps;
    assert!(matches!(&steps.atomic()[..], [Step::Update { .. }, Step::Delete { .. }]), "{steps:?}");
}
