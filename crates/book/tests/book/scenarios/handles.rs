//! Handles, config, EnsureBlock, findOrClaim.

use std::net::IpAddr;

use book::{AssignRequest, GivenRequest};
use ipam::{AssignError, HostReserve};
use model::Key;
use model::ipam::IpamConfig;
use serde_json::json;

use super::world::{World, many};
use crate::common::{address, one, owner};
use crate::places::{Place, on_every_store};

on_every_store! {
    query_and_release_by_handle
    the_maximum_of_a_handle
    settings_are_kept
    a_table_of_given_addresses
    a_new_block_with_the_nodes_reserve
}

/// Query and release by handle.
async fn query_and_release_by_handle(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await;
    assert_eq!(world.held("h").await, [] as [IpAddr; 0]);
    assert_eq!(world.release("h").await, [] as [IpAddr; 0]);
    let (mut given, _) = world.assign_many("node-a", "h", 6).await;
    given.sort_unstable();
    assert_eq!(world.held("h").await, given);
    let mut released = world.release("h").await;
    released.sort_unstable();
    assert_eq!(released, given);
    assert_eq!(world.store.get(&Key::Handle("h".to_owned())).await.unwrap(), None);
    world.assert_clean().await;
}

/// Per-handle maximum: second AutoAssign/AssignIP reuses; maximum 2 allows two then reuses.
async fn the_maximum_of_a_handle(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    let limited = |max| AssignRequest { handle_max: Some(max), ..one("node-a", "vm") };
    let first = world.assign_as(limited(1)).await.0;
    assert_eq!(world.assign_as(limited(1)).await.0, first);
    let given = |given: IpAddr| GivenRequest {
        handle_max: Some(1),
        ..GivenRequest::new("node-a", owner("vm"), vec![given])
    };
    world.book.assign_addresses(given(first[0])).await.unwrap();
    assert!(world.book.assign_addresses(given(address("10.0.0.200"))).await.is_err());
    let second = world.assign_as(limited(2)).await.0;
    assert!(second.len() == 1 && second != first);
    assert_eq!(world.assign_as(limited(2)).await.0.len(), 2);
    assert_eq!(world.held("vm").await.len(), 2);
    world.assert_clean().await;
}

/// Default config returned and not persisted; changed config stored.
async fn settings_are_kept(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    assert_eq!(world.book.config().await.unwrap(), IpamConfig::default());
    world.assign("node-a", "a.0").await.unwrap();
    assert_eq!(world.store.get(&Key::IpamConfig).await.unwrap(), None);
    world.book.change_config(|config| config.strict_affinity = true).await.unwrap();
    let another = world.another().await;
    let found = another.config().await.unwrap();
    assert_eq!(found, IpamConfig { strict_affinity: true, ..IpamConfig::default() });
    assert!(world.store.get(&Key::IpamConfig).await.unwrap().is_some());
}

/// AssignIP table: v4, v6, outside pools, twice.
async fn a_table_of_given_addresses(place: Place) {
    let pools = [json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "fd00::/112"})];
    let world = World::start(place, &pools).await;
    world.give("node-a", "a", "10.0.0.5", None).await.unwrap();
    world.give("node-a", "a", "fd00::5", None).await.unwrap();
    let outside = world.give("node-a", "a", "10.9.0.5", None).await;
    assert_eq!(outside, Err(AssignError::NotInPool(address("10.9.0.5"))));
    world.give("node-a", "a", "10.0.0.5", None).await.expect("its own again");
    let twice = world.give("node-a", "b", "10.0.0.5", None).await;
    assert!(matches!(twice, Err(AssignError::Taken { .. })), "{twice:?}");
    assert_eq!(world.held("a").await.len(), 2);
    world.assert_clean().await;
}

/// Host-reserved addresses in a new /30: only the third address is free; auto-assign returns it.
async fn a_new_block_with_the_nodes_reserve(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let reserving = |first, last| AssignRequest {
        host_reserve: Some(HostReserve { first, last }),
        ..many("node-a", "h", 2)
    };
    let too_big = world.assign_as(reserving(3, 1)).await.1;
    assert!(matches!(too_big, Some(AssignError::NoPoolServes { .. })), "{too_big:?}");
    assert_eq!(world.assign_as(reserving(2, 1)).await.0, [address("10.0.0.2")]);
    world.assert_clean().await;
}
