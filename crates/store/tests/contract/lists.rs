//! Lists: which records, in which order, and which moment their pages show.

use model::{AffinityOwner, Cidr, IpVersion, Key, Kind};
use store::{Change, ListRequest};

use super::*;

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn affinity(owner: AffinityOwner, block: &str) -> Key {
    Key::Affinity { owner, block: cidr(block) }
}

fn endpoint(namespace: &str, name: &str) -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, namespace, name)
}

/// One or more records of every sort, with neighbours that a sloppy prefix would catch.
fn zoo() -> Vec<Key> {
    let host = |name: &str| AffinityOwner::Host(name.to_owned());
    let virt = |name: &str| AffinityOwner::Virtual(name.to_owned());
    vec![
        pool("default"),
        Key::cluster(Kind::IpReservation, "r"),
        Key::cluster(Kind::Node, "node-a"),
        Key::cluster(Kind::GlobalNetworkSet, "g"),
        Key::namespaced(Kind::NetworkSet, "blue", "s"),
        endpoint("blue", "node1-k8s-web-eth0"),
        endpoint("blue", "node1-k8s-web--1-eth0"),
        endpoint("blue", "node2-k8s-web-eth0"),
        endpoint("blue-green", "node1-k8s-web-eth0"),
        Key::Block(cidr("10.0.0.0/26")),
        Key::Block(cidr("10.0.0.64/26")),
        Key::Block(cidr("fd00::/122")),
        affinity(host("node-a"), "10.0.0.0/26"),
        affinity(host("node-a"), "fd00::/122"),
        affinity(host("node-ab"), "10.0.0.64/26"),
        affinity(virt("load-balancer"), "10.0.1.0/26"),
        handle("h1"),
        handle("h2"),
        Key::IpamConfig,
    ]
}

pub(super) async fn every_range_holds_its_own_and_nothing_else(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let mut zoo = zoo();
    let views_are_kept = store.capabilities().endpoints_are_records;
    let is_view = |kind: &Kind| matches!(kind, Kind::Node | Kind::WorkloadEndpoint);
    zoo.retain(|key| views_are_kept || !matches!(key, Key::Resource { kind, .. } if is_view(kind)));
    zoo.sort_by_key(Key::etcd_text);
    zoo.dedup();
    for key in &zoo {
        create(&*store, key, "x").await;
    }
    let host = |name: &str| AffinityOwner::Host(name.to_owned());
    let prefix = |namespace: Option<&str>, prefix: &str| KeyRange::NamePrefix {
        kind: Kind::WorkloadEndpoint,
        namespace: namespace.map(str::to_owned),
        prefix: prefix.to_owned(),
    };
    let ranges = [
        (KeyRange::Everything, zoo.len()),
        (KeyRange::Kind(Kind::IpPool), 1),
        (KeyRange::Kind(Kind::Node), 1),
        (KeyRange::Kind(Kind::WorkloadEndpoint), 4),
        (KeyRange::Namespace(Kind::WorkloadEndpoint, "blue".into()), 3),
        (prefix(Some("blue"), "node1-k8s-web-"), 2),
        (prefix(Some("blue"), "node1-k8s-web-eth0"), 1),
        (prefix(Some("blue"), ""), 3),
        (KeyRange::Blocks(IpVersion::V4), 2),
        (KeyRange::Blocks(IpVersion::V6), 1),
        (KeyRange::HostAffinities, 3),
        (KeyRange::AffinitiesOf(host("node-a"), IpVersion::V4), 1),
        (KeyRange::AffinitiesOf(host("node-a"), IpVersion::V6), 1),
        (KeyRange::AffinitiesOf(AffinityOwner::Virtual("load-balancer".into()), IpVersion::V4), 1),
        (KeyRange::VirtualAffinities, 1),
        (KeyRange::Handles, 2),
        (KeyRange::IpamConfig, 1),
    ];
    for (range, count) in ranges {
        let of_view = matches!(&range, KeyRange::Kind(kind) | KeyRange::Namespace(kind, _)
            | KeyRange::NamePrefix { kind, .. } if is_view(kind));
        if of_view && !views_are_kept {
            continue;
        }
        let start = range.etcd_prefix();
        let expected: Vec<&Key> = zoo.iter().filter(|key| key.etcd_text().starts_with(&start)).collect();
        assert_eq!(expected.len(), count, "{range:?}");
        let (records, _) = store.list_all(range.clone()).await.unwrap();
        assert_eq!(records.iter().map(|record| &record.key).collect::<Vec<_>>(), expected, "{range:?}");
    }
}

