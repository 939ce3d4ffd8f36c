//! Having a block at hand. Checklist: EnsureBlock.

use ipam::{AssignError, BlockEnsurance, Ensured, HostReserve, Request};
use model::ipam::AffinityState;
use model::{Cidr, IpVersion};
use serde_json::json;

use crate::common::World;

const V4: &[IpVersion] = &[IpVersion::V4];
const BOTH: &[IpVersion] = &[IpVersion::V4, IpVersion::V6];

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn ensure(world: &mut World, request: Request, versions: &[IpVersion]) -> Result<Ensured, AssignError> {
    let surroundings = world.surroundings(&request.host);
    let ensured = world.drive(&mut BlockEnsurance::new(request, versions, surroundings)?)?;
    world.commit(&ensured.steps).unwrap();
    world.assert_books_agree();
    Ok(ensured)
}

/// Checklist: idempotent; IPv6 uses the IPv6 pool list; first pool used.
#[test]
fn a_node_gets_a_block_of_each_version_once() {
    for is_atomic in [true, false] {
        let mut world = World::with_pools(&[
            json!({"cidr": "10.0.0.0/28", "blockSize": 30}),
            json!({"cidr": "10.1.0.0/28", "blockSize": 30}),
            json!({"cidr": "fd00::/124", "blockSize": 126}),
            json!({"cidr": "fd01::/124", "blockSize": 126}),
        ]);
        world.is_atomic = is_atomic;
        let mut request = world.request("node-a", Vec::new());
        request.pools_v6 = vec!["pool-3".to_owned()];
        let first = ensure(&mut world, request.clone(), BOTH).unwrap();
        assert!(cidr("10.0.0.0/28").contains_cidr(&first.blocks[0]), "the first pool");
        assert!(cidr("fd01::/124").contains_cidr(&first.blocks[1]), "the pool that was asked for");
        let again = ensure(&mut world, request, BOTH).unwrap();
        assert_eq!((again.blocks, again.steps.is_empty()), (first.blocks.clone(), true));
        assert!(first.blocks[0].contains(world.assign("node-a", "a.0").unwrap()), "it serves");
    }
}

/// Checklist: the reserve is in the new block; reserve too big.
#[test]
fn a_new_block_has_the_nodes_reserve() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    let mut request = world.request("node-a", Vec::new());
    request.host_reserve = Some(HostReserve::WINDOWS);
    let too_big = ensure(&mut world, request.clone(), V4).unwrap_err();
    assert!(matches!(too_big, AssignError::NoPoolServes { .. }), "{too_big}");
    request.host_reserve = Some(HostReserve { first: 2, last: 1 });
    let block = ensure(&mut world, request, V4).unwrap().blocks[0];
    assert_eq!(world.block(block).unwrap().value.unallocated, [2]);
    assert_eq!(world.assign("node-a", "a.0").unwrap().to_string(), "10.0.0.2");
}

/// Checklist: errors as for AutoAssign; findOrClaimBlock: skips reserved, skips full ones, claims new, limit error.
#[test]
fn what_keeps_an_address_away_keeps_a_block_away() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    let request = world.request("node-a", Vec::new());
    let full = ensure(&mut world, request.clone(), V4).unwrap().blocks[0];
    assert_eq!(world.assign_many("node-a", "a.0", 4).0.len(), 4);
    let limited = Request { blocks_max: Some(1), ..request.clone() };
    let error = ensure(&mut world, limited, V4).unwrap_err();
    assert!(matches!(error, AssignError::BlockLimit { .. }), "{error}");
    let order = ipam::BlockOrder::new(cidr("10.0.0.0/28"), 30, "node-a", &Default::default());
    let next = order.skip(1).collect::<Vec<_>>();
    world.reserved = vec![next[0]];
    assert_eq!(
        ensure(&mut world, request.clone(), V4).unwrap().blocks,
        [next[1]],
        "neither full nor reserved"
    );
    assert_ne!(full, next[1]);
    let error = ensure(&mut world, request.clone(), &[IpVersion::V6]).unwrap_err();
    assert!(matches!(error, AssignError::NoPoolServes { .. }), "{error}");
    let asked = Request { pools_v4: vec!["nowhere".to_owned()], ..request };
    assert!(matches!(ensure(&mut world, asked, V4), Err(AssignError::PoolUnknown(..))));
}

/// Checklist: findOrClaimBlock: walks affine blocks in order; stateless repeat.
#[test]
fn the_first_block_with_something_free_is_taken() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    assert_eq!(world.assign_many("node-a", "a.0", 12).0.len(), 12);
    let own: Vec<Cidr> = world.affinities("node-a").into_iter().map(|(block, _)| block).collect();
    let pools: Vec<_> = world.pools().into_iter().map(|pool| pool.value).collect();
    for block in own.iter().rev() {
        let item = ipam::ReleaseItem { address: block.network(), handle: None, sequence_number: None };
        let released = world.drive(&mut ipam::AddressRelease::new([item], pools.clone(), None, 128)).unwrap();
        world.commit(&released.steps).unwrap();
        let request = world.request("node-a", Vec::new());
        for _ in 0..2 {
            assert_eq!(ensure(&mut world, request.clone(), V4).unwrap().blocks, [*block]);
        }
    }
}

/// Another node's block is borrowed from for an address, but does not become the node's.
#[test]
fn a_borrowed_block_is_none_of_ones_own() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    world.assign("node-b", "b.0").unwrap();
    assert!(world.clone().assign("node-a", "a.0").is_ok());
    let request = world.request("node-a", Vec::new());
    let error = ensure(&mut world, request.clone(), V4).unwrap_err();
    assert!(matches!(error, AssignError::Exhausted { .. }), "{error}");
    // Empty and old it is taken over.
    world.release("b.0");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    assert_eq!(ensure(&mut world, request, V4).unwrap().blocks, [cidr("10.0.0.0/30")]);
    assert_eq!(world.affinities("node-a").len(), 1);
}

#[test]
fn an_unfinished_claim_is_finished() {
    for has_block in [false, true] {
        let mut world = World::with_pool("10.0.0.0/28", 30);
        if has_block {
            world.assign("node-a", "a.0").unwrap();
        }
        let block = world.blocks().first().copied().unwrap_or_else(|| cidr("10.0.0.4/30"));
        world.put_affinity("node-a", block, AffinityState::Pending);
        let request = world.request("node-a", Vec::new());
        let ensured = ensure(&mut world, request, V4).unwrap();
        assert_eq!((ensured.blocks[0], ensured.steps.is_empty()), (block, false));
        assert_eq!(world.affinity("node-a", block).unwrap().state, AffinityState::Confirmed);
    }
}
