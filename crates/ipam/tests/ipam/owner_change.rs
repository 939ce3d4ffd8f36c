//! Changing what is noted down about an address. Checklist: SetOwnerAttributes. (Its argument errors, to set and to
//! clear at once, cannot be said here.)

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipam::{AddressLookup, Attributes, Expected, OwnerChange, OwnerChangeError, OwnerUpdate};
use model::Key;
use model::ipam::BlockAttribute;

use crate::common::{World, labels};

fn pod(namespace: &str, name: &str) -> BTreeMap<String, String> {
    labels(&[("namespace", namespace), ("pod", name)])
}

fn is_pod(namespace: &str, name: &str) -> Expected {
    Expected::Pod { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn change(address: IpAddr) -> OwnerChange {
    OwnerChange {
        address,
        handle: "vm".into(),
        active: Attributes::Keep,
        alternate: Attributes::Keep,
        if_active: Expected::Anyone,
        if_alternate: Expected::Anyone,
    }
}

/// Carries it out; how many records were written.
fn apply(world: &mut World, change: OwnerChange) -> Result<usize, OwnerChangeError> {
    let pools = world.pools().into_iter().map(|pool| pool.value).collect();
    let steps = world.drive(&mut OwnerUpdate::new(change, pools))?;
    world.commit(&steps).unwrap();
    world.assert_books_agree();
    Ok(steps.changes())
}

fn known(world: &World, address: IpAddr) -> (BlockAttribute, u64) {
    let found = world.drive(&mut AddressLookup::new(address, Vec::new())).unwrap().expect("allocated");
    (found.attribute, found.sequence_number)
}

fn machine() -> (World, IpAddr) {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let address = world.assign("node-a", "vm").unwrap();
    (world, address)
}

/// Checklist: set, overwrite, clear, no-op.
#[test]
fn owners_are_set_replaced_and_cleared() {
    let (mut world, address) = machine();
    let (_, number) = known(&world, address);
    let sets = |active| OwnerChange { active: Attributes::Set(active), ..change(address) };
    for name in ["one", "two"] {
        assert_eq!(apply(&mut world, sets(pod("default", name))), Ok(1));
        assert_eq!(known(&world, address).0.secondary, pod("default", name));
    }
    let block = world.block(world.blocks()[0]).unwrap();
    assert_eq!(apply(&mut world, sets(pod("default", "two"))), Ok(0), "nothing changes");
    assert_eq!(apply(&mut world, change(address)), Ok(0));
    assert_eq!(world.block(block.value.cidr), Some(block.clone()));
    let other = OwnerChange { alternate: Attributes::Set(pod("default", "three")), ..change(address) };
    assert_eq!(apply(&mut world, other), Ok(1));
    let (both, _) = known(&world, address);
    assert_eq!(both.secondary, pod("default", "two"));
    assert_eq!(both.alternate_owner, pod("default", "three"));
    let clears = OwnerChange { active: Attributes::Clear, alternate: Attributes::Clear, ..change(address) };
    assert_eq!(apply(&mut world, clears), Ok(1));
    let (none, same) = known(&world, address);
    assert_eq!((none.secondary.len(), none.alternate_owner.len(), none.handle()), (0, 0, Some(&"vm".into())));
    assert_eq!(same, number, "it is still that allocation");
    let after = world.block(block.value.cidr).unwrap().value;
    assert_eq!(after.sequence_number, block.value.sequence_number + 2, "one per write");
    assert_eq!(world.release("vm"), [address], "and its handle's");
}

/// Checklist: preconditions: match, mismatch, empty.
#[test]
fn preconditions_hold() {
    let (mut world, address) = machine();
    let set = OwnerChange { active: Attributes::Set(pod("default", "one")), ..change(address) };
    apply(&mut world, set).unwrap();
    let to_two = |if_active, if_alternate| OwnerChange {
        alternate: Attributes::Set(pod("default", "two")),
        if_active,
        if_alternate,
        ..change(address)
    };
    let refused = [
        (
            to_two(is_pod("default", "two"), Expected::Anyone),
            "the active owner of 10.0.0.12 is pod default/one",
        ),
        (
            to_two(is_pod("other", "one"), Expected::Anyone),
            "the active owner of 10.0.0.12 is pod default/one",
        ),
        (to_two(Expected::Nobody, Expected::Anyone), "the active owner of 10.0.0.12 is pod default/one"),
        (to_two(Expected::Anyone, is_pod("default", "x")), "the alternate owner of 10.0.0.12 is nobody"),
    ];
    let before = world.store.clone();
    for (change, expected) in refused {
        assert_eq!(apply(&mut world, change).unwrap_err().to_string(), expected);
    }
    assert_eq!(world.store, before);
    assert_eq!(apply(&mut world, to_two(is_pod("default", "one"), Expected::Nobody)), Ok(1));
    let again = to_two(Expected::Anyone, Expected::Nobody);
    assert!(matches!(apply(&mut world, again), Err(OwnerChangeError::OtherOwner { which: "alternate", .. })));
}

/// Checklist: wrong handle, unallocated, no pool (which does not matter here).
#[test]
fn only_the_holders_address_is_changed() {
    let (mut world, address) = machine();
    let set = |address, handle: &str| OwnerChange {
        active: Attributes::Set(pod("default", "one")),
        handle: handle.into(),
        ..change(address)
    };
    let error = apply(&mut world, set(address, "other")).unwrap_err();
    assert_eq!(error.to_string(), format!("{address} is held by vm"));
    let block = world.blocks()[0];
    let free = world.block(block).unwrap().value.address(3).unwrap();
    assert_eq!(apply(&mut world, set(free, "vm")), Err(OwnerChangeError::NotAllocated(free)));
    let elsewhere: IpAddr = "192.168.0.1".parse().unwrap();
    assert_eq!(apply(&mut world, set(elsewhere, "vm")), Err(OwnerChangeError::NotAllocated(elsewhere)));
    world.delete_pool("pool-0");
    assert_eq!(apply(&mut world, set(address, "vm")), Ok(1), "the pool may be gone");
    world.configure(|config| config.ip_cooldown_seconds = 60);
    world.release("vm");
    assert_eq!(apply(&mut world, set(address, "vm")), Err(OwnerChangeError::NotAllocated(address)));
    world.store.put(Key::Block(block), b"{".to_vec());
    assert!(matches!(apply(&mut world, set(address, "vm")), Err(OwnerChangeError::Corrupt(_))));
}

/// Addresses of one owner share what is noted down about them; a change of one does not change the others.
#[test]
fn other_addresses_of_the_owner_stay_as_they_are() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let (many, _) = world.assign_many("node-a", "vm", 3);
    let set = OwnerChange { active: Attributes::Set(pod("default", "one")), ..change(many[1]) };
    assert_eq!(apply(&mut world, set), Ok(1));
    let pods = |world: &World| -> Vec<Option<String>> {
        many.iter().map(|address| known(world, *address).0.secondary.get("pod").cloned()).collect()
    };
    assert_eq!(pods(&world), [Some("vm".to_owned()), Some("one".to_owned()), Some("vm".to_owned())]);
    assert_eq!(world.release("vm").len(), 3);
}

/// Checklist: the full migration sequence: the target becomes the alternate owner, the two change places, the source goes.
#[test]
fn a_machine_moves() {
    let (mut world, address) = machine();
    let (source, target) = (pod("default", "source"), pod("default", "target"));
    let starts = OwnerChange { active: Attributes::Set(source.clone()), ..change(address) };
    let prepares = OwnerChange {
        alternate: Attributes::Set(target.clone()),
        if_active: is_pod("default", "source"),
        if_alternate: Expected::Nobody,
        ..change(address)
    };
    let swaps = OwnerChange {
        active: Attributes::Set(target.clone()),
        alternate: Attributes::Set(source),
        if_active: is_pod("default", "source"),
        if_alternate: is_pod("default", "target"),
        ..change(address)
    };
    let ends = OwnerChange {
        alternate: Attributes::Clear,
        if_alternate: is_pod("default", "source"),
        ..change(address)
    };
    for step in [starts, prepares.clone(), swaps.clone(), ends.clone()] {
        assert_eq!(apply(&mut world, step), Ok(1));
    }
    assert_eq!(known(&world, address).0.secondary, target);
    // Whoever comes late with a step of the past changes nothing.
    for step in [prepares, swaps, ends] {
        assert!(matches!(apply(&mut world, step), Err(OwnerChangeError::OtherOwner { .. })));
    }
}

#[test]
fn a_change_relies_on_the_block_as_it_was() {
    let (mut world, address) = machine();
    let set = OwnerChange { active: Attributes::Set(pod("default", "one")), ..change(address) };
    let steps = world.drive(&mut OwnerUpdate::new(set, Vec::new())).unwrap();
    world.release("vm");
    assert!(world.commit(&steps).is_err());
}