pub(super) async fn empty_ranges_are_empty(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let revision = create(&*store, &pool("a"), "a").await;
    for range in [
        KeyRange::Handles,
        KeyRange::Kind(Kind::Tier),
        KeyRange::Namespace(Kind::NetworkPolicy, "nowhere".into()),
        KeyRange::Blocks(IpVersion::V6),
        KeyRange::AffinitiesOf(AffinityOwner::Host("nobody".into()), IpVersion::V4),
    ] {
        let page = store.list(ListRequest::new(range.clone())).await.unwrap();
        assert_eq!(page.records, [], "{range:?}");
        assert_eq!(page.next, None, "{range:?}");
        assert_eq!(page.revision, revision, "an empty list shows a moment, too");
    }
}

pub(super) async fn pages_follow_one_another_in_key_order(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let keys: Vec<Key> = (0..25).map(|n| handle(format!("h{n:02}"))).collect();
    store
        .commit(keys.iter().rev().map(|key| Change::create(key.clone(), value("x"))).collect())
        .await
        .unwrap();
    create(&*store, &pool("outside"), "x").await;
    let (expected, revision) = store.list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(expected.iter().map(|record| record.key.clone()).collect::<Vec<_>>(), keys);

    for limit in [1, 2, 24, 25, 26, 500] {
        let mut request = ListRequest::new(KeyRange::Handles).with_limit(limit);
        let mut records = Vec::new();
        loop {
            let page = store.list(request.clone()).await.unwrap();
            assert_eq!(page.revision, revision);
            assert!(page.records.len() <= limit);
            records.extend(page.records);
            match page.next {
                Some(next) => request = request.continued(next),
                None => break,
            }
        }
        assert_eq!(records, expected, "in pages of {limit}");
    }
}

pub(super) async fn pages_show_one_moment_while_records_change(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let keys: Vec<Key> = (0..12).map(|n| handle(format!("h{n:02}"))).collect();
    for key in &keys {
        create(&*store, key, "old").await;
    }
    // Already gone before the list starts: must not come back.
    let gone = create(&*store, &handle("h03x"), "gone").await;
    store.delete(handle("h03x"), gone).await.unwrap();
    let (expected, moment) = store.list_all(KeyRange::Handles).await.unwrap();

    let mut request = ListRequest::new(KeyRange::Handles).with_limit(2);
    let mut records = Vec::new();
    for round in 0.. {
        let page = store.list(request.clone()).await.unwrap();
        assert_eq!(page.revision, moment, "every page shows the same moment");
        records.extend(page.records);
        match page.next {
            Some(next) => request = request.continued(next),
            None => break,
        }
        disturb(&*store, &keys, round).await;
    }
    assert_eq!(records, expected);
    assert_ne!(store.list_all(KeyRange::Handles).await.unwrap().0, expected, "the disturbance was real");
}

/// Changes, removes, re-creates and adds records ahead of and behind the reader.
async fn disturb(store: &dyn Store, keys: &[Key], round: usize) {
    for (index, key) in keys.iter().enumerate() {
        match (read(store, key).await, (index + round) % 3) {
            (Some(record), 0) => {
                store.delete(key.clone(), record.revision).await.unwrap();
            }
            (Some(record), 1) => {
                store.update(key.clone(), value(&format!("new {round}")), record.revision).await.unwrap();
            }
            (None, 2) => {
                create(store, key, "reborn").await;
            }
            _ => {}
        }
    }
    create(store, &handle(format!("h{:02}-added-{round}", (round * 5) % 12)), "added").await;
}

pub(super) async fn a_page_can_be_asked_for_again(backend: &dyn Backend) {
    let store = backend.fresh().await;
    for n in 0..6 {
        create(&*store, &handle(format!("h{n}")), "old").await;
    }
    let first = store.list(ListRequest::new(KeyRange::Handles).with_limit(2)).await.unwrap();
    let request = ListRequest::new(KeyRange::Handles).with_limit(2).continued(first.next.unwrap());
    let second = store.list(request.clone()).await.unwrap();
    disturb(&*store, &[handle("h2"), handle("h3"), handle("h4")], 1).await;
    assert_eq!(store.list(request.clone()).await.unwrap(), second);
    let wider = store.list(request.with_limit(100)).await.unwrap();
    assert_eq!(wider.records.len(), 4);
    assert_eq!(wider.next, None);
}
