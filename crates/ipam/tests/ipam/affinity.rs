//! Claiming, confirming and giving up blocks; taking over and borrowing.

use ipam::{
    AffinityRelease, AssignError, BlockClaim, BlockClaimed, ClaimError, Refusal, ReleaseRule,
    deselected_blocks,
};
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, Key};
use serde_json::json;

use crate::common::{World, labels};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn host(name: &str) -> AffinityOwner {
    AffinityOwner::Host(name.to_owned())
}

const EMPTY_ONLY: ReleaseRule = ReleaseRule { must_be_empty: true, sequence_number: None };

fn claim(world: &World, network: &str, owner: &AffinityOwner) -> Result<Vec<BlockClaimed>, ClaimError> {
    world.drive(&mut BlockClaim::new(cidr(network), owner.clone(), &world.pools(), world.now)?)
}

/// Carries a claim out; how many blocks were had, how many not.
fn claim_all(world: &mut World, network: &str, owner: &AffinityOwner) -> (usize, usize) {
    let (mut claimed, mut failed) = (0, 0);
    for block in claim(world, network, owner).unwrap() {
        match block {
            BlockClaimed::Claimed { steps, .. } => {
                world.commit(&steps).unwrap();
                claimed += 1;
            }
            BlockClaimed::Taken { steps, .. } => {
                world.commit(&steps).unwrap();
                failed += 1;
            }
            BlockClaimed::Unusable { .. } => failed += 1,
        }
    }
    (claimed, failed)
}

fn release(
    world: &World,
    owner: &AffinityOwner,
    block: Cidr,
    rule: ReleaseRule,
) -> Result<ipam::Steps, Refusal> {
    let mut decision = AffinityRelease::new(vec![(owner.clone(), block)], rule);
    world.drive(&mut decision).unwrap().remove(0).result
}

/// Checklist: ClaimAffinity table: one block, too small, partly taken (3+1), free (4), taken (0+4).
#[test]
fn claims_of_networks() {
    let mut world = World::with_pool("10.0.0.0/16", 26);
    let (a, b) = (host("node-a"), host("node-b"));
    assert_eq!(claim_all(&mut world, "10.0.0.0/26", &a), (1, 0));
    assert_eq!(claim_all(&mut world, "10.0.0.0/24", &b), (3, 1));
    assert_eq!(claim_all(&mut world, "10.0.1.0/24", &a), (4, 0));
    assert_eq!(claim_all(&mut world, "10.0.1.0/24", &a), (4, 0), "again, by the same");
    assert_eq!(claim_all(&mut world, "10.0.1.0/24", &b), (0, 4));
    world.assert_books_agree();
    let too_small = claim(&world, "10.0.0.0/27", &a).unwrap_err();
    assert_eq!(
        too_small.to_string(),
        "10.0.0.0/27 is smaller than a block of the IP pool pool-0, which has prefix length 26"
    );
    assert_eq!(claim(&world, "10.0.0.0/8", &a), Err(ClaimError::NotInPool(cidr("10.0.0.0/8"))));
    let wide = World::with_pool("10.0.0.0/8", 26);
    assert!(matches!(claim(&wide, "10.0.0.0/8", &a), Err(ClaimError::TooMany { .. })));
}

/// Checklist: claims and releases of host and virtual affinities with the same owner name do not interfere; releasing
/// twice finds nothing.
#[test]
fn hosts_and_other_owners_of_one_name_do_not_interfere() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let (of_host, of_other) = (host("x"), AffinityOwner::Virtual("x".to_owned()));
    assert_eq!(claim_all(&mut world, "10.0.0.0/26", &of_host), (1, 0));
    assert_eq!(claim_all(&mut world, "10.0.0.64/26", &of_other), (1, 0));
    assert_eq!(claim_all(&mut world, "10.0.0.0/26", &of_other), (0, 1));
    assert!(release(&world, &of_other, cidr("10.0.0.0/26"), EMPTY_ONLY).unwrap().is_empty());
    for owner in [&of_host, &of_other] {
        let block = if *owner == of_host { cidr("10.0.0.0/26") } else { cidr("10.0.0.64/26") };
        let steps = release(&world, owner, block, EMPTY_ONLY).unwrap();
        world.commit(&steps).unwrap();
        assert!(release(&world, owner, block, EMPTY_ONLY).unwrap().is_empty());
    }
    assert_eq!(world.blocks(), []);
    world.assert_books_agree();
}

