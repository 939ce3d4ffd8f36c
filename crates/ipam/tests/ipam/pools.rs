//! Pools, selectors, limits, borrowing, reservations, given addresses.

use std::net::IpAddr;

use ipam::{AddressAssignment, AddressRequest, AssignError, PoolUse, Version};
use model::{Cidr, IpVersion};
use serde_json::json;

use crate::common::{World, labels, owner, want};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn is_in(network: &str, addresses: &[IpAddr]) -> bool {
    !addresses.is_empty() && addresses.iter().all(|address| cidr(network).contains(*address))
}

/// Assigns from the pools asked for, by name or network.
fn assign_from(
    world: &mut World,
    pools: &[&str],
    count: usize,
) -> Result<(Vec<IpAddr>, Option<AssignError>), AssignError> {
    let mut request = world.request("node-a", vec![want("a.0", count, 0)]);
    request.pools_v4 = pools.iter().map(|name| (*name).to_owned()).collect();
    request.changes_max = 10_000;
    let mut assigned = world.plan(request)?;
    world.commit(&assigned.steps).unwrap();
    let grant = assigned.grants.remove(0);
    Ok((grant.addresses.into_iter().map(|granted| granted.address).collect(), grant.shortage))
}

/// Checklist: the second address comes from the same block; after pool deletion both hosts move to the new pool.
#[test]
fn nodes_move_to_a_new_pool() {
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/24"})]);
    let first: Vec<IpAddr> =
        ["a.0", "a.1"].iter().map(|handle| world.assign("node-a", handle).unwrap()).collect();
    assert_eq!(world.blocks().len(), 1);
    assert!(is_in("10.0.0.0/24", &first));
    world.assign("node-b", "b.0").unwrap();
    world.put_pool("pool-1", json!({"cidr": "20.0.0.0/24"}));
    world.delete_pool("pool-0");
    let moved = [world.assign("node-a", "a.2").unwrap(), world.assign("node-b", "b.1").unwrap()];
    assert!(is_in("20.0.0.0/24", &moved));
    world.assert_books_agree();
}

/// Checklist: two pools requested separately stay separate; a full requested pool gives 0 addresses, no error; the first
/// of two requested pools is preferred; 300 over two pools; partial result when exhausted.
#[test]
fn requested_pools() {
    let two = || World::with_pools(&[json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "20.0.0.0/24"})]);
    let mut world = two();
    assert!(is_in("20.0.0.0/24", &assign_from(&mut world, &["pool-1"], 1).unwrap().0));
    assert!(is_in("10.0.0.0/24", &assign_from(&mut world, &["pool-0"], 1).unwrap().0));
    assert_eq!(assign_from(&mut world, &["pool-0"], 300).unwrap().0.len(), 255);
    let (none, shortage) = assign_from(&mut world, &["pool-0"], 1).unwrap();
    assert_eq!(
        (none.len(), shortage.unwrap().to_string()),
        (0, "no IPv4 address is free for node node-a in pool-0".to_owned())
    );
    let mut world = two();
    let (many, shortage) = assign_from(&mut world, &["pool-1", "pool-0"], 300).unwrap();
    assert_eq!((many.len(), shortage), (300, None));
    assert!(is_in("20.0.0.0/24", &many[..256]) && is_in("10.0.0.0/24", &many[256..]));
    assert_eq!(assign_from(&mut world, &["pool-1", "pool-0", "pool-1"], 300).unwrap().0.len(), 212);
    world.assert_books_agree();
}

