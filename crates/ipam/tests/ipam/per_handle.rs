//! How many addresses one handle may hold.

use std::net::IpAddr;

use ipam::{AddressAssignment, AddressRequest, AssignError, Assigned, PoolUse, Version, Want};
use model::{IpVersion, Key};
use serde_json::json;

use crate::common::{World, labels, owner, want};

fn limited(handle: &str, v4: usize, v6: usize, max: usize) -> Want {
    Want { handle_max: Some(max), ..want(handle, v4, v6) }
}

fn assign(world: &mut World, wants: Vec<Want>) -> Assigned {
    let assigned = world.plan(world.request("node-a", wants)).unwrap();
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
    assigned
}

fn addresses(assigned: &Assigned, position: usize) -> Vec<IpAddr> {
    assigned.grants[position].addresses.iter().map(|granted| granted.address).collect()
}

/// Checklist: per-handle maximum: the second AutoAssign reuses; maximum 2 allows two, then reuses.
#[test]
fn what_a_handle_has_is_granted_again() {
    for max in [1, 2] {
        let mut world = World::with_pool("10.0.0.0/24", 26);
        let mut given = Vec::new();
        for _ in 0..max {
            let new = addresses(&assign(&mut world, vec![limited("vm", 1, 0, max)]), 0);
            assert_eq!(new.len(), 1);
            assert!(!given.contains(&new[0]));
            given.extend(new);
        }
        let again = assign(&mut world, vec![limited("vm", 1, 0, max)]);
        assert_eq!(addresses(&again, 0), given);
        assert!(again.steps.is_empty() && again.grants[0].shortage.is_none());
        assert_eq!(world.handle("vm").unwrap().value.block.values().sum::<i64>(), max as i64);
    }
}

#[test]
fn each_ip_version_counts_for_itself() {
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "fd00::/112"})]);
    let first = addresses(&assign(&mut world, vec![limited("vm", 1, 0, 1)]), 0);
    let both = assign(&mut world, vec![limited("vm", 1, 1, 1)]);
    let given = addresses(&both, 0);
    assert_eq!((given[0], given.len(), given[1].is_ipv6()), (first[0], 2, true));
    assert_eq!(addresses(&assign(&mut world, vec![limited("vm", 1, 1, 1)]), 0), given);
}

#[test]
fn a_batch_with_one_handle_twice_keeps_to_the_maximum() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let assigned =
        assign(&mut world, vec![limited("vm", 1, 0, 1), limited("vm", 1, 0, 1), want("b.0", 1, 0)]);
    assert_eq!(addresses(&assigned, 0), addresses(&assigned, 1));
    assert_ne!(addresses(&assigned, 0), addresses(&assigned, 2));
}

#[test]
fn more_than_the_maximum_is_a_shortage() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let limit = AssignError::HandleLimit { handle: "vm".into(), version: Version(IpVersion::V4), max: 2 };
    assert_eq!(limit.to_string(), "handle vm may hold no more than 2 IPv4 addresses");
    let all = Want { accepts_fewer: false, ..limited("vm", 3, 0, 2) };
    let refused = assign(&mut world, vec![all]);
    assert_eq!((addresses(&refused, 0).len(), &refused.grants[0].shortage), (0, &Some(limit.clone())));
    let fewer = assign(&mut world, vec![limited("vm", 3, 0, 2)]);
    assert_eq!((addresses(&fewer, 0).len(), &fewer.grants[0].shortage), (2, &Some(limit)));
    // One is missing of two: it comes with the one that is there.
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let first = addresses(&assign(&mut world, vec![limited("vm", 1, 0, 2)]), 0);
    let both = addresses(&assign(&mut world, vec![limited("vm", 2, 0, 2)]), 0);
    assert_eq!((both.len(), both[0]), (2, first[0]));
}

/// What a handle holds is what the blocks say; a block that cannot be trusted says nothing.
#[test]
fn the_blocks_are_counted_and_not_the_handle() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let mut handle = model::ipam::Handle::default();
    handle.block.insert("10.0.0.0/26", 5);
    world.store.put(Key::Handle("vm".into()), handle.encode());
    let assigned = world.plan(world.request("node-a", vec![limited("vm", 1, 0, 1)])).unwrap();
    assert_eq!(assigned.grants[0].addresses.len(), 1);
    world.store.put(Key::Block("10.0.0.0/26".parse().unwrap()), b"{".to_vec());
    let assigned = world.plan(world.request("node-a", vec![limited("vm", 1, 0, 1)])).unwrap();
    assert!(matches!(assigned.grants[0].shortage, Some(AssignError::Corrupt(_))), "{assigned:?}");
    assert!(assigned.steps.is_empty());
}

#[test]
fn two_at_once_do_not_exceed_the_maximum() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let one = world.plan(world.request("node-a", vec![limited("vm", 1, 0, 1)])).unwrap();
    let other = world.plan(world.request("node-b", vec![limited("vm", 1, 0, 1)])).unwrap();
    world.commit(&one.steps).unwrap();
    assert!(world.commit(&other.steps).is_err());
    assert_eq!(addresses(&assign(&mut world, vec![limited("vm", 1, 0, 1)]), 0), addresses(&one, 0));
}

/// Looks stay within what etcd reads at once, however many owners have a maximum.
#[test]
fn many_limited_handles_are_looked_at_in_parts() {
    let mut world = World::with_pool("10.0.0.0/20", 30);
    for number in 0..150 {
        world.assign(&format!("node-{number}"), &format!("vm.{number}")).unwrap();
    }
    let wants: Vec<Want> = (0..150).map(|number| limited(&format!("vm.{number}"), 1, 0, 1)).collect();
    let assigned = assign(&mut world, wants);
    assert!(assigned.steps.is_empty() && assigned.grants.iter().all(|grant| grant.addresses.len() == 1));
}

/// Checklist: the second AssignIP reuses; the same handle asking for its own address succeeds.
#[test]
fn given_addresses_keep_to_the_maximum() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let mut assign = |max: usize, asked: &[&str]| {
        let request = AddressRequest {
            host: "node-a".to_owned(),
            owner: owner("vm"),
            addresses: asked.iter().map(|text| text.parse().unwrap()).collect(),
            purpose: Some(PoolUse::Workload),
            node_labels: labels(&[]),
            blocks_max: None,
            handle_max: Some(max),
            host_reserve: None,
        };
        let mut decision = AddressAssignment::new(request, world.surroundings("node-a"));
        let assigned = world.drive(&mut decision)?;
        world.commit(&assigned.steps).unwrap();
        world.assert_books_agree();
        Ok::<_, AssignError>(assigned.grants[0].addresses.len())
    };
    assert!(matches!(assign(1, &["10.0.0.1", "10.0.0.2"]), Err(AssignError::HandleLimit { .. })));
    assert_eq!(assign(1, &["10.0.0.1"]), Ok(1));
    assert_eq!(assign(1, &["10.0.0.1"]), Ok(1), "its own again");
    assert!(matches!(assign(1, &["10.0.0.2"]), Err(AssignError::HandleLimit { .. })));
    assert!(matches!(assign(1, &["10.0.0.100"]), Err(AssignError::HandleLimit { .. })), "in another block");
    assert_eq!(assign(2, &["10.0.0.100"]), Ok(1));
    assert!(matches!(assign(2, &["10.0.0.2"]), Err(AssignError::HandleLimit { .. })));
    assert_eq!(assign(1, &["10.0.0.100", "10.0.0.1"]), Ok(2), "what it has it may keep");
}
