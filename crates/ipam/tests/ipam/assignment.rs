//! Whole assignments on a handful of records, with every step's precondition checked.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::common::{World, labels, owner, want};
use ipam::{AssignError, Assignment, Decision, Next, PoolUse, ReleaseRule, Step, Version, Want};
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, IpVersion, Key};
use serde_json::json;

fn small_pool() -> World {
    World::with_pool("10.0.0.0/28", 30)
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn one(world: &World, host: &str, handle: &str) -> ipam::Request {
    world.request(host, vec![Want::one_each(owner(handle), None, &[IpVersion::V4])])
}

#[test]
fn the_first_address_claims_a_block_in_one_commit() {
    let mut world = small_pool();
    let (granted, steps) = world.plan(one(&world, "node-a", "net.1")).unwrap().single().unwrap();
    let block = granted[0].block;
    let kinds: Vec<String> = steps.atomic().iter().map(|step| step.key().to_string()).collect();
    assert_eq!(
        kinds,
        [
            "IPAMConfiguration(default)".to_owned(),
            "IPPool(pool-0)".to_owned(),
            format!("BlockAffinity(host:node-a, {block})"),
            format!("IPAMBlock({block})"),
            "IPAMHandle(net.1)".to_owned(),
        ]
    );
    world.commit(&steps).unwrap();
    world.assert_books_agree();
    let stored = world.block(block).unwrap().value;
    assert_eq!(stored.affinity_claim_time.as_deref(), Some("2026-08-22T06:33:20Z"));
    // The number of the allocation is the one before the write.
    assert_eq!(stored.sequence_number, stored.sequence_of(0) + 1);
    // The second address comes from the same block, with nothing but handle and block written.
    let (granted, steps) = world.plan(one(&world, "node-a", "net.2")).unwrap().single().unwrap();
    assert_eq!((granted[0].block, steps.changes()), (block, 4));
    assert_eq!(steps.atomic().iter().filter(|step| step.is_write()).count(), 2);
}

#[test]
fn a_commit_is_refused_when_anything_it_relied_on_has_changed() {
    let world = {
        let mut world = small_pool();
        world.assign("node-a", "net.1").unwrap();
        world
    };
    let steps = world.plan(one(&world, "node-a", "net.2")).unwrap().steps;
    for step in steps.atomic() {
        let mut changed = world.clone();
        let value = changed.store.get(step.key()).map_or_else(|| b"{}".to_vec(), |(value, _)| value.to_vec());
        changed.store.put(step.key().clone(), value);
        assert_eq!(changed.commit(&steps).unwrap_err().0, *step.key());
    }
}

#[test]
fn every_assignment_relies_on_its_pool_and_no_release_does() {
    let mut world = small_pool();
    let requires_pool = |steps: &[Step]| {
        steps.iter().any(|step| matches!(step, Step::Require { key: Key::Resource { .. }, .. }))
    };
    for number in 0..6 {
        let steps = world.plan(one(&world, "node-a", &format!("a.{number}"))).unwrap().steps;
        assert!(requires_pool(&steps.atomic()));
        world.commit(&steps).unwrap();
    }
    world.delete_pool("pool-0");
    assert!(matches!(world.assign("node-a", "a.9"), Err(AssignError::NoPools)));
    for number in 0..6 {
        let released = world.plan_release(&format!("a.{number}"));
        assert!(released.addresses.len() == 1 && !requires_pool(&released.steps.atomic()));
        world.commit(&released.steps).unwrap();
    }
    world.assert_books_agree();
}

#[test]
fn a_pool_that_changes_in_between_is_noticed() {
    let mut world = small_pool();
    let steps = world.plan(one(&world, "node-a", "net.1")).unwrap().steps;
    world.put_pool("pool-0", json!({"cidr": "10.0.0.0/28", "blockSize": 30, "disabled": true}));
    assert!(world.commit(&steps).is_err());
    let error = world.assign("node-a", "net.1").unwrap_err();
    assert_eq!(error.to_string(), "no enabled IP pool gives IPv4 addresses for Workload use on node node-a");
}

#[test]
fn a_batch_shares_the_write_of_a_block() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let wants = (0..30).map(|n| Want::one_each(owner(&format!("a.{n}")), None, &[IpVersion::V4])).collect();
    let assigned = world.plan(world.request("node-a", wants)).unwrap();
    assert!(assigned.grants.iter().all(|grant| grant.shortage.is_none() && grant.addresses.len() == 1));
    // The settings, the pool, one affinity, one block, thirty handles.
    assert_eq!(assigned.steps.changes(), 34);
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    let given: BTreeSet<IpAddr> = assigned.grants.iter().map(|grant| grant.addresses[0].address).collect();
    assert_eq!((given.len(), world.blocks().len()), (30, 1));
    let block = world.block(world.blocks()[0]).unwrap().value;
    assert_eq!(
        (0..30).map(|n| block.sequence_of(n)).collect::<BTreeSet<u64>>().len(),
        1,
        "one write, one number"
    );
}