/// Checklist: node selector: 300 requested, 256 from the matching pool only. Selector moved to another node with a full
/// pool: the old node errors, the new node borrows.
#[test]
fn node_selectors() {
    let pool = |node: &str| json!({"cidr": "10.0.0.0/24", "nodeSelector": format!("name == '{node}'")});
    let mut world = World::with_pools(&[
        pool("node-a"),
        json!({"cidr": "20.0.0.0/24", "nodeSelector": "name == 'node-b'"}),
    ]);
    let (many, shortage) = world.assign_many("node-a", "a.0", 300);
    assert!(is_in("10.0.0.0/24", &many));
    assert_eq!((many.len(), matches!(shortage, Some(AssignError::Exhausted { .. }))), (256, true));
    world.delete_pool("pool-1");
    world.put_pool("pool-0", pool("node-b"));
    let error = world.assign("node-a", "a.1").unwrap_err();
    assert_eq!(error.to_string(), "no enabled IP pool gives IPv4 addresses for Workload use on node node-a");
    let borrowed_from = world.blocks()[0];
    let mut item = ipam::ReleaseItem { address: many[0], handle: None, sequence_number: None };
    item.address = many.iter().copied().find(|address| borrowed_from.contains(*address)).unwrap();
    let pools = world.pools().into_iter().map(|pool| pool.value).collect();
    let released = world.drive(&mut ipam::AddressRelease::new([item.clone()], pools, None, 128)).unwrap();
    world.commit(&released.steps).unwrap();
    assert_eq!(world.assign("node-b", "b.0").unwrap(), item.address);
    assert!(world.affinities("node-b").is_empty());
    world.assert_books_agree();
}

/// Checklist: strict affinity toggled off/on/off with a single-block pool.
#[test]
fn strict_affinity() {
    let mut world = World::with_pool("10.0.0.0/26", 26);
    world.assign("node-a", "a.0").unwrap();
    world.assign("node-b", "b.0").unwrap();
    world.configure(|config| config.strict_affinity = true);
    assert!(matches!(world.assign("node-b", "b.1"), Err(AssignError::Exhausted { .. })));
    assert!(world.assign("node-a", "a.1").is_ok());
    world.configure(|config| config.strict_affinity = false);
    assert!(world.assign("node-b", "b.1").is_ok());
    world.assert_books_agree();
}

/// Checklist: MaxBlocksPerHost=2: the 9th address fails; the stricter of global and request wins; raising it works.
#[test]
fn the_block_limit() {
    let mut world = World::with_pool("10.0.0.0/24", 30);
    world.configure(|config| config.strict_affinity = true);
    world.configure(|config| config.max_blocks_per_host = 2);
    let (eight, shortage) = world.assign_many("node-a", "a.0", 9);
    let limit = |blocks| AssignError::BlockLimit {
        host: "node-a".to_owned(),
        version: Version(IpVersion::V4),
        blocks,
    };
    assert_eq!((eight.len(), shortage), (8, Some(limit(2))));
    assert_eq!(
        limit(2).to_string(),
        "node node-a has no free IPv4 address left in its 2 blocks, and may not have more"
    );
    world.configure(|config| config.max_blocks_per_host = 3);
    let mut request = world.request("node-a", vec![want("a.1", 5, 0)]);
    request.blocks_max = Some(2);
    assert_eq!(world.plan(request.clone()).unwrap().grants[0].shortage, Some(limit(2)));
    request.blocks_max = Some(20);
    let assigned = world.plan(request).unwrap();
    assert_eq!((assigned.grants[0].addresses.len(), &assigned.grants[0].shortage), (4, &Some(limit(3))));
    // The built-in limit is 20 per IP version.
    world.configure(|config| config.max_blocks_per_host = 0);
    let (rest, shortage) = world.assign_many("node-a", "a.2", 1000);
    assert_eq!((rest.len(), shortage), (72, Some(limit(20))));
    world.assert_books_agree();
}

/// §7 #9: at the block limit, a node borrows where affinity is not strict.
#[test]
fn at_the_block_limit_a_node_borrows() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.assign("node-b", "b.0").unwrap();
    let mut request = world.request("node-a", vec![want("a.0", 7, 0)]);
    request.blocks_max = Some(1);
    let assigned = world.plan(request.clone()).unwrap();
    world.commit(&assigned.steps).unwrap();
    let borrowed = assigned.grants[0].addresses.iter().filter(|granted| granted.is_borrowed).count();
    assert_eq!((assigned.grants[0].addresses.len(), borrowed), (7, 3));
    assert_eq!(world.affinities("node-a").len(), 1);
    world.assert_books_agree();
    // Nothing left to borrow: the limit is the reason.
    request.wants = vec![want("a.1", 1, 0)];
    let shortage = world.plan(request).unwrap().grants.remove(0).shortage;
    assert!(matches!(shortage, Some(AssignError::BlockLimit { .. })), "{shortage:?}");
}

