//! Pools and selectors.

use std::net::IpAddr;

use ipam::{AssignError, PoolUse};
use serde_json::{Value, json};

use super::world::{EMPTY_ONLY, World, item, many};
use crate::common::{cidr, one};
use crate::places::{Place, on_every_store};

on_every_store! {
    both_hosts_move_to_the_new_pool
    requested_pools
    a_node_selector_leaves_one_pool
    a_selector_that_moves_to_another_node
    a_deselected_block_goes_with_its_last_address
    a_deselected_block_goes_with_the_next_assignment
    namespaces_and_uses
}

fn is_in(network: &str, addresses: &[IpAddr]) -> bool {
    !addresses.is_empty() && addresses.iter().all(|address| cidr(network).contains(*address))
}

fn selecting(network: &str, node: &str) -> Value {
    json!({"cidr": network, "blockSize": 26, "nodeSelector": format!("name == '{node}'")})
}

/// Second address comes from the same block; after pool deletion both hosts move to the new pool.
async fn both_hosts_move_to_the_new_pool(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24"})]).await;
    let first = [world.assign("node-a", "a.0").await.unwrap(), world.assign("node-a", "a.1").await.unwrap()];
    assert!(is_in("10.0.0.0/24", &first) && world.blocks().await.len() == 1);
    world.assign("node-b", "b.0").await.unwrap();
    world.put_pool("pool-1", json!({"cidr": "20.0.0.0/24"})).await;
    world.delete_pool("pool-0").await;
    let moved = [world.assign("node-a", "a.2").await.unwrap(), world.assign("node-b", "b.1").await.unwrap()];
    assert!(is_in("20.0.0.0/24", &moved), "{moved:?}");
    world.assert_clean().await;
}

/// Two pools requested separately stay separate; a full requested pool gives 0 addresses, no error. Disabled requested
/// pool, wrong-family pool, unknown pool: errors; first of two requested pools preferred; 300 over two pools; partial
/// result when exhausted.
async fn requested_pools(place: Place) {
    let pools = [
        json!({"cidr": "10.0.0.0/24"}),
        json!({"cidr": "20.0.0.0/24"}),
        json!({"cidr": "30.0.0.0/24", "disabled": true}),
        json!({"cidr": "fd00::/112"}),
    ];
    let world = World::start(place, &pools).await;
    let from = async |handle: &str, pools: &[&str], count| {
        let mut request = many("node-a", handle, count);
        request.pools_v4 = pools.iter().map(|name| (*name).to_owned()).collect();
        world.assign_as(request).await
    };
    assert!(is_in("20.0.0.0/24", &from("a", &["pool-1"], 1).await.0));
    assert!(is_in("10.0.0.0/24", &from("a", &["10.0.0.0/24"], 1).await.0));
    assert_eq!(from("a", &["pool-0"], 300).await.0.len(), 255, "partial");
    let (none, shortage) = from("a", &["pool-0"], 1).await;
    assert!(none.is_empty() && matches!(shortage, Some(AssignError::Exhausted { .. })));
    for pool in ["pool-2", "pool-3", "nowhere"] {
        assert!(matches!(from("a", &[pool], 1).await.1, Some(AssignError::PoolUnknown(..))), "{pool}");
    }
    world.release("a").await;
    world.book.release_host("node-a", EMPTY_ONLY).await.unwrap();
    let (all, shortage) = from("b", &["pool-1", "pool-0"], 300).await;
    assert_eq!((all.len(), shortage), (300, None));
    let of_first = all.iter().filter(|address| cidr("20.0.0.0/24").contains(**address)).count();
    assert_eq!(of_first, 256);
    world.assert_clean().await;
}

/// Node selector: 300 requested, 256 from the matching pool only.
async fn a_node_selector_leaves_one_pool(place: Place) {
    let pools = [selecting("10.0.0.0/24", "node-a"), selecting("20.0.0.0/24", "node-b")];
    let world = World::start(place, &pools).await;
    world.put_node("node-a", &[("name", "node-a")]).await;
    let (given, _) = world.assign_many("node-a", "a.0", 300).await;
    assert!(given.len() == 256 && is_in("10.0.0.0/24", &given));
    world.assert_clean().await;
}

/// Selector moved to another node with a full pool: old node errors ("no configured pools"), new node borrows.
async fn a_selector_that_moves_to_another_node(place: Place) {
    let world = World::start(place, &[selecting("10.0.0.0/25", "node-a")]).await;
    world.put_node("node-a", &[("name", "node-a")]).await;
    world.put_node("node-b", &[("name", "node-b")]).await;
    let (full, _) = world.assign_many("node-a", "a.0", 128).await;
    assert_eq!(full.len(), 128);
    world.put_pool("pool-0", selecting("10.0.0.0/25", "node-b")).await;
    let error = world.assign("node-a", "a.1").await.unwrap_err();
    assert!(matches!(error, AssignError::NoPoolServes { .. }), "{error}");
    world.book.release_addresses([item(full[7])]).await.unwrap();
    let grant = world.book.assign(one("node-b", "b.0")).await.unwrap();
    assert!(grant.addresses[0].address == full[7] && grant.addresses[0].is_borrowed);
    assert_eq!(world.affinities_of("node-b").await, []);
    world.assert_clean().await;
}

