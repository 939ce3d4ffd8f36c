//! Limits, borrowing, sizes.

use ipam::AssignError;
use serde_json::json;

use super::world::{World, many};
use crate::places::{Place, on_every_store};

on_every_store! {
    strict_affinity_is_toggled
    borrowed_addresses_are_released_by_handle
    the_block_limit
    an_assignment_table
    two_hosts_in_two_blocks
    long_host_names
}

/// Strict affinity toggled off/on/off with a single-block pool.
async fn strict_affinity_is_toggled(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/26", "blockSize": 26})]).await;
    world.assign("node-a", "a.0").await.unwrap();
    world.assign("node-b", "b.0").await.unwrap();
    world.book.change_config(|config| config.strict_affinity = true).await.unwrap();
    assert!(matches!(world.assign("node-b", "b.1").await, Err(AssignError::Exhausted { .. })));
    world.assign("node-a", "a.1").await.unwrap();
    world.book.change_config(|config| config.strict_affinity = false).await.unwrap();
    world.assign("node-b", "b.1").await.unwrap();
    world.assert_clean().await;
}

/// Borrowed addresses released by handle.
async fn borrowed_addresses_are_released_by_handle(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    world.assign("node-a", "a.0").await.unwrap();
    let (borrowed, _) = world.assign_many("node-b", "b.0", 3).await;
    assert_eq!((borrowed.len(), world.release("b.0").await.len()), (3, 3));
    assert_eq!(world.held("a.0").await.len(), 1);
    world.assert_clean().await;
}

/// MaxBlocksPerHost=2: 9th address fails; stricter of global and request wins; raising the limit works.
async fn the_block_limit(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await;
    let limit_to = async |blocks| {
        let change = |config: &mut model::ipam::IpamConfig| {
            (config.strict_affinity, config.max_blocks_per_host) = (true, blocks);
        };
        world.book.change_config(change).await.unwrap();
    };
    limit_to(2).await;
    let (eight, error) = world.assign_many("node-a", "a.0", 9).await;
    assert!(
        eight.len() == 8 && matches!(error, Some(AssignError::BlockLimit { blocks: 2, .. })),
        "{error:?}"
    );
    limit_to(3).await;
    let stricter = book::AssignRequest { blocks_max: Some(2), ..many("node-a", "a.1", 1) };
    assert!(matches!(world.assign_as(stricter).await.1, Some(AssignError::BlockLimit { .. })));
    let looser = book::AssignRequest { blocks_max: Some(20), ..many("node-a", "a.1", 5) };
    assert_eq!(world.assign_as(looser).await.0.len(), 4, "the global one is stricter");
    limit_to(4).await;
    world.assign("node-a", "a.2").await.unwrap();
    world.assert_clean().await;
}

/// AutoAssign table: tiny/big/default blocks; 256+256; small blocks with limit 256; block-limit 1 and 2 give 64/128 plus
/// error and message; 257 gives 256 plus "pool exhausted" message.
async fn an_assignment_table(place: Place) {
    let world = World::start(place, &[]).await;
    for (block_size, limit, wanted, expected) in [
        (32, None, 20, 20),
        (29, Some(256), 256, 256),
        (26, None, 256, 256),
        (24, None, 256, 256),
        (26, None, 257, 256),
        (26, Some(1), 300, 64),
        (26, Some(2), 300, 128),
    ] {
        world.put_pool("pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": block_size})).await;
        let change = |config: &mut model::ipam::IpamConfig| {
            (config.strict_affinity, config.max_blocks_per_host) = (limit.is_some(), limit.unwrap_or(0));
        };
        world.book.change_config(change).await.unwrap();
        let (given, error) = world.assign_many("node-a", "h", wanted).await;
        assert_eq!(given.len(), expected, "/{block_size}, limit {limit:?}, {wanted}: {error:?}");
        let said = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(said.contains("may not have more"), limit.is_some() && expected < wanted, "{said}");
        assert_eq!(said.contains("no IPv4 address is free"), limit.is_none() && expected < wanted, "{said}");
        world.assert_clean().await;
        world.release("h").await;
        world.book.release_host("node-a", super::world::EMPTY_ONLY).await.unwrap();
    }
    world
        .book
        .change_config(|config| (config.strict_affinity, config.max_blocks_per_host) = (false, 0))
        .await
        .unwrap();
    world.put_pool("pool-1", json!({"cidr": "fd00::/120"})).await;
    let both = book::AssignRequest { v6: 256, ..many("node-a", "h", 256) };
    assert_eq!(world.assign_as(both).await.0.len(), 512);
    world.assert_clean().await;
}

/// Two hosts in two blocks, 64 more → 63 own + 1 borrowed; strict gives 64 plus message.
async fn two_hosts_in_two_blocks(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/25", "blockSize": 26})]).await;
    world.assign("node-a", "a.0").await.unwrap();
    world.assign("node-b", "b.0").await.unwrap();
    let grant = world.book.assign(many("node-a", "a.1", 64)).await.unwrap();
    let borrowed = grant.addresses.iter().filter(|granted| granted.is_borrowed).count();
    assert_eq!((grant.addresses.len(), borrowed, grant.shortage), (64, 1, None));
    world.release("a.1").await;
    world.book.change_config(|config| config.strict_affinity = true).await.unwrap();
    let (own, error) = world.assign_many("node-a", "a.1", 64).await;
    assert!(own.len() == 63 && matches!(error, Some(AssignError::Exhausted { .. })), "{error:?}");
    world.assert_clean().await;
}

/// Long host names (252 characters, equal prefixes) keep separate affinities.
async fn long_host_names(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    let (one, other) = (format!("{}1", "a".repeat(251)), format!("{}2", "a".repeat(251)));
    world.assign(&one, "a.0").await.unwrap();
    world.assign(&other, "b.0").await.unwrap();
    let (of_one, of_other) = (world.affinities_of(&one).await, world.affinities_of(&other).await);
    assert!(of_one.len() == 1 && of_other.len() == 1 && of_one != of_other);
    world.assert_clean().await;
}
