//! What `plumb ipam check` finds, each kind of problem by itself.

use std::net::IpAddr;

use ipam::check::{Analysis, EndpointFacts, Evidence, NodeFacts, Problem, Really, User, analyse};
use ipam::{Books, Pool, Tunnel};
use model::ipam::{AffinityState, Block};
use model::{AffinityOwner, Cidr, Key};
use serde_json::json;

use crate::common::{World, owner};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn host(name: &str) -> AffinityOwner {
    AffinityOwner::Host(name.to_owned())
}

/// A cluster in order: two pods on one node, a tunnel address of each IP version on another.
struct Cluster {
    world: World,
    nodes: Vec<NodeFacts>,
    endpoints: Vec<EndpointFacts<'static>>,
    first: IpAddr,
}

fn endpoint(name: &str, address: IpAddr) -> EndpointFacts<'static> {
    EndpointFacts::owned("default".to_owned(), name.to_owned(), vec![address])
}

fn cluster() -> Cluster {
    let mut world = World::with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 28}),
        json!({"cidr": "fd00::/112", "blockSize": 124}),
    ]);
    let first = world.assign("node-a", "net.1").unwrap();
    let second = world.assign("node-a", "net.2").unwrap();
    let mut tunnels = Vec::new();
    for tunnel in [Tunnel::Vxlan, Tunnel::VxlanV6] {
        let wants = vec![ipam::Want::one_each(tunnel.owner("node-b"), None, &[tunnel.version()])];
        let mut request = world.request("node-b", wants);
        request.purpose = ipam::PoolUse::Tunnel;
        let (granted, steps) = world.plan(request).unwrap().single().unwrap();
        world.commit(&steps).unwrap();
        tunnels.push((tunnel, granted[0].address));
    }
    let node = |name: &str, tunnels| NodeFacts { name: name.to_owned(), tunnels };
    let nodes = vec![node("node-a", Vec::new()), node("node-b", tunnels)];
    Cluster { world, nodes, endpoints: vec![endpoint("one", first), endpoint("two", second)], first }
}

/// Pods of other network plugins have no endpoint. What nobody can tell to be unused is not called leaked, or a release
/// by the report would take it from the living; on a node that is gone nobody lives.
#[test]
fn addresses_of_other_plugins_are_not_leaked_while_their_node_is_there() {
    let mut cluster = cluster();
    let owners = [
        owner("other.1").with(ipam::ROLE_ATTRIBUTE, "ipam"),
        owner("gateway-other-node-a").with(ipam::TYPE_ATTRIBUTE, ipam::GATEWAY_TYPE),
    ];
    for owner in owners {
        let owner = owner.with(ipam::NODE_ATTRIBUTE, "node-a");
        let wants = vec![ipam::Want::one_each(owner, None, &[model::IpVersion::V4])];
        let (_, steps) =
            cluster.world.plan(cluster.world.request("node-a", wants)).unwrap().single().unwrap();
        cluster.world.commit(&steps).unwrap();
    }
    assert_eq!(cluster.problems(), []);
    cluster.nodes.retain(|node| node.name != "node-a");
    let is_leaked = |problem: &&Problem| matches!(problem, Problem::Leaked { .. });
    assert_eq!(cluster.problems().iter().filter(is_leaked).count(), 2);
}

impl Cluster {
    fn problems(&self) -> Vec<Problem> {
        self.with_analysis(|analysis| analysis.problems.clone())
    }

