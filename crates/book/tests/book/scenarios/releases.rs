//! Release.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::{AssignError, ReleaseItem, Why};
use model::{HandleId, Key, KeyRange};
use serde_json::json;

use super::world::{EMPTY_ONLY, World, item, many};
use crate::common::{address, cidr};
use crate::places::{Place, on_every_store};

on_every_store! {
    an_old_number_does_not_free_a_new_allocation
    the_same_with_the_block_gone_in_between
    addresses_are_reused_in_the_order_of_their_release
    nothing_comes_from_a_deleted_pool
    a_hundred_addresses_of_four_nodes_in_one_call
    the_same_address_twice_is_one_release
    a_table_of_numbers_and_handles
    a_table_of_what_is_not_allocated
    a_host_that_is_not_known
}

/// Same address and handle released and re-assigned: a release with the old sequence number fails, with the new one
/// works; numbers advance by exactly 1 per block write (10 rounds).
async fn an_old_number_does_not_free_a_new_allocation(place: Place) {
    ten_rounds(place, false).await;
}

async fn the_same_with_the_block_gone_in_between(place: Place) {
    ten_rounds(place, true).await;
}

async fn ten_rounds(place: Place, block_goes: bool) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.1/32", "blockSize": 32})]).await;
    let only = world.assign("node-a", "h").await.unwrap();
    let block = cidr("10.0.0.1/32");
    for _ in 0..10 {
        let old = world.number_of(only).await;
        let before = world.block(block).await.unwrap().sequence_number;
        assert_eq!(old + 1, before);
        let with =
            |number| ReleaseItem { sequence_number: Some(number), handle: Some("h".into()), ..item(only) };
        let released = world.book.release_addresses([with(old)]).await.unwrap();
        assert_eq!(released.addresses, [only]);
        assert_eq!(world.block(block).await.unwrap().sequence_number, before + 1);
        if block_goes {
            world.book.release_host("node-a", EMPTY_ONLY).await.unwrap();
            assert_eq!(world.block(block).await, None);
        }
        assert_eq!(world.assign("node-a", "h").await, Ok(only));
        let stale = world.book.release_addresses([with(old)]).await.unwrap();
        assert_eq!(stale.unreleased[0].why, Why::OtherNumber(world.number_of(only).await));
        assert_eq!(world.held("h").await, [only]);
    }
    world.assert_clean().await;
}

/// FIFO reuse: a /30 hands out its 4 addresses in turn before repeating the first.
async fn addresses_are_reused_in_the_order_of_their_release(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let mut given = Vec::new();
    for round in 0..8 {
        given.push(world.assign("node-a", &format!("h.{round}")).await.unwrap());
        world.release(&format!("h.{round}")).await;
    }
    assert_eq!(given[..4].iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(given[..4], given[4..]);
}

/// No assignment from a deleted pool.
async fn nothing_comes_from_a_deleted_pool(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    let given = world.assign("node-a", "a.0").await.unwrap();
    world.delete_pool("pool-0").await;
    assert_eq!(world.assign("node-a", "a.1").await, Err(AssignError::NoPools));
    assert_eq!(world.release("a.0").await, [given], "what was given can be given back");
    world.assert_clean().await;
}

/// 100 addresses over 4 nodes, v4+v6, several blocks, one pool disabled: all released in one call.
async fn a_hundred_addresses_of_four_nodes_in_one_call(place: Place) {
    let pools =
        [json!({"cidr": "10.0.0.0/24", "blockSize": 28}), json!({"cidr": "fd00::/112", "blockSize": 122})];
    let world = World::start(place, &pools).await;
    let mut all: Vec<IpAddr> = Vec::new();
    for number in 0..50 {
        let mut request = many(&format!("node-{}", number % 4), &format!("h.{number}"), 1);
        request.v6 = 1;
        all.extend(world.assign_as(request).await.0);
    }
    assert_eq!(all.len(), 100);
    world.put_pool("pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 28, "disabled": true})).await;
    let released = world.book.release_addresses(all.iter().map(|address| item(*address))).await.unwrap();
    assert_eq!((released.addresses.len(), released.unreleased.len()), (100, 0));
    assert!(world.store.list_all(KeyRange::Handles).await.unwrap().0.is_empty());
    world.assert_clean().await;
}

/// Duplicate addresses in one request do not free twice.
async fn the_same_address_twice_is_one_release(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    let (two, _) = world.assign_many("node-a", "h", 2).await;
    let released = world.book.release_addresses([item(two[0]), item(two[0])]).await.unwrap();
    assert_eq!(released.addresses, [two[0]]);
    let block = world.block(world.blocks().await[0]).await.unwrap();
    assert_eq!(block.unallocated.len(), 63);
    assert_eq!(world.held("h").await, [two[1]]);
    world.assert_clean().await;
}

/// Table: base, valid sequence number, wrong sequence number (error), wrong handle (error).
async fn a_table_of_numbers_and_handles(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    for (name, handle, is_old, is_released) in [
        ("base", None, None, true),
        ("valid number", Some("h"), Some(false), true),
        ("wrong number", Some("h"), Some(true), false),
        ("wrong handle", Some("other"), None, false),
        ("wrong handle, valid number", Some("other"), Some(false), false),
    ] {
        let given = world.assign("node-a", "h").await.unwrap();
        let number = world.number_of(given).await;
        let sequence_number = is_old.map(|is_old: bool| number - u64::from(is_old));
        let item = ReleaseItem { handle: handle.map(HandleId::from), sequence_number, ..item(given) };
        let released = world.book.release_addresses([item]).await.unwrap();
        assert_eq!(
            (released.addresses.len(), released.unreleased.len()),
            if is_released { (1, 0) } else { (0, 1) },
            "{name}"
        );
        assert_eq!(world.held("h").await.is_empty(), is_released, "{name}");
        world.release("h").await;
        world.assert_clean().await;
    }
}

/// Table: address in no pool → reported unallocated; unallocated address → reported; assign+release; 66 addresses over
/// 2 blocks.
async fn a_table_of_what_is_not_allocated(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    for free in ["192.168.0.1", "10.0.0.7", "fd00::1"] {
        let released = world.book.release_addresses([item(address(free))]).await.unwrap();
        assert_eq!(released.unreleased[0].why, Why::NotAllocated, "{free}");
    }
    let (many, _) = world.assign_many("node-a", "h", 66).await;
    assert_eq!((many.len(), world.blocks().await.len()), (66, 2));
    let released = world.book.release_addresses(many.iter().map(|address| item(*address))).await.unwrap();
    assert_eq!((released.addresses.len(), released.unreleased.len()), (66, 0));
    assert_eq!(world.store.get(&Key::Handle("h".into())).await.unwrap(), None);
    world.assert_clean().await;
}

/// RemoveIPAMHost of an unknown host succeeds.
async fn a_host_that_is_not_known(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    assert_eq!(world.book.release_host("nobody", EMPTY_ONLY).await.unwrap(), []);
}
