//! Crash points: every prefix of every operation's steps is harmless, and recovery puts right what it leaves behind.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{AffinityRelease, Fault, ReleaseRule, Steps, recover, seen_twice};
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, HandleId, Key, TextMap};

use crate::common::{World, want};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn host(name: &str) -> AffinityOwner {
    AffinityOwner::Host(name.to_owned())
}

/// A small cluster on a store without transactions: node-a with a block in use, node-b with an empty one.
fn cluster() -> World {
    let mut world = World::with_pool("10.0.0.0/29", 30);
    world.is_atomic = false;
    world.assign("node-a", "a.0").unwrap();
    world.assign("node-b", "b.0").unwrap();
    world.release("b.0");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(3600)).unwrap();
    world
}

fn assign_steps(world: &World, node: &str, handle: &str, count: usize) -> Steps {
    world.plan(world.request(node, vec![want(handle, count, 0)])).unwrap().steps
}

fn release_block_steps(world: &World, node: &str, rule: ReleaseRule) -> Steps {
    world.plan_release_of_host(node, rule).remove(0).result.unwrap()
}

/// The operations, each with the addresses that may be held by a handle or not once it has been cut short.
fn operations() -> Vec<(&'static str, World, Steps)> {
    let mut operations = Vec::new();
    let world = cluster();
    operations.push(("assign from an own block", world.clone(), assign_steps(&world, "node-a", "a.1", 2)));
    let mut fresh = World::with_pool("10.0.0.0/28", 30);
    fresh.is_atomic = false;
    fresh.assign("node-a", "a.0").unwrap();
    operations.push(("claim two blocks and assign", fresh.clone(), assign_steps(&fresh, "node-a", "a.1", 9)));
    operations.push((
        "take a block over and assign",
        world.clone(),
        assign_steps(&world, "node-a", "a.1", 5),
    ));
    let mut borrowing = world.clone();
    borrowing.assign("node-b", "b.1").unwrap();
    operations.push(("borrow", borrowing.clone(), assign_steps(&borrowing, "node-a", "a.1", 5)));
    operations.push(("release by handle", borrowing.clone(), borrowing.plan_release("a.0").steps));
    let items = ["a.0", "b.1"].into_iter().flat_map(|handle| borrowing.held_by(handle));
    let items = items.map(|address| ipam::ReleaseItem { address, handle: None, sequence_number: None });
    let released = borrowing.drive(&mut ipam::AddressRelease::new(items, Vec::new(), None, 128)).unwrap();
    operations.push(("release by address", borrowing, released.steps));
    let empty_only = ReleaseRule { must_be_empty: true, sequence_number: None };
    operations.push((
        "give up an empty block",
        world.clone(),
        release_block_steps(&world, "node-b", empty_only),
    ));
    let in_use = release_block_steps(&world, "node-a", ReleaseRule::default());
    operations.push(("give up a block in use", world.clone(), in_use));
    let mut claim =
        ipam::BlockClaim::new(cidr("10.0.0.8/30"), host("node-c"), &fresh.pools(), fresh.now).unwrap();
    let ipam::BlockClaimed::Claimed { steps, .. } = fresh.drive(&mut claim).unwrap().remove(0) else {
        panic!()
    };
    operations.push(("claim a block", fresh, steps));
    let mut unfinished = world.clone();
    unfinished.put_affinity("node-a", unfinished.affinities("node-a")[0].0, AffinityState::PendingDeletion);
    operations.push((
        "assign from an unconfirmed block",
        unfinished.clone(),
        assign_steps(&unfinished, "node-a", "a.1", 1),
    ));
    let mut ownerless = world;
    ownerless.commit(&release_block_steps(&ownerless, "node-a", ReleaseRule::default())).unwrap();
    let steps = ownerless.plan_release("a.0").steps;
    operations.push(("release the last address of an ownerless block", ownerless, steps));
    operations
}

