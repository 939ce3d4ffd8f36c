//! Handles, config, EnsureBlock, findOrClaim.

use std::net::IpAddr;

use book::{AssignRequest, BookError, GivenRequest};
use ipam::{AssignError, Attributes, Expected, HostReserve, OwnerChange, OwnerChangeError};
use model::ipam::IpamConfig;
use model::{IpVersion, Key, Kind};
use serde_json::json;

use super::world::{World, item, many};
use crate::common::{address, cidr, one, owner, put};
use crate::places::{Place, on_every_store};

on_every_store! {
    query_and_release_by_handle
    the_maximum_of_a_handle
    settings_are_kept
    a_table_of_given_addresses
    a_new_block_with_the_nodes_reserve
    owner_attributes
    a_block_at_hand
    the_first_block_with_something_free
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
    assert_eq!(world.store.get(&Key::Handle("h".into())).await.unwrap(), None);
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

/// SetOwnerAttributes: set, clear, overwrite, preconditions (match, mismatch, empty), wrong handle, unallocated, no pool,
/// full migration sequence, no-op.
async fn owner_attributes(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    let held = world.assign("node-a", "vm").await.unwrap();
    let pod = |name: &str| {
        let pairs = [("namespace", "default"), ("pod", name)];
        Attributes::Set(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let is = |name: &str| Expected::Pod { namespace: "default".to_owned(), name: name.to_owned() };
    let change = |active, alternate, if_active, if_alternate| OwnerChange {
        address: held,
        handle: "vm".into(),
        active,
        alternate,
        if_active,
        if_alternate,
    };
    use Attributes::{Clear, Keep};
    use Expected::{Anyone, Nobody};
    let migration = [
        change(pod("source"), Keep, Anyone, Anyone),
        change(Keep, pod("target"), is("source"), Nobody),
        change(pod("target"), pod("source"), is("source"), is("target")),
        change(Keep, Clear, Anyone, is("source")),
    ];
    for step in migration.clone() {
        assert!(world.book.change_owner(step).await.unwrap());
    }
    let found = world.book.lookup(held).await.unwrap().unwrap().attribute;
    assert_eq!(found.secondary["pod"], "target");
    assert!(found.alternate_owner.is_empty());
    assert!(!world.book.change_owner(change(pod("target"), Keep, Anyone, Anyone)).await.unwrap(), "no-op");
    for late in &migration[1..] {
        let error = world.book.change_owner(late.clone()).await.unwrap_err();
        assert!(matches!(error, BookError::OwnerChange(OwnerChangeError::OtherOwner { .. })), "{error}");
    }
    let other = OwnerChange { handle: "other".into(), ..migration[0].clone() };
    let error = world.book.change_owner(other).await.unwrap_err();
    assert!(matches!(error, BookError::OwnerChange(OwnerChangeError::OtherHandle { .. })), "{error}");
    world.delete_pool("pool-0").await;
    assert!(world.book.change_owner(change(Clear, Keep, Anyone, Anyone)).await.unwrap(), "no pool");
    assert_eq!(world.release("vm").await, [held]);
    let error = world.book.change_owner(migration[0].clone()).await.unwrap_err();
    assert!(matches!(error, BookError::OwnerChange(OwnerChangeError::NotAllocated(_))), "{error}");
    world.assert_clean().await;
}

/// EnsureBlock: errors as for AutoAssign, reserve too big, first pool used, idempotent, IPv6 uses the IPv6 pool list.
async fn a_block_at_hand(place: Place) {
    let pools = [
        json!({"cidr": "10.0.0.0/28", "blockSize": 30}),
        json!({"cidr": "10.1.0.0/28", "blockSize": 30}),
        json!({"cidr": "fd00::/124", "blockSize": 126}),
        json!({"cidr": "fd01::/124", "blockSize": 126}),
    ];
    let world = World::start(place, &pools).await;
    let both = [IpVersion::V4, IpVersion::V6];
    let reserving = |first| AssignRequest {
        host_reserve: Some(HostReserve { first, last: 1 }),
        pools_v6: vec!["pool-3".to_owned()],
        ..one("node-a", "h")
    };
    let too_big = world.book.ensure_blocks(&reserving(3), &both).await.unwrap_err();
    assert!(matches!(too_big, BookError::Assign(AssignError::NoPoolServes { .. })), "{too_big}");
    let blocks = world.book.ensure_blocks(&reserving(2), &both).await.unwrap();
    assert!(cidr("10.0.0.0/28").contains_cidr(&blocks[0]) && cidr("fd01::/124").contains_cidr(&blocks[1]));
    assert_eq!(world.block(blocks[0]).await.unwrap().unallocated, [2]);
    let before = world.block(blocks[0]).await;
    assert_eq!(world.another().await.ensure_blocks(&reserving(2), &both).await.unwrap(), blocks);
    assert_eq!((world.block(blocks[0]).await, world.blocks().await.len()), (before, 2), "idempotent");
    let unknown = AssignRequest { pools_v4: vec!["nowhere".to_owned()], ..one("node-a", "h") };
    let error = world.book.ensure_blocks(&unknown, &[IpVersion::V4]).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::PoolUnknown(..))), "{error}");
    world.assert_clean().await;
}

/// findOrClaimBlock: skips reserved, walks affine blocks in order, skips full ones, claims new, limit error, stateless
/// repeat.
async fn the_first_block_with_something_free(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/28", "blockSize": 30})]).await;
    let ensure = async |request: AssignRequest| world.book.ensure_blocks(&request, &[IpVersion::V4]).await;
    assert_eq!(world.assign_many("node-a", "h", 8).await.0.len(), 8);
    let own = world.affinities_of("node-a").await;
    let limited = AssignRequest { blocks_max: Some(2), ..one("node-a", "h") };
    let error = ensure(limited).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::BlockLimit { .. })), "{error}");
    for block in own.iter().rev() {
        world.book.release_addresses([item(block.network())]).await.unwrap();
        assert_eq!(ensure(one("node-a", "h")).await.unwrap(), [*block], "the first that is not full");
    }
    let networks: Vec<String> = own.iter().map(ToString::to_string).collect();
    put(&world.store, Kind::IpReservation, "own", json!({"reservedCIDRs": networks})).await;
    let new = ensure(one("node-a", "h")).await.unwrap();
    assert!(!own.contains(&new[0]), "a new one");
    assert_eq!(ensure(one("node-a", "h")).await.unwrap(), new, "the same again");
    world.assert_clean().await;
}
