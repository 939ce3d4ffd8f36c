//! Checklist: utilisation with reservations inside a block, over unblocked space, over an allocated address, overlapping;
//! huge pools saturate.

use ipam::{Pool, Reservations, Usage, pool_usage};
use model::Cidr;
use serde_json::json;

use crate::common::World;

fn usage(world: &World) -> Vec<ipam::PoolUsage> {
    let pools: Vec<Pool> = world.pools().into_iter().map(|pool| pool.value).collect();
    let blocks: Vec<_> = world.blocks().into_iter().map(|cidr| world.block(cidr).unwrap().value).collect();
    pool_usage(&pools, &blocks, &Reservations::new(&world.reserved))
}

fn total(capacity: u128, in_use: u128, reserved: u128) -> Usage {
    Usage { capacity, in_use, reserved }
}

#[test]
fn pools_and_their_blocks() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    assert_eq!(usage(&world)[0].total, total(256, 0, 0));
    let taken = world.assign("node-a", "a.0").unwrap();
    world.assign("node-a", "a.1").unwrap();
    let block = world.blocks()[0];
    assert_eq!(usage(&world)[0].blocks, [(block, total(64, 2, 0))]);
    assert_eq!(usage(&world)[0].total.available(), 254);
    let elsewhere: Cidr =
        if block == "10.0.0.0/26".parse().unwrap() { "10.0.0.64/28" } else { "10.0.0.0/28" }.parse().unwrap();
    let in_block = Cidr::containing(world.block(block).unwrap().value.address(60).unwrap(), 30).unwrap();
    let one_of_them = Cidr::single(world.block(block).unwrap().value.address(61).unwrap());
    let cases = [
        (vec![elsewhere], total(64, 2, 0), total(256, 2, 16)),
        (vec![in_block], total(64, 2, 4), total(256, 2, 4)),
        (vec![in_block, one_of_them], total(64, 2, 4), total(256, 2, 4)),
        (vec![Cidr::single(taken)], total(64, 2, 0), total(256, 2, 0)),
        (vec!["10.0.0.0/24".parse().unwrap()], total(64, 2, 62), total(256, 2, 254)),
        (vec!["10.9.0.0/24".parse().unwrap()], total(64, 2, 0), total(256, 2, 0)),
    ];
    for (reserved, of_block, of_pool) in cases {
        world.reserved = reserved;
        let found = usage(&world).remove(0);
        assert_eq!((found.blocks[0].1, found.total), (of_block, of_pool), "{:?}", world.reserved);
    }
}

#[test]
fn blocks_in_no_pool_are_shown_in_both_versions() {
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "fd00::/64"})]);
    let mut request = world.request("node-a", vec![crate::common::want("a.0", 1, 1)]);
    request.changes_max = 128;
    let steps = world.plan(request).unwrap().steps;
    world.commit(&steps).unwrap();
    assert_eq!(usage(&world)[1].total, total(1 << 64, 1, 0));
    world.delete_pool("pool-0");
    world.delete_pool("pool-1");
    let left = usage(&world);
    assert_eq!(
        (left.len(), left[0].name.as_ref(), left[0].blocks.len(), left[0].total),
        (1, None, 2, total(128, 2, 0))
    );
    world.put_pool("all", json!({"cidr": "::/0"}));
    assert_eq!(usage(&world)[0].total, total(u128::MAX, 1, 0));
}