/// Checklist: an affinity turned pendingDeletion while another process makes the block: the claim is refused.
#[test]
fn a_claim_that_was_overtaken_does_not_confirm() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let a = host("node-a");
    world.put_affinity("node-a", cidr("10.0.0.0/26"), AffinityState::Pending);
    let BlockClaimed::Claimed { steps, .. } = claim(&world, "10.0.0.0/26", &a).unwrap().remove(0) else {
        panic!()
    };
    world.put_affinity("node-a", cidr("10.0.0.0/26"), AffinityState::PendingDeletion);
    assert!(world.commit(&steps).is_err());
    assert!(world.store.apply_prefix(&steps, usize::MAX).is_err());
    assert_eq!(world.affinity("node-a", cidr("10.0.0.0/26")).unwrap().state, AffinityState::PendingDeletion);
}

/// A block that is made for a confirmed affinity relies on it: it must not outlive it.
#[test]
fn a_new_block_relies_on_its_affinity() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    world.put_affinity("node-a", cidr("10.0.0.0/26"), AffinityState::Confirmed);
    let mut assigned = world.plan(world.request("node-a", vec![crate::common::want("a.0", 1, 0)])).unwrap();
    assert_eq!(assigned.grants.remove(0).addresses[0].block, cidr("10.0.0.0/26"));
    world.store.delete(&Key::Affinity { owner: host("node-a"), block: cidr("10.0.0.0/26") });
    assert!(world.commit(&assigned.steps).is_err());
}

/// Checklist: the block is made again and the affinity set pending during a release: the release is refused. An address
/// taken between "pendingDeletion" and the block's deletion: the block survives.
#[test]
fn a_release_that_was_overtaken_deletes_nothing() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    world.assign("node-a", "a.0").unwrap();
    world.release("a.0");
    let block = world.blocks()[0];
    let steps = release(&world, &host("node-a"), block, EMPTY_ONLY).unwrap();
    let mut confirmed_anew = world.clone();
    confirmed_anew.put_affinity("node-a", block, AffinityState::Pending);
    assert!(confirmed_anew.commit(&steps).is_err());
    // One by one: the affinity is marked, then someone takes an address.
    let mut between = world.clone();
    between.is_atomic = false;
    let mut own = std::collections::BTreeMap::new();
    between.store.apply(&steps.in_order()[0], &mut own).unwrap();
    between.assign("node-a", "a.1").unwrap();
    assert!(between.store.apply(&steps.in_order()[1], &mut own).is_err());
    assert_eq!((between.blocks(), between.held_by("a.1").len()), (vec![block], 1));
    between.assert_books_agree();
}

/// Checklist: release requiring empty fails while in use, works after; the block is deleted.
#[test]
fn blocks_in_use_are_given_up_only_when_that_is_wanted() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    world.assign("node-a", "a.0").unwrap();
    let block = world.blocks()[0];
    assert_eq!(release(&world, &host("node-a"), block, EMPTY_ONLY), Err(Refusal::InUse(block)));
    let number = world.block(block).unwrap().value.sequence_number;
    let at = |number| ReleaseRule { must_be_empty: false, sequence_number: Some(number) };
    let refusal = release(&world, &host("node-a"), block, at(number - 1)).unwrap_err();
    assert_eq!(refusal, Refusal::Changed { block, found: number });
    let steps = release(&world, &host("node-a"), block, at(number)).unwrap();
    world.commit(&steps).unwrap();
    let left = world.block(block).unwrap().value;
    assert_eq!((left.owner(), left.affinity_claim_time, left.sequence_number), (None, None, number + 1));
    assert_eq!(world.affinity("node-a", block), None);
    world.assert_books_agree();
    // It goes with its last address.
    assert_eq!(world.release("a.0").len(), 1);
    assert_eq!(world.blocks(), []);
}

/// Checklist: three blocks, one in use: host release removes two and refuses one. A pool that is gone does not matter.
#[test]
fn a_host_gives_up_what_it_can() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    for number in 0..12 {
        world.assign("node-a", &format!("a.{number}")).unwrap();
    }
    world.delete_pool("pool-0");
    for number in 0..11 {
        world.release(&format!("a.{number}"));
    }
    let mut refused = 0;
    for released in world.plan_release_of_host("node-a", EMPTY_ONLY) {
        match released.result {
            Ok(steps) => world.commit(&steps).unwrap(),
            Err(refusal) => {
                assert!(matches!(refusal, Refusal::InUse(_)));
                refused += 1;
            }
        }
    }
    assert_eq!((refused, world.blocks().len(), world.affinities("node-a").len()), (1, 1, 1));
    world.assert_books_agree();
    // Checklist: RemoveIPAMHost of an unknown host succeeds.
    assert_eq!(world.plan_release_of_host("node-z", EMPTY_ONLY), []);
}