fn holders(world: &World) -> BTreeMap<IpAddr, HandleId> {
    let mut holders = BTreeMap::new();
    for cidr in world.blocks() {
        let block = world.block(cidr).unwrap().value;
        for ordinal in 0..block.capacity() {
            if let Some(handle) = block.attribute(ordinal).and_then(|attribute| attribute.handle()) {
                assert_eq!(
                    holders.insert(block.address(ordinal).unwrap(), handle.to_owned()),
                    None,
                    "two holders"
                );
            }
        }
    }
    holders
}

/// Whatever was held and was not to be released is still held, at every crash point; recovery changes no address at all,
/// leaves books that agree, and has nothing left to do. What was interrupted can be done again, and so can its opposite.
#[test]
fn every_crash_point_is_harmless_and_put_right() {
    let mut points = 0;
    for (name, before, steps) in operations() {
        let mut done = before.clone();
        done.commit(&steps).unwrap();
        let (at_start, at_end) = (holders(&before), holders(&done));
        for count in 0..=steps.in_order().len() {
            points += 1;
            let mut world = before.clone();
            world.store.apply_prefix(&steps, count).unwrap();
            let found = holders(&world);
            for (address, handle) in at_start.iter().filter(|(address, _)| at_end.contains_key(*address)) {
                assert_eq!(found.get(address), Some(handle), "{name}, after {count} steps");
            }
            assert!(found.iter().all(|(address, handle)| {
                at_start.get(address) == Some(handle) || at_end.get(address) == Some(handle)
            }));
            let passes = world.recover();
            assert!(passes <= 2, "{name}, after {count} steps: {passes} passes");
            assert_eq!(holders(&world), found, "{name}, after {count} steps: recovery changes no address");
            world.assert_books_agree();
            for handle in ["a.0", "a.1", "b.1"] {
                let (held, mut released) = (world.held_by(handle), world.release(handle));
                released.sort_unstable();
                assert_eq!(released, held, "{name}, after {count} steps");
            }
            world.assert_books_agree();
            for node in ["node-a", "node-b", "node-c"] {
                for released in world.plan_release_of_host(node, ReleaseRule::default()) {
                    world.commit(&released.result.unwrap()).unwrap();
                }
            }
            let left: Vec<&Key> =
                world.store.keys().filter(|key| !matches!(key, Key::Resource { .. })).collect();
            assert!(left.is_empty(), "{name}, after {count} steps: {left:?}");
        }
    }
    assert!(points > 50, "{points} crash points");
}

/// The folded and the ordered form end in the same records.
#[test]
fn both_kinds_of_store_end_the_same() {
    for (name, before, steps) in operations() {
        let (mut atomic, mut ordered) = (before.clone(), before);
        atomic.store.commit(&steps).unwrap();
        ordered.store.apply_prefix(&steps, usize::MAX).unwrap();
        let values = |world: &World| -> BTreeMap<Key, Vec<u8>> {
            world.store.keys().map(|key| (key.clone(), world.store.get(key).unwrap().0.to_vec())).collect()
        };
        assert_eq!(values(&atomic), values(&ordered), "{name}");
    }
}

type Damage = fn(&mut World);

fn cut_handle(world: &mut World, id: &str, change: impl Fn(&mut TextMap<i64>)) {
    let mut handle = world.handle(id).unwrap().value;
    change(&mut handle.block);
    world.store.put(Key::Handle(id.into()), handle.encode());
}

fn faults(world: &World) -> Vec<Fault> {
    recover(&world.books()).into_iter().map(|repair| repair.fault).collect()
}

