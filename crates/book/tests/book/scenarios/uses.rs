//! Attributes, uses, reservations.

use ipam::{AssignError, HostReserve, PoolUse, Usage};
use model::Kind;
use serde_json::json;

use super::world::{World, many};
use crate::common::{address, put};
use crate::places::{Place, on_every_store};

on_every_store! {
    whose_an_address_is
    a_given_address_and_its_use
    reservations_and_the_reserve_of_a_node
    how_full_the_pools_are
}

/// Attribute query: no pool → not exist; no block → not exist; allocated → handle+attributes; free → not exist.
async fn whose_an_address_is(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    assert_eq!(world.book.lookup(address("192.168.0.1")).await.unwrap(), None, "no pool");
    assert_eq!(world.book.lookup(address("10.0.0.5")).await.unwrap(), None, "no block");
    world.give("node-a", "h", "10.0.0.5", None).await.unwrap();
    let found = world.book.lookup(address("10.0.0.5")).await.unwrap().unwrap();
    assert_eq!(found.attribute.handle(), Some(&"h".into()));
    assert_eq!(found.attribute.secondary.get("pod").map(String::as_str), Some("h"));
    assert_eq!(world.book.lookup(address("10.0.0.6")).await.unwrap(), None, "free");
    world.delete_pool("pool-0").await;
    assert_eq!(world.book.lookup(address("10.0.0.5")).await.unwrap(), Some(found), "and without its pool");
}

/// AssignIP use check: rejected, allowed, unset use allowed, Tunnel allowed by default pool.
async fn a_given_address_and_its_use(place: Place) {
    let pools = [json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "10.1.0.0/24", "allowedUses": ["Tunnel"]})];
    let world = World::start(place, &pools).await;
    let refused = world.give("node-a", "h", "10.1.0.1", Some(PoolUse::Workload)).await.unwrap_err();
    assert!(matches!(refused, AssignError::UseNotAllowed { .. }), "{refused}");
    for (given, purpose) in [
        ("10.1.0.1", Some(PoolUse::Tunnel)),
        ("10.1.0.2", None),
        ("10.0.0.1", Some(PoolUse::Workload)),
        ("10.0.0.2", Some(PoolUse::Tunnel)),
    ] {
        world.give("node-a", "h", given, purpose).await.unwrap();
    }
    assert_eq!(world.held("h").await.len(), 4);
    world.assert_clean().await;
}

/// 64 of 64 addresses without reservations; 58 with overlapping reservations; 55 with Windows reserve as well.
async fn reservations_and_the_reserve_of_a_node(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/26", "blockSize": 26})]).await;
    let rounds = [(false, None, 64), (true, None, 58), (true, Some(HostReserve::WINDOWS), 55)];
    for (round, (is_reserved, host_reserve, expected)) in rounds.into_iter().enumerate() {
        if is_reserved {
            let networks =
                json!({"reservedCIDRs": ["10.0.0.4/30", "10.0.0.6/31", "10.0.0.10", "10.0.0.63/32"]});
            put(&world.store, Kind::IpReservation, "reserved", networks).await;
        }
        let node = format!("node-{round}");
        let mut request = many(&node, "h", 100);
        request.host_reserve = host_reserve;
        let (given, shortage) = world.assign_as(request).await;
        assert_eq!((given.len(), matches!(shortage, Some(AssignError::Exhausted { .. }))), (expected, true));
        assert_eq!(world.release("h").await.len(), expected);
        world.book.release_host(&node, super::world::EMPTY_ONLY).await.unwrap();
        assert_eq!(world.blocks().await, []);
    }
}

/// Utilisation with reservations inside a block, over unblocked space, over an allocated address, overlapping.
async fn how_full_the_pools_are(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    world.give("node-a", "h", "10.0.0.1", None).await.unwrap();
    world.give("node-a", "h", "10.0.0.2", None).await.unwrap();
    let networks = ["10.0.0.1/32", "10.0.0.8/30", "10.0.0.10/32", "10.0.0.128/28"];
    put(&world.store, Kind::IpReservation, "reserved", json!({"reservedCIDRs": networks})).await;
    let usage = world.book.usage().await.unwrap().remove(0);
    assert_eq!(usage.blocks[0].1, Usage { capacity: 64, in_use: 2, reserved: 4 });
    assert_eq!(usage.total, Usage { capacity: 256, in_use: 2, reserved: 20 });
    assert_eq!(usage.total.available(), 234);
}
