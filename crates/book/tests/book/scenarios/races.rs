//! Race and claim tests: many at once.

use std::collections::BTreeSet;

use ipam::ReleaseRule;
use model::AffinityOwner;
use model::ipam::AffinityState;
use serde_json::json;

use super::world::{EMPTY_ONLY, World, host};
use crate::common::{cidr, one};
use crate::places::{Place, on_every_store};

on_every_store! {
    thirty_two_hosts_race_for_sixteen_blocks
    four_requests_at_once_on_one_host
    four_claims_of_one_network_and_four_releases
    hosts_and_other_owners_of_one_name_do_not_interfere
    a_claim_table
}

/// 32 hosts race for a 16-block pool: all get an address, exactly 16 affinities, each confirmed and matching its block;
/// hosts with a block got their address from it.
async fn thirty_two_hosts_race_for_sixteen_blocks(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 28})]).await;
    let mut racers = Vec::new();
    for number in 0..32 {
        let book = world.another().await;
        let node = format!("node-{number}");
        racers.push((node.clone(), tokio::spawn(async move { book.assign(one(&node, &node)).await })));
    }
    let mut given = Vec::new();
    for (node, racer) in racers {
        given.push((node, racer.await.unwrap().unwrap().addresses[0].address));
    }
    assert_eq!(given.iter().map(|(_, address)| address).collect::<BTreeSet<_>>().len(), 32);
    let affinities = world.affinities().await;
    assert_eq!(affinities.len(), 16);
    for (owner, block, state) in affinities {
        assert_eq!(state, AffinityState::Confirmed);
        assert_eq!(world.block(block).await.unwrap().owner(), Some(owner.clone()));
        let (_, address) = given.iter().find(|(node, _)| host(node) == owner).unwrap();
        assert!(block.contains(*address), "{owner:?} has {block} and got {address}");
    }
    world.assert_clean().await;
}

/// 4 concurrent requests on one host: all succeed, one affinity.
async fn four_requests_at_once_on_one_host(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    let mut requests = Vec::new();
    for number in 0..4 {
        let book = world.another().await;
        requests.push(tokio::spawn(async move { book.assign(one("node-a", &format!("h.{number}"))).await }));
    }
    let mut given = BTreeSet::new();
    for request in requests {
        given.insert(request.await.unwrap().unwrap().addresses[0].address);
    }
    assert_eq!((given.len(), world.affinities().await.len()), (4, 1));
    world.assert_clean().await;
}

/// 4 concurrent ClaimAffinity of the same /22 by one host: each sees 16 successes; then 4 concurrent releases succeed.
async fn four_claims_of_one_network_and_four_releases(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/16", "blockSize": 26})]).await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        let book = world.another().await;
        claims
            .push(tokio::spawn(async move { book.claim_blocks(cidr("10.0.0.0/22"), host("node-a")).await }));
    }
    for claim in claims {
        let claims = claim.await.unwrap().unwrap();
        assert_eq!((claims.claimed.len(), claims.taken.len(), claims.unusable.len()), (16, 0, 0));
    }
    assert_eq!(world.affinities().await.len(), 16);
    world.assert_clean().await;
    let mut releases = Vec::new();
    for _ in 0..4 {
        let book = world.another().await;
        releases.push(tokio::spawn(async move {
            book.release_network(cidr("10.0.0.0/22"), host("node-a"), EMPTY_ONLY).await
        }));
    }
    for release in releases {
        assert!(release.await.unwrap().unwrap().iter().all(|given_up| given_up.result.is_ok()));
    }
    assert_eq!((world.affinities().await.len(), world.blocks().await.len()), (0, 0));
}

/// Claim and release of host and virtual affinities with the same owner name do not interfere; releasing twice finds
/// nothing.
async fn hosts_and_other_owners_of_one_name_do_not_interfere(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    let (of_host, of_other) = (host("x"), AffinityOwner::Virtual("x".to_owned()));
    let (one, other) = (cidr("10.0.0.0/26"), cidr("10.0.0.64/26"));
    assert_eq!(world.book.claim_blocks(one, of_host.clone()).await.unwrap().claimed, [one]);
    assert_eq!(world.book.claim_blocks(other, of_other.clone()).await.unwrap().claimed, [other]);
    let claims = world.book.claim_blocks(one, of_other.clone()).await.unwrap();
    assert_eq!(claims.taken, [(one, Some(of_host.clone()))]);
    let release = async |owner: &AffinityOwner, block| {
        let released = world.book.release_blocks(vec![(owner.clone(), block)], EMPTY_ONLY).await.unwrap();
        released[0].result.clone()
    };
    assert_eq!(release(&of_other, one).await, Ok(false), "not its own");
    assert_eq!(world.blocks().await.len(), 2);
    for (owner, block) in [(of_host, one), (of_other, other)] {
        assert_eq!(release(&owner, block).await, Ok(true));
        assert_eq!(release(&owner, block).await, Ok(false), "twice");
    }
    assert_eq!(world.blocks().await, []);
    world.assert_clean().await;
}

/// ClaimAffinity table: one block, too small, partly taken (3+1), free (4), taken (0+4).
async fn a_claim_table(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/16", "blockSize": 26})]).await;
    for (network, node, claimed, taken) in [
        ("10.0.0.0/26", "node-a", 1, 0),
        ("10.0.0.0/24", "node-b", 3, 1),
        ("10.0.1.0/24", "node-a", 4, 0),
        ("10.0.1.0/24", "node-b", 0, 4),
    ] {
        let claims = world.book.claim_blocks(cidr(network), host(node)).await.unwrap();
        assert_eq!((claims.claimed.len(), claims.taken.len()), (claimed, taken), "{network} {node}");
    }
    let too_small = world.book.claim_blocks(cidr("10.0.0.0/27"), host("node-a")).await.unwrap_err();
    assert!(too_small.to_string().starts_with("10.0.0.0/27 is smaller than a block"), "{too_small}");
    world.assert_clean().await;
    // A pool's blocks go all at once, whoever has them.
    let released = world.book.release_pool(cidr("10.0.0.0/16"), ReleaseRule::default()).await.unwrap();
    assert_eq!((released.len(), world.blocks().await.len()), (8, 0));
}