/// Checklist: an old affinity without type can be released through its pool. In etcd: a block that names its host in the
/// old way, and an affinity without a word in it.
#[test]
fn affinities_of_old_are_known() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let address = world.assign("node-a", "a.0").unwrap();
    let cidr = world.blocks()[0];
    let mut old = world.block(cidr).unwrap().value;
    (old.affinity, old.host_affinity) = (None, Some("node-a".to_owned()));
    world.store.put(old.key(), old.encode());
    world.store.put(Key::Affinity { owner: host("node-a"), block: cidr }, Vec::new());
    world.assert_books_agree();
    assert!(cidr.contains(world.assign("node-a", "a.1").unwrap()), "it is the node's");
    assert_eq!(release(&world, &host("node-a"), cidr, EMPTY_ONLY), Err(Refusal::InUse(cidr)));
    assert_eq!(world.release("a.0"), [address]);
    world.release("a.1");
    let steps = release(&world, &host("node-a"), cidr, EMPTY_ONLY).unwrap();
    world.commit(&steps).unwrap();
    assert!(world.blocks().is_empty() && world.affinities("node-a").is_empty());
}

/// §7 #8: what Calico leaves behind for ever.
#[test]
fn affinities_without_their_block_are_given_up_too() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.put_affinity("node-a", cidr("10.0.0.0/30"), AffinityState::Pending);
    world.put_affinity("node-a", cidr("10.0.0.4/30"), AffinityState::Confirmed);
    let other = Block::new(cidr("10.0.0.4/30"), Some(&host("node-b")), 1);
    world.store.put(other.key(), other.encode());
    for released in world.plan_release_of_host("node-a", EMPTY_ONLY) {
        world.commit(&released.result.unwrap()).unwrap();
    }
    assert!(world.affinities("node-a").is_empty());
    assert_eq!(world.blocks(), [other.cidr], "the other's block stays");
}

/// Checklist: strict mode, another host's block is refused while in use, refused when empty but younger than a minute,
/// taken when older.
#[test]
fn empty_blocks_of_others_are_taken_over_when_they_are_old() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    world.configure(|config| config.strict_affinity = true);
    world.assign("node-a", "a.0").unwrap();
    let block = world.blocks()[0];
    assert!(matches!(world.assign("node-b", "b.0"), Err(AssignError::Exhausted { .. })), "in use");
    world.release("a.0");
    assert!(matches!(world.assign("node-b", "b.0"), Err(AssignError::Exhausted { .. })), "claimed just now");
    let number = world.block(block).unwrap().value.sequence_number;
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    assert!(block.contains(world.assign("node-b", "b.0").unwrap()));
    let taken = world.block(block).unwrap().value;
    assert_eq!((taken.owner(), taken.sequence_number), (Some(host("node-b")), number + 1), "one write");
    assert_eq!(taken.affinity_claim_time.as_deref(), Some("2026-08-22T06:34:20Z"));
    assert_eq!(world.affinity("node-a", block), None);
    world.assert_books_agree();
    // A claim without a time is old.
    world.release("b.0");
    let mut old = world.block(block).unwrap().value;
    old.affinity_claim_time = None;
    world.store.put(old.key(), old.encode());
    assert!(world.assign("node-a", "a.1").is_ok());
}

/// A take-over relies on the block as it was seen.
#[test]
fn a_take_over_loses_against_an_assignment() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    world.assign("node-a", "a.0").unwrap();
    world.release("a.0");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    let assigned = world.plan(world.request("node-b", vec![crate::common::want("b.0", 1, 0)])).unwrap();
    world.assign("node-a", "a.1").unwrap();
    assert!(world.commit(&assigned.steps).is_err());
    assert!(world.store.apply_prefix(&assigned.steps, usize::MAX).is_err());
    assert_eq!(world.held_by("a.1").len(), 1);
}

/// Checklist: host B steals the block while A's affinity delete fails: A still gets an address (borrowed), and A's
/// pending affinity is removed on A's next request.
#[test]
fn a_node_whose_block_was_taken_borrows_and_tidies_up() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    world.assign("node-b", "b.0").unwrap();
    let block = world.blocks()[0];
    world.put_affinity("node-a", block, AffinityState::Pending);
    let assigned = world.plan(world.request("node-a", vec![crate::common::want("a.0", 1, 0)])).unwrap();
    assert!(assigned.grants[0].addresses[0].is_borrowed);
    world.commit(&assigned.steps).unwrap();
    assert_eq!(world.affinity("node-a", block), None);
    world.assert_books_agree();
}