#[test]
fn each_kind_of_damage_is_repaired() {
    const IN_A: &str = "10.0.0.4/30";
    let damages: [(&str, Damage); 12] = [
        ("HandleWrong", |world| cut_handle(world, "a.0", |blocks| *blocks.values_mut().next().unwrap() = 3)),
        ("HandleWrong", |world| cut_handle(world, "a.0", |blocks| blocks.clear())),
        ("HandleWrong", |world| {
            cut_handle(world, "a.0", |blocks| {
                blocks.insert("10.0.0.12/30", 1);
            })
        }),
        ("HandleWrong", |world| {
            cut_handle(world, "a.0", |blocks| {
                blocks.insert("nonsense", 1);
            })
        }),
        ("HandleWrong", |world| world.store.delete(&Key::Handle("a.0".into()))),
        ("HandleWrong", |world| {
            world.store.put(Key::Handle("z.0".into()), br#"{"block":{"10.0.0.4/30":1}}"#.to_vec())
        }),
        ("AffinityUnfinished", |world| world.put_affinity("node-a", cidr(IN_A), AffinityState::Pending)),
        ("AffinityUnfinished", |world| {
            world.put_affinity("node-a", cidr(IN_A), AffinityState::PendingDeletion)
        }),
        ("AffinityStale", |world| world.put_affinity("node-c", cidr(IN_A), AffinityState::Confirmed)),
        ("AffinityStale", |world| {
            world.put_affinity("node-c", cidr("10.0.0.12/30"), AffinityState::PendingDeletion)
        }),
        ("AffinityMissing", |world| {
            world.store.delete(&Key::Affinity { owner: host("node-a"), block: cidr(IN_A) })
        }),
        ("BlockUnused", |world| {
            world
                .store
                .put(Key::Block(cidr("10.0.0.12/30")), Block::new(cidr("10.0.0.12/30"), None, 1).encode())
        }),
    ];
    for (position, (expected, damage)) in damages.into_iter().enumerate() {
        for is_atomic in [true, false] {
            let mut world = World::with_pool("10.0.0.4/30", 30);
            world.is_atomic = is_atomic;
            world.assign("node-a", "a.0").unwrap();
            let held = holders(&world);
            assert_eq!(faults(&world), []);
            damage(&mut world);
            let found = faults(&world);
            assert!(
                found.iter().any(|fault| format!("{fault:?}").starts_with(expected)),
                "{position}: {found:?}"
            );
            assert_eq!(world.recover(), 1, "{position}: one pass");
            assert_eq!(holders(&world), held);
            world.assert_books_agree();
        }
    }
}

/// A block whose claim came no further than the block itself goes, if nobody has used it meanwhile.
#[test]
fn an_empty_block_without_affinity_goes() {
    for is_atomic in [true, false] {
        let mut world = World::with_pool("10.0.0.0/28", 30);
        world.is_atomic = is_atomic;
        let block = Block::new(cidr("10.0.0.0/30"), Some(&host("node-a")), 1);
        world.store.put(block.key(), block.encode());
        assert_eq!(faults(&world), [Fault::AffinityMissing { owner: host("node-a"), block: block.cidr }]);
        world.recover();
        assert!(world.blocks().is_empty() && world.affinities("node-a").is_empty());
    }
}

#[test]
fn tombstones_are_buried() {
    let mut world = cluster();
    let block = world.affinities("node-b")[0].0;
    let going = Block { deleted: true, ..world.block(block).unwrap().value };
    world.store.put(going.key(), going.encode());
    world.store.put(Key::Handle("z.0".into()), br#"{"block":{},"deleted":true}"#.to_vec());
    let affinity = Key::Affinity { owner: host("node-b"), block };
    world.store.put(affinity.clone(), br#"{"state":"confirmed","deleted":true}"#.to_vec());
    let found = faults(&world);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&Fault::Tombstone(affinity)));
    assert_eq!(world.recover(), 1);
    world.assert_books_agree();
}

/// Nothing is decided about a block that contradicts itself, nor about what speaks of it.
#[test]
fn corrupt_blocks_and_what_speaks_of_them_are_left_alone() {
    let mut world = cluster();
    let block = world.affinities("node-a")[0].0;
    for broken in [
        Block { unallocated: vec![1, 1], ..world.block(block).unwrap().value }.encode(),
        b"{\"cidr\": 7}".to_vec(),
    ] {
        world.store.put(Key::Block(block), broken);
        assert_eq!(faults(&world), []);
    }
}

/// Two looks: what has moved in between is in someone's hands.
#[test]
fn only_what_was_seen_twice_is_repaired() {
    let mut world = cluster();
    let steps = assign_steps(&world, "node-a", "a.1", 1);
    let writes = steps.in_order().len();
    world.store.apply_prefix(&steps, writes - 1).unwrap();
    let first = recover(&world.books());
    assert_eq!(first.len(), 1);
    assert_eq!(seen_twice(&first, recover(&world.books())), first);
    // Someone else's write of the block in between: it is looked at again, not repaired.
    world.assign("node-a", "a.2").unwrap();
    assert_eq!(seen_twice(&first, recover(&world.books())), []);
}

/// An assigner that is halfway when recovery comes: it has to look again, and then succeeds. Nothing is lost.
#[test]
fn recovery_and_an_assignment_in_progress() {
    for kind in ["own", "claim", "take over"] {
        let (mut start, count) = match kind {
            "own" => (cluster(), 1),
            "claim" => (World::with_pool("10.0.0.0/28", 30), 1),
            _ => (cluster(), 5),
        };
        start.is_atomic = false;
        let steps = assign_steps(&start, "node-a", "a.1", count);
        for halfway in 0..steps.in_order().len() {
            let mut world = start.clone();
            let mut own = BTreeMap::new();
            for ordered in &steps.in_order()[..halfway] {
                world.store.apply(ordered, &mut own).unwrap();
            }
            let held = world.held_by("a.1");
            world.recover();
            assert_eq!(world.held_by("a.1"), held, "recovery frees nothing");
            let rest = steps.in_order()[halfway..]
                .iter()
                .try_for_each(|ordered| world.store.apply(ordered, &mut own));
            if rest.is_err() {
                // As a driver does: what was taken on the way goes back, then from the start.
                world.release("a.1");
                assert_eq!(world.assign_many("node-a", "a.1", count).0.len(), count);
            }
            assert_eq!(world.held_by("a.1").len(), count, "{kind}, {halfway}");
            world.recover();
            world.assert_books_agree();
            assert_eq!(world.release("a.1").len(), count);
        }
    }
}

#[test]
fn a_release_of_a_host_ends_even_after_a_crash() {
    let mut world = cluster();
    let owner = host("node-a");
    let block = world.affinities("node-a")[0].0;
    let steps = release_block_steps(&world, "node-a", ReleaseRule::default());
    for count in 1..steps.in_order().len() {
        let mut world = world.clone();
        world.store.apply_prefix(&steps, count).unwrap();
        let mut again = AffinityRelease::new(vec![(owner.clone(), block)], ReleaseRule::default());
        let rest = world.drive(&mut again).unwrap().remove(0).result.unwrap();
        world.commit(&rest).unwrap();
        world.assert_books_agree();
        assert!(world.affinities("node-a").is_empty());
    }
    world.commit(&steps).unwrap();
    assert!(world.affinities("node-a").is_empty());
}

/// A release that was begun is finished if the block is empty, and taken back if it is not.
#[test]
fn a_begun_release_is_finished_or_taken_back() {
    for is_atomic in [true, false] {
        let mut world = cluster();
        world.is_atomic = is_atomic;
        let (used, empty) = (world.affinities("node-a")[0].0, world.affinities("node-b")[0].0);
        world.put_affinity("node-a", used, AffinityState::PendingDeletion);
        world.put_affinity("node-b", empty, AffinityState::PendingDeletion);
        let number = world.block(used).unwrap().value.sequence_number;
        assert_eq!(world.recover(), 1);
        assert_eq!((world.blocks(), world.affinities("node-b").len()), (vec![used], 0));
        assert_eq!(world.affinity("node-a", used).unwrap().state, AffinityState::Confirmed);
        // Where nothing holds the two together, the block is written anew, and that counts as a write.
        let writes = u64::from(!is_atomic);
        assert_eq!(world.block(used).unwrap().value.sequence_number, number + writes);
    }
}
