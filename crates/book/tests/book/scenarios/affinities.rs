//! Affinity.

use ipam::Refusal;
use model::Key;
use serde_json::json;

use super::world::{EMPTY_ONLY, World, host};
use crate::common::put_record;
use crate::places::{Place, on_every_store};

on_every_store! {
    a_block_in_use_is_kept_and_an_empty_one_deleted
    an_affinity_of_old_is_released_through_its_pool
    of_three_blocks_the_one_in_use_stays
    blocks_of_a_deleted_pool_can_be_given_up
}

/// Release requiring empty fails while in use, works after; block deleted (by CIDR and by exact block).
async fn a_block_in_use_is_kept_and_an_empty_one_deleted(place: Place) {
    let pool = json!({"cidr": "10.0.0.0/24", "blockSize": 26});
    let world = World::start(place, &[pool]).await;
    for is_exact in [false, true] {
        world.assign("node-a", "a.0").await.unwrap();
        let block = world.blocks().await[0];
        let release = async || {
            let network = "10.0.0.0/24".parse().unwrap();
            let released = if is_exact {
                world.book.release_blocks(vec![(host("node-a"), block)], EMPTY_ONLY).await
            } else {
                world.book.release_network(network, host("node-a"), EMPTY_ONLY).await
            };
            released.unwrap().remove(0).result
        };
        assert_eq!(release().await, Err(Refusal::InUse(block)));
        world.release("a.0").await;
        assert_eq!(release().await, Ok(true));
        assert!(world.blocks().await.is_empty() && world.affinities().await.is_empty());
    }
}

/// Old affinity without type can be released through its pool.
async fn an_affinity_of_old_is_released_through_its_pool(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    world.assign("node-a", "a.0").await.unwrap();
    world.release("a.0").await;
    let cidr = world.blocks().await[0];
    let mut old = world.block(cidr).await.unwrap();
    (old.affinity, old.host_affinity) = (None, Some("node-a".to_owned()));
    put_record(&world.store, old.key(), old.encode()).await;
    put_record(&world.store, Key::Affinity { owner: host("node-a"), block: cidr }, Vec::new()).await;
    let released = world.book.release_pool("10.0.0.0/24".parse().unwrap(), EMPTY_ONLY).await.unwrap();
    assert_eq!((released.len(), released[0].result.clone()), (1, Ok(true)));
    assert!(world.blocks().await.is_empty() && world.affinities().await.is_empty());
}

/// Three blocks, one in use: host release removes two and returns an error.
async fn of_three_blocks_the_one_in_use_stays(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await;
    for number in 0..12 {
        world.assign("node-a", &format!("a.{number}")).await.unwrap();
    }
    for number in 0..11 {
        world.release(&format!("a.{number}")).await;
    }
    let released = world.book.release_host("node-a", EMPTY_ONLY).await.unwrap();
    let refused = released.iter().filter(|given_up| given_up.result.is_err()).count();
    assert_eq!((released.len(), refused, world.blocks().await.len()), (3, 1, 1));
    world.assert_clean().await;
}

/// Pool deleted: host affinities can still be released; blocks vanish when their addresses are released.
async fn blocks_of_a_deleted_pool_can_be_given_up(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 30})]).await;
    world.assign_many("node-a", "a.0", 8).await;
    world.delete_pool("pool-0").await;
    let released = world.book.release_host("node-a", ipam::ReleaseRule::default()).await.unwrap();
    assert!(released.len() == 2 && released.iter().all(|given_up| given_up.result == Ok(true)));
    assert_eq!((world.affinities().await.len(), world.blocks().await.len()), (0, 2));
    assert_eq!(world.release("a.0").await.len(), 8);
    assert_eq!(world.blocks().await, []);
    world.assert_clean().await;
}