/// A full node's pods: two blocks, the settings and the pool leave room for 110 handles in etcd's 128 operations.
#[test]
fn a_burst_of_110_fits_one_commit() {
    let mut world = World::with_pool("10.0.0.0/16", 26);
    for round in 0..2 {
        let wants = (0..110)
            .map(|n| Want::one_each(owner(&format!("{round}.{n}")), None, &[IpVersion::V4]))
            .collect();
        let assigned = world.plan(world.request("node-a", wants)).unwrap();
        assert!(assigned.grants.iter().all(|grant| grant.shortage.is_none()), "{:?}", assigned.grants);
        assert!(assigned.steps.changes() <= 128, "{}", assigned.steps.changes());
        world.commit(&assigned.steps).unwrap();
        world.assert_books_agree();
    }
}

/// In whatever order they were found: see `ipam::step` for why that matters.
#[test]
fn blocks_are_written_in_the_order_of_their_networks() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/28", "blockSize": 30}),
        json!({"cidr": "fd00::/124", "blockSize": 126}),
    ]);
    world.is_atomic = false;
    let written = |steps: &ipam::Steps| -> Vec<Cidr> {
        let decisive = steps.in_order().iter().filter(|step| match step {
            ipam::Ordered::Again { .. } | ipam::Ordered::Step(Step::Update { .. }) => true,
            ipam::Ordered::Step(_) | ipam::Ordered::Touch { .. } | ipam::Ordered::Remove { .. } => false,
        });
        decisive
            .filter_map(|step| if let Key::Block(cidr) = step.key() { Some(*cidr) } else { None })
            .collect()
    };
    let assigned = world.plan(world.request("node-a", vec![want("a.0", 16, 16)])).unwrap();
    let found: Vec<Cidr> =
        ipam::BlockOrder::new(cidr("10.0.0.0/28"), 30, "node-a", &Default::default()).collect();
    assert!(!found.is_sorted(), "the node begins in the middle");
    assert!(written(&assigned.steps).len() == 8 && written(&assigned.steps).is_sorted());
    world.commit(&assigned.steps).unwrap();
    let released = written(&world.plan_release("a.0").steps);
    assert!(released.len() == 8 && released.is_sorted());
}

/// The settings are relied on, and so is that there are none.
#[test]
fn settings_that_change_in_between_are_noticed() {
    let mut world = small_pool();
    for change in [true, false] {
        let steps = world.plan(one(&world, "node-a", "net.1")).unwrap().steps;
        world.configure(|config| config.strict_affinity = change);
        assert_eq!(world.commit(&steps).unwrap_err().0, Key::IpamConfig);
    }
    assert!(world.assign("node-a", "net.1").is_ok());
}

/// Settings, pool, affinity, block, handle: everything that the commit relies on is counted.
#[test]
fn a_commit_has_no_more_changes_than_it_may() {
    let world = small_pool();
    for changes_max in 1..8 {
        let request = ipam::Request { changes_max, ..one(&world, "node-a", "net.1") };
        let assigned = world.plan(request).unwrap();
        assert!(assigned.steps.changes() <= changes_max);
        assert_eq!(assigned.grants[0].addresses.len(), usize::from(changes_max >= 5), "{changes_max}");
    }
}