/// Checklist, AutoAssign table: tiny/big/default blocks; 256+256; limits; "pool exhausted"; 63 own + 1 borrowed; strict.
#[test]
fn auto_assign_table() {
    for (block_size, wanted, expected) in [
        (32, 20, 20),
        (26, 256, 256),
        (24, 256, 256),
        (20, 256, 256),
        (26, 257, 256),
        (29, 160, 160),
        (29, 161, 160),
    ] {
        let network = if block_size == 20 { "10.0.0.0/20" } else { "10.0.0.0/24" };
        let mut world = World::with_pool(network, block_size);
        let (given, shortage) = world.assign_many("node-a", "a.0", wanted);
        assert_eq!(given.len(), expected, "/{block_size} {wanted}");
        assert_eq!(shortage.is_some(), expected < wanted, "/{block_size} {wanted}: {shortage:?}");
        world.assert_books_agree();
    }
    let exhausted = World::with_pool("10.0.0.0/24", 26).assign_many("node-a", "a.0", 257).1.unwrap();
    assert_eq!(exhausted.to_string(), "no IPv4 address is free for node node-a in pool-0");
    for (limit, expected) in [(1, 64), (2, 128)] {
        let mut world = World::with_pool("10.0.0.0/24", 26);
        world.configure(|config| config.strict_affinity = true);
        world.configure(|config| config.max_blocks_per_host = limit);
        assert_eq!(world.assign_many("node-a", "a.0", 300).0.len(), expected);
    }
    for (is_strict, own, borrowed) in [(false, 63, 1), (true, 63, 0)] {
        let mut world = World::with_pool("10.0.0.0/25", 26);
        world.configure(|config| config.strict_affinity = is_strict);
        world.assign("node-a", "a.0").unwrap();
        world.assign("node-b", "b.0").unwrap();
        let assigned = world.plan(world.request("node-a", vec![want("a.1", 64, 0)])).unwrap();
        let found = assigned.grants[0].addresses.iter().filter(|granted| granted.is_borrowed).count();
        assert_eq!((assigned.grants[0].addresses.len() - found, found), (own, borrowed));
        assert_eq!(assigned.grants[0].shortage.is_some(), is_strict);
    }
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "fd00::/120"})]);
    let mut request = world.request("node-a", vec![want("a.0", 256, 256)]);
    request.changes_max = 1000;
    let assigned = world.plan(request).unwrap();
    assert_eq!((assigned.grants[0].addresses.len(), &assigned.grants[0].shortage), (512, &None));
    world.commit(&assigned.steps).unwrap();
    world.assert_books_agree();
}

#[test]
fn blocks_are_not_claimed_where_that_is_switched_off() {
    let mut world = World::with_pool("10.0.0.0/28", 30);
    world.configure(|config| config.auto_allocate_blocks = false);
    world.configure(|config| config.strict_affinity = true);
    let error = world.assign("node-a", "a.0").unwrap_err();
    assert!(matches!(error, AssignError::ClaimsOff { .. }), "{error}");
    // A block that was claimed for the node serves.
    world.put_affinity("node-a", cidr("10.0.0.4/30"), model::ipam::AffinityState::Pending);
    assert!(world.assign("node-a", "a.0").is_ok());
}

/// Checklist: 64 of 64 addresses without reservations, 58 with overlapping ones; whole reserved blocks are skipped, also
/// where several reservations cover them together.
#[test]
fn reservations() {
    let mut world = World::with_pool("10.0.0.0/26", 26);
    assert_eq!(world.clone().assign_many("node-a", "a.0", 100).0.len(), 64);
    world.reserved = ["10.0.0.0/30", "10.0.0.2/31", "10.0.0.10/32", "10.0.0.63/32"].map(cidr).to_vec();
    let (given, _) = world.assign_many("node-a", "a.0", 100);
    assert_eq!(given.len(), 58);
    assert!(given.iter().all(|address| !world.reserved.iter().any(|network| network.contains(*address))));
    let mut world = World::with_pool("10.0.0.0/24", 26);
    world.reserved = ["10.0.0.0/25", "10.0.0.128/27", "10.0.0.160/27"].map(cidr).to_vec();
    assert!(is_in("10.0.0.192/26", &world.assign_many("node-a", "a.0", 100).0));
    assert_eq!(world.blocks(), [cidr("10.0.0.192/26")], "no block was claimed for nothing");
    world.reserved = vec![cidr("10.0.0.0/24")];
    assert!(matches!(world.assign("node-a", "a.1"), Err(AssignError::Exhausted { .. })));
}

