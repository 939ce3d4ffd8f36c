//! Blocks that are claimed without a look, because someone has looked before.

use ipam::{Assigned, Assignment, Decision, Next, Surroundings, Want, claim_candidates};
use model::{Cidr, IpVersion, Key};
use serde_json::json;

use crate::common::{World, owner};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn request(world: &World) -> ipam::Request {
    world.request("node-a", vec![Want::one_each(owner("net.1"), None, &[IpVersion::V4])])
}

/// What is decided with these blocks said to be unclaimed, and which records were looked at for it.
fn decide(world: &World, unclaimed: &[&str]) -> (Assigned, Vec<Key>) {
    let unclaimed = unclaimed.iter().map(|text| cidr(text)).collect();
    let surroundings = Surroundings { unclaimed, ..world.surroundings("node-a") };
    let mut assignment = Assignment::new(request(world), surroundings).unwrap();
    let mut looked_at = Vec::new();
    loop {
        match assignment.poll().unwrap() {
            Next::Done(assigned) => return (assigned, looked_at),
            Next::Survey(_) => panic!("records are read together"),
            Next::Look(keys) => {
                for key in keys {
                    assignment.show(&key, world.store.answer(&key));
                    looked_at.push(key);
                }
            }
        }
    }
}

#[test]
fn what_is_said_to_be_unclaimed_is_claimed_without_a_look() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let (assigned, looked_at) = decide(&world, &["10.0.0.4/30", "10.0.0.8/30"]);
    assert_eq!((assigned.grants[0].addresses[0].block, looked_at), (cidr("10.0.0.4/30"), vec![]));
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    // The node has a block now: that comes first.
    let (assigned, looked_at) = decide(&world, &["10.0.0.8/30"]);
    assert_eq!(assigned.grants[0].addresses[0].block, cidr("10.0.0.4/30"));
    assert_eq!(looked_at, [Key::Block(cidr("10.0.0.4/30"))]);
}

#[test]
fn a_claim_of_what_someone_else_has_is_refused_by_the_store() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.assign("node-b", "net.9").unwrap();
    let theirs = world.blocks()[0];
    let (assigned, _) = decide(&world, &[&theirs.to_string()]);
    assert_eq!(assigned.grants[0].addresses[0].block, theirs);
    assert!(world.commit(&assigned.steps).is_err());
    world.assert_books_agree();
}

#[test]
fn blocks_that_could_not_be_claimed_are_not() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/28", "blockSize": 30}),
        json!({"cidr": "10.1.0.0/28", "blockSize": 30}),
    ]);
    world.reserved = vec![cidr("10.0.0.4/30")];
    // Reserved; of another size; of a pool that is not the first; of no pool; of the other IP version.
    let useless = ["10.0.0.4/30", "10.0.0.8/29", "10.1.0.0/30", "192.168.0.0/30", "fd00::/126"];
    let (assigned, looked_at) = decide(&world, &useless);
    assert!(!looked_at.is_empty());
    let block = assigned.grants[0].addresses[0].block;
    assert!(cidr("10.0.0.0/28").contains_cidr(&block) && block != cidr("10.0.0.4/30"), "{block}");
    world.configure(|config| config.auto_allocate_blocks = false);
    let (assigned, _) = decide(&world, &["10.0.0.0/30"]);
    assert!(assigned.grants[0].addresses.is_empty());
}

#[test]
fn candidates_come_in_the_order_of_the_search() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.reserved = vec![cidr("10.0.0.4/30")];
    let candidates = |world: &World, after| {
        claim_candidates(&request(world), &world.surroundings("node-a"), IpVersion::V4, after, 9)
    };
    let all = candidates(&world, None);
    assert_eq!(all.len(), 3);
    assert_eq!(candidates(&world, Some(all[0])), all[1..]);
    assert_eq!(candidates(&world, Some(all[2])), []);
    let granted = world.assign("node-a", "net.1").unwrap();
    assert_eq!(Cidr::containing(granted, 30), Some(all[0]), "the search takes the first");
    assert_eq!(candidates(&world, None), all[1..], "what the node has is no candidate");
}