#[test]
fn a_batch_is_cut_where_the_commit_is_full() {
    let mut world = World::with_pool("10.0.0.0/24", 28);
    let mut waiting: Vec<String> = (0..100).map(|n| format!("a.{n}")).collect();
    let mut commits = 0;
    while !waiting.is_empty() {
        let wants = waiting
            .iter()
            .map(|handle| Want { extra_changes: 1, ..Want::one_each(owner(handle), None, &[IpVersion::V4]) });
        let assigned = world.plan(world.request("node-a", wants.collect())).unwrap();
        let served = assigned.grants.iter().take_while(|grant| grant.shortage.is_none()).count();
        assert!(
            assigned.grants[served..].iter().all(|grant| grant.shortage == Some(AssignError::NextCommit))
        );
        assert!(assigned.steps.changes() + served <= 128, "{} changes", assigned.steps.changes());
        assert!(served > 50 || served == waiting.len(), "only {served} served");
        world.commit(&assigned.steps).unwrap();
        waiting.drain(..served);
        commits += 1;
    }
    assert_eq!(commits, 2);
    world.assert_books_agree();
    // One that can never fit is told so, and does not come again for ever.
    let mut request = world.request("node-a", vec![Want { accepts_fewer: false, ..want("b.0", 40, 0) }]);
    request.changes_max = 5;
    let assigned = world.plan(request).unwrap();
    assert_eq!(assigned.grants[0].shortage, Some(AssignError::TooLarge { addresses: 40 }));
    assert!(assigned.steps.is_empty());
}

#[test]
fn both_versions_come_together_or_not_at_all() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/30", "blockSize": 30}),
        json!({"cidr": "fd00::/127", "blockSize": 127}),
    ]);
    let both = |handle: &str| Want::one_each(owner(handle), None, &[IpVersion::V4, IpVersion::V6]);
    let assigned = world.plan(world.request("node-a", vec![both("a.0"), both("a.1"), both("a.2")])).unwrap();
    let counts: Vec<usize> = assigned.grants.iter().map(|grant| grant.addresses.len()).collect();
    assert_eq!(counts, [2, 2, 0]);
    assert!(matches!(
        assigned.grants[2].shortage,
        Some(AssignError::Exhausted { version: Version(IpVersion::V6), .. })
    ));
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    assert_eq!(world.handle("a.0").unwrap().value.block.len(), 2);
    assert_eq!(world.handle("a.2"), None);
}

#[test]
fn one_handle_twice_in_a_batch_is_one_record() {
    let mut world = small_pool();
    let of_interface =
        |name: &str| Want::one_each(owner("a.0").with("interface", name), None, &[IpVersion::V4]);
    let wants = vec![of_interface("eth0"), of_interface("net1")];
    let assigned = world.plan(world.request("node-a", wants)).unwrap();
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    assert_eq!(world.release("a.0").len(), 2);
}

/// Looks grow: some blocks first, then more at once, and never a list of everything.
#[test]
fn blocks_are_looked_at_in_growing_batches() {
    let mut world = World::with_pool("10.0.0.0/16", 26);
    for cidr in
        ipam::BlockOrder::new(cidr("10.0.0.0/16"), 26, "node-a", &ipam::Reservations::default()).take(200)
    {
        let block = Block::new(cidr, Some(&AffinityOwner::Host("node-b".to_owned())), 1);
        world.store.put(block.key(), block.encode());
    }
    let mut assignment = Assignment::new(one(&world, "node-a", "a.0"), world.surroundings("node-a")).unwrap();
    let mut looks = Vec::new();
    loop {
        match assignment.poll().unwrap() {
            Next::Look(keys) => {
                looks.push(keys.len());
                // A question that is not answered is asked again.
                assert_eq!(assignment.poll().unwrap(), Next::Look(keys.clone()));
                keys.iter().for_each(|key| assignment.show(key, world.store.answer(key)));
            }
            Next::Survey(_) => panic!("records are read together"),
            Next::Done(assigned) => break assert_eq!(assigned.single().unwrap().0.len(), 1),
        }
    }
    assert_eq!(looks, [4, 16, 64, 64, 64]);
}