/// Selector change then release (by IP / by handle): affinity kept until empty, then block removed.
async fn a_deselected_block_goes_with_its_last_address(place: Place) {
    let world = World::start(place, &[selecting("10.0.0.0/24", "node-a")]).await;
    world.put_node("node-a", &[("name", "node-a")]).await;
    for by_address in [true, false] {
        world.put_pool("pool-0", selecting("10.0.0.0/24", "node-a")).await;
        let first = world.assign("node-a", "a.0").await.unwrap();
        let second = world.assign("node-a", "a.1").await.unwrap();
        world.put_pool("pool-0", selecting("10.0.0.0/24", "node-b")).await;
        for (handle, address) in [("a.0", first), ("a.1", second)] {
            assert_eq!(world.affinities_of("node-a").await.len(), 1, "kept until it is empty");
            if by_address {
                world.book.release_addresses([item(address)]).await.unwrap();
            } else {
                world.release(handle).await;
            }
        }
        assert!(world.blocks().await.is_empty() && world.affinities().await.is_empty(), "{by_address}");
    }
}

/// Emptied block of a deselecting pool is released at the next assign; a use mismatch or an explicit other pool does
/// **not** release.
async fn a_deselected_block_goes_with_the_next_assignment(place: Place) {
    let pools = [selecting("10.0.0.0/24", "node-a"), json!({"cidr": "20.0.0.0/24"})];
    let world = World::start(place, &pools).await;
    world.put_node("node-a", &[("name", "node-a")]).await;
    world.assign("node-a", "a.0").await.unwrap();
    world.release("a.0").await;
    let block = world.blocks().await[0];
    let mut elsewhere = one("node-a", "a.1");
    elsewhere.pools_v4 = vec!["pool-1".to_owned()];
    world.assign_as(elsewhere).await;
    assert!(world.affinities_of("node-a").await.contains(&block), "another pool was asked for");
    let mut of_tunnels = selecting("10.0.0.0/24", "node-a");
    of_tunnels["allowedUses"] = json!(["Tunnel"]);
    world.put_pool("pool-0", of_tunnels).await;
    world.assign("node-a", "a.2").await.unwrap();
    assert!(world.affinities_of("node-a").await.contains(&block), "another use");
    world.put_pool("pool-0", selecting("10.0.0.0/24", "node-b")).await;
    world.assign("node-a", "a.3").await.unwrap();
    assert!(!world.affinities_of("node-a").await.contains(&block));
    assert_eq!(world.block(block).await, None);
    world.assert_clean().await;
}

/// Namespace selector: match, no match, combined with node selector, requested pools override. Pool with only Tunnel
/// refused for Workload and the reverse.
async fn namespaces_and_uses(place: Place) {
    let pools = [
        json!({"cidr": "10.0.0.0/24", "namespaceSelector": "team == 'x'", "allowedUses": ["Workload"]}),
        json!({"cidr": "20.0.0.0/24", "namespaceSelector": "has(team)", "nodeSelector": "name == 'node-b'", "allowedUses": ["Workload"]}),
        json!({"cidr": "30.0.0.0/24", "allowedUses": ["Tunnel"]}),
    ];
    let world = World::start(place, &pools).await;
    world.put_node("node-b", &[("name", "node-b")]).await;
    for (node, team, asked, purpose, expected) in [
        ("node-a", Some("x"), None, PoolUse::Workload, Some("10.0.0.0/24")),
        ("node-a", Some("y"), None, PoolUse::Workload, None),
        ("node-b", Some("y"), None, PoolUse::Workload, Some("20.0.0.0/24")),
        ("node-a", None, None, PoolUse::Workload, None),
        ("node-a", None, Some("pool-1"), PoolUse::Workload, Some("20.0.0.0/24")),
        ("node-a", None, Some("pool-2"), PoolUse::Workload, None),
        ("node-a", None, None, PoolUse::Tunnel, Some("30.0.0.0/24")),
        ("node-a", None, Some("pool-0"), PoolUse::Tunnel, None),
    ] {
        let mut request = many(node, "h", 1);
        request.namespace_labels =
            team.map(|team| ("team".to_owned(), team.to_owned())).into_iter().collect();
        request.pools_v4 = asked.map(str::to_owned).into_iter().collect();
        request.purpose = purpose;
        let (given, error) = world.assign_as(request).await;
        match expected {
            Some(network) => {
                assert!(is_in(network, &given), "{node} {team:?} {asked:?}: {given:?} {error:?}")
            }
            None => assert!(matches!(error, Some(AssignError::NoPoolServes { .. })), "{error:?}"),
        }
    }
    world.assert_clean().await;
}