    fn with_analysis<T>(&self, use_it: impl Fn(&Analysis<'_>) -> T) -> T {
        let books: Books = self.world.books();
        let pools: Vec<Pool> = self.world.pools().into_iter().map(|pool| pool.value).collect();
        let evidence = Evidence {
            books: &books,
            pools: &pools,
            nodes: &self.nodes,
            endpoints: &self.endpoints,
            services: &[],
            now: self.world.now,
        };
        use_it(&analyse(&evidence))
    }

    fn block(&self) -> Cidr {
        self.world.affinities("node-a")[0].0
    }

    fn change_block(&mut self, change: impl Fn(&mut Block)) {
        let mut block = self.world.block(self.block()).unwrap().value;
        change(&mut block);
        self.world.store.put(Key::Block(self.block()), block.encode());
    }
}

#[test]
fn a_cluster_in_order_has_no_problems() {
    let mut cluster = cluster();
    assert_eq!(cluster.problems(), []);
    cluster.with_analysis(|analysis| {
        assert_eq!((analysis.allocations.len(), analysis.in_use), (4, 4));
        assert!(analysis.allocations.iter().all(|one| one.is_in_use && !one.is_borrowed));
    });
    // Cooling down and reserved by Windows are no problems; neither is a block without owner.
    cluster.world.configure(|config| config.ip_cooldown_seconds = 60);
    cluster.world.release("net.1");
    cluster.endpoints.remove(0);
    assert_eq!(cluster.problems(), []);
    let rule = ipam::ReleaseRule::default();
    for released in cluster.world.plan_release_of_host("node-a", rule) {
        cluster.world.commit(&released.result.unwrap()).unwrap();
    }
    assert_eq!(cluster.problems(), []);
}

#[test]
fn borrowed_addresses_are_marked() {
    let mut cluster = cluster();
    let block = cluster.block();
    cluster.change_block(|block| {
        let owner = ipam::Owner::on_node("net.9", "node-b", crate::common::now());
        ipam::take(block, &owner, 1, &ipam::Reservations::default());
    });
    let handle = json!({"block": {block.to_string(): 1}}).to_string();
    cluster.world.store.put(Key::Handle("net.9".into()), handle.into_bytes());
    let borrowed = cluster.with_analysis(|analysis| {
        analysis.allocations.iter().filter(|one| one.is_borrowed).map(|one| one.address).collect::<Vec<_>>()
    });
    assert_eq!(borrowed, cluster.world.held_by("net.9"));
}

/// calicoctl's six classes.
#[test]
fn what_calicoctl_finds() {
    // (1) allocated but not in use, (3) in use and in a pool but not allocated, (2) in use outside enabled pools.
    let mut cluster = cluster();
    let number = cluster.world.block(cluster.block()).unwrap().value.sequence_of(0);
    cluster.endpoints[0] = endpoint("one", "10.0.0.250".parse().unwrap());
    cluster.endpoints.push(endpoint("three", "192.168.0.1".parse().unwrap()));
    let user = |name: &str| User::Endpoint { namespace: "default".to_owned(), name: name.to_owned() };
    let expected = [
        Problem::Leaked { address: cluster.first, handle: Some("net.1".into()), sequence_number: number },
        Problem::UsedOutsidePools { address: "192.168.0.1".parse().unwrap(), users: vec![user("three")] },
        Problem::UsedNotAllocated { address: "10.0.0.250".parse().unwrap(), users: vec![user("one")] },
    ];
    assert_eq!(cluster.problems(), expected);
    assert_eq!(expected[0].to_string(), format!("{} is allocated to net.1 but not in use", cluster.first));
    assert_eq!(expected[2].to_string(), "10.0.0.250 is used by endpoint default/one but is not allocated");
    // What a pool gave out before it was disabled is in order, but nothing else of it.
    let mut cluster = self::cluster();
    cluster.world.put_pool("pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 28, "disabled": true}));
    assert_eq!(cluster.problems(), []);
    cluster.endpoints.push(endpoint("three", "10.0.0.250".parse().unwrap()));
    assert!(matches!(&cluster.problems()[..], [Problem::UsedOutsidePools { .. }]));
    // (2) again: the pool is gone.
    let mut cluster = self::cluster();
    cluster.world.put_pool("pool-0", json!({"cidr": "10.9.0.0/24", "blockSize": 28}));
    assert_eq!(cluster.problems().len(), 3);
    assert!(cluster.problems().iter().all(|one| matches!(one, Problem::UsedOutsidePools { .. })));
    // (4) handles that no block mentions, (5) handles that are missing, (6) blocks that contradict themselves.
    let mut cluster = self::cluster();
    cluster.world.store.put(Key::Handle("z.1".into()), br#"{"block":{"10.0.9.0/28":1}}"#.to_vec());
    cluster.world.store.delete(&Key::Handle("net.2".into()));
    let block = cluster.block();
    let expected = [
        Problem::HandleUnused { handle: "z.1".into(), revision: "1".to_owned() },
        Problem::HandleMissing { handle: "net.2".into(), blocks: vec![block] },
    ];
    assert_eq!(cluster.problems(), expected);
    cluster.change_block(|block| block.unallocated.push(5));
    let problems = cluster.problems();
    assert_eq!(
        problems.len(),
        2,
        "nothing is said about addresses of a block that cannot be trusted: {problems:?}"
    );
    assert!(problems[1].to_string().contains("address 5 is listed twice as unallocated"), "{}", problems[1]);
}

/// What calicoctl's check does not count.
#[test]
fn what_calicoctl_does_not_find() {
    let mut several = cluster();
    several.endpoints.push(endpoint("three", several.first));
    assert!(matches!(&several.problems()[..], [Problem::SeveralUsers { users, .. }] if users.len() == 2));

    let mut counts = cluster();
    let block = counts.block();
    let wrong = json!({"block": {block.to_string(): 7, "10.0.0.240/28": 1}}).to_string();
    counts.world.store.put(Key::Handle("net.1".into()), wrong.into_bytes());
    let count = |block, said, found| Problem::HandleCount { handle: "net.1".into(), block, said, found };
    let mut expected = [count(block, 7, 1), count(cidr("10.0.0.240/28"), 1, 0)];
    expected.sort_unstable();
    assert_eq!(counts.problems(), expected);

    let mut overlap = cluster();
    let inner = Cidr::containing(overlap.first, 29).unwrap();
    let mut inside = Block::new(inner, Some(&host("node-a")), 1);
    ipam::take(&mut inside, &crate::common::owner("net.1"), 1, &ipam::Reservations::default());
    overlap.world.store.put(inside.key(), inside.encode());
    overlap.world.put_affinity("node-a", inner, AffinityState::Confirmed);
    let problems = overlap.problems();
    assert!(problems.contains(&Problem::BlocksOverlap(overlap.block(), inner)), "{problems:?}");
    assert!(problems.iter().any(|one| matches!(one, Problem::AllocatedTwice { .. })), "{problems:?}");

    let mut affinities = cluster();
    let block = affinities.block();
    affinities.world.put_affinity("node-b", block, AffinityState::Confirmed);
    affinities.world.put_affinity("node-b", cidr("10.0.0.240/28"), AffinityState::Confirmed);
    affinities.world.put_affinity("node-a", block, AffinityState::Pending);
    let problems = affinities.problems();
    let differs = |block, really| Problem::AffinityDiffers { block, owner: host("node-b"), really };
    assert!(problems.contains(&differs(block, Really::OwnedBy(host("node-a")))), "{problems:?}");
    assert!(problems.contains(&differs(cidr("10.0.0.240/28"), Really::Absent)), "{problems:?}");
    assert!(problems.iter().any(|one| matches!(one, Problem::AffinityUnfinished { .. })));
    affinities.world.store.delete(&Key::Affinity { owner: host("node-a"), block });
    assert!(affinities.problems().contains(&Problem::AffinityMissing { block, owner: host("node-a") }));

    let mut gone = cluster();
    gone.nodes.remove(0);
    let expected = Problem::AffinityOfGoneNode { block: gone.block(), node: "node-a".to_owned() };
    assert_eq!(gone.problems(), std::slice::from_ref(&expected));
    assert_eq!(expected.to_string(), format!("block {} belongs to node node-a, which is gone", gone.block()));
}

#[test]
fn releases_from_the_future_and_unreadable_records_are_told() {
    let mut cluster = cluster();
    cluster.change_block(|block| {
        let later = crate::common::now().checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        ipam::give_back(block, &[0], Some(later));
    });
    let problems = cluster.problems();
    let told = "an address was released at 2026-08-22T07:33:20Z, which is to come";
    assert!(problems.iter().any(|one| one.to_string().contains(told)), "{problems:?}");
    let mut cluster = self::cluster();
    cluster.world.store.put(Key::Block(cluster.block()), b"{".to_vec());
    let problems = cluster.problems();
    assert!(problems.iter().any(|one| one.to_string().contains("EOF")), "{problems:?}");
    assert!(!problems.iter().any(|one| matches!(one, Problem::UsedNotAllocated { .. })), "{problems:?}");
}

/// What cannot be read vouches for everything it may hold: whichever record is spoilt, nothing is said about others that its being
/// missing would explain, and recovery neither deletes nor rewrites anything.
#[test]
fn an_unreadable_record_vouches_for_what_it_may_hold() {
    let whole = cluster();
    let mut keys: Vec<Key> = Vec::new();
    let books = whole.world.books();
    keys.extend(books.blocks.keys().map(|cidr| Key::Block(*cidr)));
    keys.extend(books.handles.keys().map(|id| Key::Handle(id.clone())));
    let affinities = books.affinities.keys();
    keys.extend(affinities.map(|(owner, block)| Key::Affinity { owner: owner.clone(), block: *block }));
    assert!(keys.len() > 8, "{keys:?}");
    for key in keys {
        let mut cluster = cluster();
        cluster.world.store.put(key.clone(), b"[".to_vec());
        let is_named =
            |problem: &&Problem| !matches!(problem, Problem::Corrupt(corrupt) if corrupt.key == key);
        let problems = cluster.problems();
        assert_eq!(problems.iter().filter(is_named).collect::<Vec<_>>(), [] as [&Problem; 0], "{key}");
        assert_eq!(problems.len(), 1, "{key}");
        assert_eq!(ipam::recover(&cluster.world.books()), [], "{key}");
    }
}

/// A handle that counts nothing in the block may belong to it all the same: counts are what goes wrong.
#[test]
fn no_handle_goes_while_a_block_cannot_be_read() {
    let mut cluster = cluster();
    let lost = model::ipam::Handle { block: [("10.0.0.240/28".to_owned(), 1)].into(), ..Default::default() };
    cluster.world.store.put(Key::Handle("net.lost".into()), lost.encode());
    let is_unused = |problem: &Problem| matches!(problem, Problem::HandleUnused { .. });
    assert!(cluster.problems().iter().any(is_unused));
    assert_eq!(ipam::recover(&cluster.world.books()).len(), 1);
    cluster.world.store.put(Key::Block(cluster.block()), b"[".to_vec());
    assert!(!cluster.problems().iter().any(is_unused), "{:?}", cluster.problems());
    assert_eq!(ipam::recover(&cluster.world.books()), []);
    let unjudged = cluster.with_analysis(|analysis| analysis.unjudged.clone());
    assert_eq!(unjudged.handles, ["net.1", "net.2", "net.lost"]);
    assert_eq!(unjudged.used.len(), 2, "{unjudged:?}");
}

#[test]
fn users_nodes_and_pools_that_cannot_be_read_vouch_for_any_address() {
    let spoilt = |key: Key| {
        let mut cluster = cluster();
        cluster.endpoints.remove(0);
        cluster.nodes.remove(1);
        let mut books = cluster.world.books();
        books.unreadable.push(ipam::Corrupt { key, contradictions: vec!["x".to_owned()] });
        let pools: Vec<Pool> = Vec::new();
        let evidence = Evidence {
            books: &books,
            pools: &pools,
            nodes: &cluster.nodes,
            endpoints: &cluster.endpoints,
            services: &[],
            now: cluster.world.now,
        };
        let analysis = analyse(&evidence);
        let count =
            |is_meant: fn(&Problem) -> bool| analysis.problems.iter().filter(|one| is_meant(one)).count();
        let leaked = count(|one| matches!(one, Problem::Leaked { .. }));
        let gone = count(|one| matches!(one, Problem::AffinityOfGoneNode { .. }));
        let outside = count(|one| matches!(one, Problem::UsedOutsidePools { .. }));
        (leaked, gone, outside, analysis.unjudged.allocated.len(), analysis.unjudged.outside_pools.len())
    };
    let resource = |kind, name: &str| Key::Resource { kind, namespace: None, name: name.to_owned() };
    assert_eq!(spoilt(resource(model::Kind::BgpPeer, "b")), (3, 2, 1, 0, 0));
    assert_eq!(spoilt(resource(model::Kind::WorkloadEndpoint, "e")), (0, 2, 1, 3, 0));
    assert_eq!(spoilt(resource(model::Kind::Node, "node-b")), (0, 0, 1, 3, 0));
    assert_eq!(spoilt(resource(model::Kind::IpPool, "p")), (3, 2, 0, 0, 1));
}