#[test]
fn an_address_from_an_own_block_costs_one_look_however_many_blocks_there_are() {
    let mut world = World::with_pool("10.0.0.0/16", 26);
    world.assign("node-a", "a.0").unwrap();
    let before = world.clone();
    for third in 0..=255u8 {
        let block = Block::new(
            Cidr::containing([10, 0, third, 0].into(), 26).unwrap(),
            Some(&AffinityOwner::Host("node-b".to_owned())),
            1,
        );
        if world.block(block.cidr).is_none() {
            world.store.put(block.key(), block.encode());
        }
    }
    let looks = |world: &World| {
        let mut assignment =
            Assignment::new(one(world, "node-a", "a.1"), world.surroundings("node-a")).unwrap();
        let Next::Look(keys) = assignment.poll().unwrap() else { panic!("it looks first") };
        keys.iter().for_each(|key| assignment.show(key, world.store.answer(key)));
        assert!(matches!(assignment.poll().unwrap(), Next::Done(_)));
        keys
    };
    assert_eq!(looks(&before), looks(&world));
}

#[test]
fn an_unfinished_claim_is_finished() {
    let mut world = small_pool();
    world.put_affinity("node-a", cidr("10.0.0.4/30"), AffinityState::Pending);
    assert!(cidr("10.0.0.4/30").contains(world.assign("node-a", "a.0").unwrap()));
    world.assert_books_agree();
    // One whose release was begun, and one that another node won in the meantime.
    world.put_affinity("node-a", cidr("10.0.0.4/30"), AffinityState::PendingDeletion);
    assert!(cidr("10.0.0.4/30").contains(world.assign("node-a", "a.1").unwrap()));
    world.assert_books_agree();
    let other = Block::new(cidr("10.0.0.0/30"), Some(&AffinityOwner::Host("node-b".to_owned())), 1);
    world.store.put(other.key(), other.encode());
    world.put_affinity("node-b", other.cidr, AffinityState::Confirmed);
    world.put_affinity("node-a", other.cidr, AffinityState::Pending);
    for number in 2..8 {
        assert!(!other.cidr.contains(world.assign("node-a", &format!("a.{number}")).unwrap()));
    }
    assert_eq!(world.affinity("node-a", other.cidr), None, "a stale affinity is removed by whoever sees it");
    world.assert_books_agree();
}

#[test]
fn a_block_of_ours_without_affinity_is_found_and_kept() {
    let mut world = World::with_pool("10.0.0.0/29", 30);
    world.assign("node-a", "a.0").unwrap();
    let block = world.blocks()[0];
    world.store.delete(&Key::Affinity { owner: AffinityOwner::Host("node-a".to_owned()), block });
    assert!(block.contains(world.assign("node-a", "a.1").unwrap()));
    world.assert_books_agree();
}

/// A corrupt block: nothing is taken from it, and it is named.
#[test]
fn nothing_is_taken_from_a_block_that_contradicts_itself() {
    type Break = fn(&mut Block);
    let breaks: [(&str, Break); 5] = [
        ("is listed twice as unallocated", |block| block.unallocated.push(3)),
        ("refers to attribute 7", |block| block.allocations[0] = Some(7)),
        ("allocations lists 2", |block| block.allocations.truncate(2)),
        ("is unallocated but not in the block", |block| block.unallocated.push(99)),
        ("it says it is", |block| block.cidr = "10.9.0.0/30".parse().unwrap()),
    ];
    for (said, break_it) in breaks {
        let mut world = World::with_pool("10.0.0.0/30", 30);
        world.assign("node-a", "a.0").unwrap();
        let key = Key::Block(world.blocks()[0]);
        let mut broken = world.block(world.blocks()[0]).unwrap().value;
        break_it(&mut broken);
        world.store.put(key.clone(), broken.encode());
        let error = world.assign("node-a", "a.1").unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("10.0.0.0/30"), "{error}");
        let released = world.plan_release("a.0");
        assert!(released.addresses.is_empty() && released.steps.is_empty(), "{released:?}");
        assert!(released.corrupt[0].to_string().contains(said), "{:?}", released.corrupt);
        world.store.put(key, b"{\"cidr\":".to_vec());
        let error = world.assign("node-a", "a.1").unwrap_err().to_string();
        assert!(error.contains("EOF while parsing"), "{error}");
    }
}