/// An affinity for a block that is another's does not count as one of the node's blocks.
#[test]
fn a_stale_affinity_does_not_use_up_the_block_limit() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.configure(|config| (config.strict_affinity, config.max_blocks_per_host) = (true, 1));
    world.assign("node-b", "b.0").unwrap();
    world.put_affinity("node-a", world.blocks()[0], AffinityState::Pending);
    world.assign("node-a", "a.0").unwrap();
    assert_eq!(world.affinities("node-a").len(), 1);
    world.assert_books_agree();
}

/// Checklist: an emptied block of a deselecting pool is released; a use mismatch or an explicit other pool does not
/// release; selector change, then release: affinity kept until empty, then the block is removed.
#[test]
fn blocks_of_pools_that_do_not_select_the_node_any_more() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.assign("node-a", "a.0").unwrap();
    let block = world.blocks()[0];
    let deselected = |world: &World| {
        let pools: Vec<_> = world.pools().into_iter().map(|pool| pool.value).collect();
        deselected_blocks([block], &pools, &labels(&[("name", "node-a")]))
    };
    assert_eq!(deselected(&world), []);
    world.put_pool("pool-0", json!({"cidr": "10.0.0.0/28", "blockSize": 30, "allowedUses": ["Tunnel"]}));
    assert_eq!(deselected(&world), [], "another use");
    let elsewhere = json!({"cidr": "10.0.0.0/28", "blockSize": 30, "nodeSelector": "name == 'node-b'"});
    world.put_pool("pool-0", elsewhere.clone());
    assert_eq!(deselected(&world), [block]);
    assert_eq!(release(&world, &host("node-a"), block, EMPTY_ONLY), Err(Refusal::InUse(block)));
    let released = world.plan_release("a.0");
    assert_eq!(released.emptied, [(host("node-a"), block)]);
    world.commit(&released.steps).unwrap();
    let steps = release(&world, &host("node-a"), block, EMPTY_ONLY).unwrap();
    world.commit(&steps).unwrap();
    assert_eq!(world.blocks(), []);
    let mut disabled = elsewhere;
    disabled["disabled"] = true.into();
    world.put_pool("pool-0", disabled);
    assert_eq!(deselected(&world), [], "a pool out of service stays as it is");
}

#[test]
fn tombstones_and_corrupt_blocks_are_not_given_up() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.assign("node-a", "a.0").unwrap();
    let cidr = world.blocks()[0];
    let sound = world.block(cidr).unwrap().value;
    let going = Block { deleted: true, ..sound.clone() };
    world.store.put(Key::Block(cidr), going.encode());
    assert_eq!(release(&world, &host("node-a"), cidr, ReleaseRule::default()), Err(Refusal::Going(cidr)));
    let broken = Block { unallocated: vec![0, 0], ..sound };
    world.store.put(Key::Block(cidr), broken.encode());
    let refusal = release(&world, &host("node-a"), cidr, ReleaseRule::default()).unwrap_err();
    assert!(matches!(refusal, Refusal::Corrupt(_)), "{refusal}");
}

#[test]
fn a_node_can_spare_empty_blocks_but_not_its_last() {
    let block = |text: &str, number| {
        let mut block = model::ipam::Block::new(text.parse().unwrap(), None, number);
        block.set_owner(Some(&model::AffinityOwner::Host("node-a".to_owned())));
        block
    };
    let mut used = block("10.0.0.4/30", 7);
    ipam::take(&mut used, &crate::common::owner("h"), 1, &ipam::Reservations::default());
    let (first, second, six) = (block("10.0.0.0/30", 5), block("10.0.0.8/30", 6), block("fd00::/126", 8));
    assert_eq!(ipam::spare_blocks(std::slice::from_ref(&first)), []);
    assert_eq!(ipam::spare_blocks(&[first.clone(), second.clone()]), [(second.cidr, 6)]);
    let all = [first.clone(), used, second.clone(), six];
    assert_eq!(ipam::spare_blocks(&all), [(first.cidr, 5), (second.cidr, 6)], "of IPv6 the only one stays");
    let mut broken = second;
    broken.unallocated.pop();
    assert_eq!(
        ipam::spare_blocks(&[first.clone(), broken]),
        [(first.cidr, 5)],
        "what is broken counts as used"
    );
}