/// Checklist: long host names with equal prefixes keep separate affinities.
#[test]
fn long_host_names() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let (one, other) = (format!("{}1", "a".repeat(251)), format!("{}2", "a".repeat(251)));
    world.assign(&one, "a.0").unwrap();
    world.assign(&other, "b.0").unwrap();
    assert_eq!((world.affinities(&one).len(), world.affinities(&other).len()), (1, 1));
    world.assert_books_agree();
}

fn assign_address(world: &mut World, host: &str, handle: &str, address: &str) -> Result<IpAddr, AssignError> {
    let request = AddressRequest {
        host: host.to_owned(),
        owner: owner(handle),
        addresses: vec![address.parse().unwrap()],
        purpose: Some(PoolUse::Workload),
        node_labels: labels(&[("name", host)]),
        blocks_max: None,
        handle_max: None,
        host_reserve: None,
    };
    let assigned = world.drive(&mut AddressAssignment::new(request, world.surroundings(host)))?;
    world.commit(&assigned.steps).unwrap();
    Ok(assigned.grants[0].addresses[0].address)
}

/// Checklist: AssignIP table: v4, v6, outside pools, twice; use check; strict; §7 #23.
#[test]
fn given_addresses() {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/24"}),
        json!({"cidr": "fd00::/112"}),
        json!({"cidr": "10.2.0.0/24", "allowedUses": ["Tunnel"]}),
        json!({"cidr": "10.3.0.0/24", "nodeSelector": "name == 'node-b'"}),
        json!({"cidr": "10.4.0.0/24", "disabled": true}),
        json!({"cidr": "10.5.0.0/24", "assignmentMode": "Manual"}),
    ]);
    world.reserved = vec![cidr("10.0.0.9/32")];
    for address in ["10.0.0.5", "fd00::5", "10.5.0.5", "10.0.0.9"] {
        assert_eq!(assign_address(&mut world, "node-a", "a.0", address).unwrap().to_string(), address);
        world.assert_books_agree();
    }
    // By its own holder again: as before. By another: refused.
    assert!(assign_address(&mut world, "node-a", "a.0", "10.0.0.5").is_ok());
    let errors = [
        ("b.0", "10.0.0.5", "10.0.0.5 belongs to handle a.0"),
        ("a.0", "10.9.0.5", "10.9.0.5 is in no enabled IP pool"),
        ("a.0", "10.4.0.5", "10.4.0.5 is in no enabled IP pool"),
        ("a.0", "10.2.0.5", "the IP pool pool-2 of 10.2.0.5 does not allow Workload use"),
        ("a.0", "10.3.0.5", "the IP pool pool-3 of 10.3.0.5 does not serve node node-a"),
    ];
    for (handle, address, expected) in errors {
        let error = assign_address(&mut world, "node-a", handle, address).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(assign_address(&mut world, "node-b", "b.0", "10.0.0.6").is_ok(), "borrowed");
    world.configure(|config| config.strict_affinity = true);
    let error = assign_address(&mut world, "node-b", "b.0", "10.0.0.7").unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.7 is in block 10.0.0.0/26 of node node-a, and affinity is strict");
    world.configure(|config| config.max_blocks_per_host = 2);
    let error = assign_address(&mut world, "node-a", "a.0", "10.0.0.100").unwrap_err();
    assert!(matches!(error, AssignError::BlockLimit { .. }), "{error}");
    world.configure(|config| config.auto_allocate_blocks = false);
    let error = assign_address(&mut world, "node-b", "b.0", "10.0.0.100").unwrap_err();
    assert!(matches!(error, AssignError::ClaimsOff { .. }), "{error}");
    world.configure(|config| config.ip_cooldown_seconds = 60);
    world.release("b.0");
    let error = assign_address(&mut world, "node-a", "a.0", "10.0.0.6").unwrap_err();
    assert!(matches!(error, AssignError::CoolingDown { .. }), "{error}");
    world.assert_books_agree();
}

