//! Searches through pools in which nearly all blocks exist, where every look is a request.

use std::collections::BTreeMap;

use ipam::{AssignError, Assignment, BlockOrder, Decision, Next, Prospect, Reservations, Want};
use model::ipam::Block;
use model::{AffinityOwner, Cidr, IpVersion, Key};

use crate::common::{World, owner};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

/// As it was driven: how many blocks were looked at, and how often all were asked for.
#[derive(Debug, Default, PartialEq)]
struct Effort {
    looks: usize,
    surveys: usize,
}

/// What is remembered from one search to the next: the record's revision and what it is good for.
type Memory = BTreeMap<Cidr, (String, Prospect)>;

/// A pool of 256 blocks, all of them another node's and without a free address.
fn crowded() -> World {
    let mut world = World::with_pool("10.0.0.0/22", 30);
    for block in BlockOrder::new(cidr("10.0.0.0/22"), 30, "node-b", &Reservations::default()) {
        fill(&mut world, block, 4);
    }
    world
}

/// Another node's block, with so many addresses in use.
fn fill(world: &mut World, network: Cidr, used: usize) {
    let mut block = Block::new(network, Some(&AffinityOwner::Host("node-b".to_owned())), 1);
    assert_eq!(ipam::take(&mut block, &owner("b.1"), used, &Reservations::default()).len(), used);
    world.store.put(block.key(), block.encode());
}

/// Drives a search for one address as an agent does, which remembers.
fn search(world: &World, memory: &mut Memory) -> (Result<Cidr, AssignError>, Effort) {
    let mut request = world.request("node-a", vec![Want::one_each(owner("a.1"), None, &[IpVersion::V4])]);
    (request.reads_one_by_one, request.surveys_first) = (true, !memory.is_empty());
    let mut assignment = Assignment::new(request, world.surroundings("node-a")).unwrap();
    let mut effort = Effort::default();
    loop {
        match assignment.poll().unwrap() {
            Next::Look(keys) => {
                effort.looks += keys.len();
                keys.iter().for_each(|key| assignment.show(key, world.store.answer(key)));
            }
            Next::Survey(mut survey) => {
                effort.surveys += 1;
                for block in world.blocks() {
                    let (_, revision) = world.store.get(&Key::Block(block)).unwrap();
                    match memory.get(&block) {
                        Some((known, prospect)) if *known == revision => survey.recall(block, *prospect),
                        Some(_) => survey.exists(block),
                        None => {
                            let prospect = survey.read(block, world.store.answer(&Key::Block(block)));
                            memory.extend(prospect.map(|prospect| (block, (revision.clone(), prospect))));
                        }
                    }
                }
                assignment.show_survey(*survey);
            }
            Next::Done(assigned) => {
                let granted = assigned.single().map(|(granted, _)| granted[0].block);
                return (granted, effort);
            }
        }
    }
}

#[test]
fn a_full_pool_costs_few_looks_and_then_none() {
    let (world, mut memory) = (crowded(), Memory::new());
    let (full, effort) = search(&world, &mut memory);
    assert!(matches!(full, Err(AssignError::Exhausted { .. })), "{full:?}");
    assert_eq!(effort, Effort { looks: 21, surveys: 1 });
    let (full, effort) = search(&world, &mut memory);
    assert!(matches!(full, Err(AssignError::Exhausted { .. })), "{full:?}");
    assert_eq!(effort, Effort { looks: 0, surveys: 1 });
}

#[test]
fn what_becomes_free_in_a_full_pool_is_found_at_once() {
    let (mut world, mut memory) = (crowded(), Memory::new());
    search(&world, &mut memory).0.unwrap_err();
    let some = cidr("10.0.2.128/30");

    fill(&mut world, some, 3);
    let (found, effort) = search(&world, &mut memory);
    assert_eq!((found.unwrap(), effort), (some, Effort { looks: 1, surveys: 1 }), "an address");

    fill(&mut world, some, 0);
    let (found, effort) = search(&world, &mut memory);
    assert_eq!(
        (found.unwrap(), effort),
        (some, Effort { looks: 2, surveys: 1 }),
        "an empty block, and its affinity"
    );

    world.store.delete(&Key::Block(some));
    let (found, effort) = search(&world, &mut memory);
    assert_eq!((found.unwrap(), effort), (some, Effort { looks: 0, surveys: 1 }), "no block at all");
}

/// An address that cools down is free after a while, though nobody writes its block.
#[test]
fn what_cools_down_is_not_remembered_as_taken() {
    let (mut world, mut memory) = (crowded(), Memory::new());
    let some = cidr("10.0.2.128/30");
    world.configure(|config| config.ip_cooldown_seconds = 60);
    let (value, _) = world.store.get(&Key::Block(some)).unwrap();
    let mut block = Block::decode(&some, value).unwrap();
    ipam::give_back(&mut block, &[2], Some(world.now));
    world.store.put(block.key(), block.encode());
    let (full, _) = search(&world, &mut memory);
    assert!(matches!(full, Err(AssignError::Exhausted { .. })), "{full:?}");
    let (full, _) = search(&world, &mut memory);
    assert!(matches!(full, Err(AssignError::Exhausted { .. })), "{full:?}");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    assert_eq!(search(&world, &mut memory).0.unwrap(), some);
}

/// Most of a pool of IPv6, or of a large one of IPv4, has no blocks: borrowing must not ask for each that could be there.
#[test]
fn a_node_at_its_limit_asks_only_for_blocks_that_exist() {
    let mut world = World::with_pool("10.0.0.0/8", 30);
    world.configure(|config| config.max_blocks_per_host = 1);
    let own = world.assign("node-a", "a.0").unwrap();
    world.assign_many("node-a", "a.0", 3);
    let other =
        BlockOrder::new(cidr("10.0.0.0/8"), 30, "node-a", &Reservations::default()).nth(5_000).unwrap();
    assert!(!other.contains(own));
    fill(&mut world, other, 2);
    let (found, effort) = search(&world, &mut Memory::new());
    assert_eq!(found.unwrap(), other);
    assert_eq!(effort, Effort { looks: 22, surveys: 1 }, "its own block, then 21 that could be there");
}