#[test]
fn what_does_no_harm_is_put_right_on_the_way() {
    let mut world = small_pool();
    world.assign("node-a", "a.0").unwrap();
    let mut untidy = world.block(world.blocks()[0]).unwrap().value;
    untidy.attributes.insert(0, ipam_attribute("nobody"));
    untidy.allocations[0] = Some(1);
    untidy.sequence_number_for_allocation.insert("3".to_owned(), 5);
    world.store.put(untidy.key(), untidy.encode());
    world.assign("node-a", "a.1").unwrap();
    world.assert_books_agree();
    assert_eq!(world.held_by("a.0").len(), 1);
}

fn ipam_attribute(handle: &str) -> model::ipam::BlockAttribute {
    model::ipam::BlockAttribute { handle_id: Some(handle.into()), ..Default::default() }
}

#[test]
fn a_tombstone_is_neither_used_nor_replaced() {
    let mut world = World::with_pool("10.0.0.0/29", 30);
    world.assign("node-a", "a.0").unwrap();
    let gone = world.blocks()[0];
    let mut going = world.block(gone).unwrap().value;
    going.deleted = true;
    world.store.put(going.key(), going.encode());
    assert!(!gone.contains(world.assign("node-a", "a.1").unwrap()));
    let mut handle = world.handle("a.1").unwrap().value;
    handle.deleted = true;
    world.store.put(Key::Handle("a.1".into()), handle.encode());
    assert!(matches!(world.assign("node-a", "a.1"), Err(AssignError::HandleGoing { .. })));
}

#[test]
fn services_have_blocks_of_their_own_that_go_with_their_last_address() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/28", "blockSize": 30, "allowedUses": ["LoadBalancer"]}),
    ]);
    let mut request = one(&world, "load-balancer", "lb-1");
    assert!(matches!(world.plan(request.clone()), Err(AssignError::NoPoolServes { .. })));
    request.purpose = PoolUse::LoadBalancer;
    let steps = world.plan(request).unwrap().single().unwrap().1;
    world.commit(&steps).unwrap();
    let owner = world.block(world.blocks()[0]).unwrap().value.owner();
    assert_eq!(owner, Some(AffinityOwner::Virtual("load-balancer".to_owned())));
    world.assert_books_agree();
    assert_eq!(world.release("lb-1").len(), 1);
    assert_eq!(world.store.keys().count(), 1, "only the pool is left");
}

#[test]
fn a_node_of_the_same_name_as_another_owner_does_not_share_its_blocks() {
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/28", "blockSize": 30})]);
    let virtual_owner = AffinityOwner::Virtual("node-a".to_owned());
    let block = Block::new(cidr("10.0.0.0/30"), Some(&virtual_owner), 1);
    world.store.put(block.key(), block.encode());
    world.store.put(Key::Affinity { owner: virtual_owner, block: block.cidr }, b"{}".to_vec());
    for number in 0..12 {
        assert!(!block.cidr.contains(world.assign("node-a", &format!("a.{number}")).unwrap()));
    }
    let released = world.plan_release_of_host("node-a", ReleaseRule::default());
    assert!(released.iter().filter(|released| released.block != block.cidr).count() == 3);
}

#[test]
fn the_attributes_are_calicos_and_two_of_ours() {
    let owner = ipam::Owner::on_node("net.1", "node-a", crate::common::now()).of_pod(
        "default",
        "web-0",
        Some("uid-1"),
    );
    let expected = labels(&[
        ("namespace", "default"),
        ("node", "node-a"),
        ("pod", "web-0"),
        ("pod-uid", "uid-1"),
        ("timestamp", "2026-08-22 06:33:20 +0000 UTC"),
    ]);
    assert_eq!(owner.attributes, expected);
}