/// Checklist: AssignIP use check: Tunnel is allowed by a pool that says nothing, and so is a use that is not given.
#[test]
fn a_given_address_may_be_for_any_use_that_the_pool_allows() {
    let world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/24"}),
        json!({"cidr": "10.1.0.0/24", "allowedUses": ["Tunnel"]}),
    ]);
    for (purpose, address, is_allowed) in [
        (Some(PoolUse::Tunnel), "10.0.0.5", true),
        (Some(PoolUse::LoadBalancer), "10.0.0.5", false),
        (Some(PoolUse::Workload), "10.1.0.5", false),
        (Some(PoolUse::Tunnel), "10.1.0.5", true),
        (None, "10.1.0.5", true),
    ] {
        let request = AddressRequest {
            host: "node-a".to_owned(),
            owner: owner("a.0"),
            addresses: vec![address.parse().unwrap()],
            purpose,
            node_labels: labels(&[]),
            blocks_max: None,
            handle_max: None,
            host_reserve: None,
        };
        let decided = world.drive(&mut AddressAssignment::new(request, world.surroundings("node-a")));
        assert_eq!(decided.is_ok(), is_allowed, "{purpose:?} {address}");
    }
}

#[test]
fn several_given_addresses_come_together_or_not_at_all() {
    let mut world = World::with_pools(&[json!({"cidr": "10.0.0.0/24"}), json!({"cidr": "fd00::/112"})]);
    let request = |addresses: &[&str]| AddressRequest {
        host: "node-a".to_owned(),
        owner: owner("a.0"),
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        purpose: None,
        node_labels: labels(&[]),
        blocks_max: None,
        handle_max: None,
        host_reserve: None,
    };
    let assigned = world
        .drive(&mut AddressAssignment::new(
            request(&["10.0.0.1", "10.0.0.2", "fd00::1"]),
            world.surroundings("node-a"),
        ))
        .unwrap();
    world.commit(&assigned.steps).unwrap();
    assert_eq!(world.held_by("a.0").len(), 3);
    world.assert_books_agree();
    world.assign("node-a", "b.0").unwrap();
    let taken = world.held_by("b.0")[0].to_string();
    let refused = world
        .drive(&mut AddressAssignment::new(request(&["10.0.0.9", &taken]), world.surroundings("node-a")));
    assert!(matches!(refused, Err(AssignError::Taken { .. })));
}

/// The pool is shrunk while a node has a block outside of what is left: that block is not used any more, and its
/// addresses can still be given back.
#[test]
fn a_pool_that_shrinks() {
    let mut world = World::with_pool("10.0.0.0/24", 26);
    let before = world.assign("node-a", "a.0").unwrap();
    let rest = if cidr("10.0.0.0/25").contains(before) { "10.0.0.128/25" } else { "10.0.0.0/25" };
    world.put_pool("pool-0", json!({"cidr": rest, "blockSize": 26}));
    assert!(is_in(rest, &[world.assign("node-a", "a.1").unwrap()]));
    assert_eq!(world.release("a.0"), [before]);
    world.assert_books_agree();
}

/// A node that comes back under another name finds its old blocks to be another's: they are borrowed from, taken over
/// once they are empty, and never confused with its own.
#[test]
fn a_node_that_is_renamed() {
    let mut world = World::with_pool("10.0.0.0/30", 30);
    let old = world.assign("old-name", "a.0").unwrap();
    let new = world.assign("new-name", "b.0").unwrap();
    assert!(world.affinities("new-name").is_empty() && old != new);
    world.release("a.0");
    world.release("b.0");
    world.now = world.now.checked_add(jiff::SignedDuration::from_secs(61)).unwrap();
    world.assign("new-name", "b.1").unwrap();
    assert_eq!((world.affinities("new-name").len(), world.affinities("old-name").len()), (1, 0));
    world.assert_books_agree();
}
