//! Copies that stop anywhere, and what others do to them.

use std::collections::{BTreeMap, BTreeSet};

use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::kube::Layout;
use model::transfer::information::{begun, unfinished};
use model::{AffinityOwner, Cidr, Kind};
use serde_json::json;
use store::wrap::{FailingStore, Failure as Fault, StepwiseStore};
use store::{MemoryStore, Store};

use super::*;
use crate::cli::DryRun;
use crate::cli::copy::CopyFormat;

fn copy() -> Copy {
    Copy {
        from: None,
        to: None,
        from_config: None,
        to_config: None,
        dry_run: DryRun { dry_run: false },
        while_unlocked: false,
        partial: false,
        existing: ExistingRule::Refuse,
        keep_locked: false,
        output: CopyFormat::Text,
    }
}

/// What the command does between opening the stores and telling.
async fn run_between(copy: &Copy, from: &Opened, to: &Opened) -> Result<Job, Failures> {
    let source = Source::read(from, "the source").await?;
    source.check(copy)?;
    let mut job = Job::plan(copy, source, to, "the destination").await?;
    Failures::collect(job.summary.refusals())?;
    job.carry_out(copy, to).await?;
    Ok(job)
}

fn opened(store: Arc<dyn Store>, layout: Option<Layout>) -> Opened {
    Opened { store, layout }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn resource(kind: Kind, name: &str, spec: serde_json::Value) -> (Key, Vec<u8>) {
    let mut resource = Resource::new(kind, name);
    if kind.is_namespaced() {
        resource.metadata.namespace = Some("shop".to_owned());
    }
    resource.body.insert("spec".to_owned(), spec);
    (resource.key(), resource.encode())
}

/// A locked cluster: two blocks of two nodes, with pods enough for several commits.
fn cluster() -> Vec<(Key, Vec<u8>)> {
    let mut records = vec![
        resource(Kind::ClusterInformation, "default", json!({"clusterGUID": "g", "datastoreReady": false})),
        resource(Kind::IpPool, "pods", json!({"cidr": "10.65.0.0/16", "blockSize": 25})),
        resource(Kind::Tier, "default", json!({"order": 1_000_000, "defaultAction": "Deny"})),
        resource(Kind::GlobalNetworkPolicy, "deny", json!({"later": 18446744073709551615_u64})),
        (Key::IpamConfig, br#"{"strict_affinity":true,"auto_allocate_blocks":true}"#.to_vec()),
    ];
    for (number, node) in ["a", "b"].into_iter().enumerate() {
        records.push(resource(Kind::Node, node, json!({"ipv4VXLANTunnelAddr": format!("10.65.{number}.0")})));
        let cidr: Cidr = format!("10.65.{number}.0/25").parse().unwrap();
        let owner = AffinityOwner::Host(node.to_owned());
        let mut block = ipam::new_block(cidr, &owner, None, jiff::Timestamp::UNIX_EPOCH);
        for pod in 0..70 {
            let handle = format!("net.{node}{pod}");
            let of = ipam::Owner::on_node(handle.clone(), node, jiff::Timestamp::UNIX_EPOCH);
            ipam::take(&mut block, &of, 1, &ipam::Reservations::default());
            let counted = Handle { block: [(cidr.to_string(), 1)].into(), ..Handle::default() };
            records.push((Key::Handle(handle.into()), counted.encode()));
        }
        let affinity = Affinity::new(AffinityState::Confirmed).encode();
        records.push((block.key(), block.encode()));
        records.push((Key::Affinity { owner, block: cidr }, affinity));
    }
    records
}

async fn source() -> Opened {
    let store = memory();
    for (key, value) in cluster() {
        store.create(key, value).await.unwrap();
    }
    opened(store, None)
}

/// A destination as Kubernetes is one: it has the nodes already, and makes changes one by one.
async fn kubernetes() -> Arc<dyn Store> {
    let store = memory();
    for node in ["a", "b"] {
        let (key, value) = resource(Kind::Node, node, json!({}));
        store.create(key, value).await.unwrap();
    }
    store
}

async fn contents(store: &dyn Store) -> BTreeMap<Key, Bytes> {
    let (records, _) = store.list_all(model::KeyRange::Everything).await.unwrap();
    records.into_iter().map(|record| (record.key, record.value)).collect()
}

/// What may be read of a destination at any time. Says whether it may be used.
fn check(found: &BTreeMap<Key, Bytes>, expected: usize) -> bool {
    let information = found
        .get(&information::key())
        .map(|value| Resource::decode(&information::key(), Kind::ClusterInformation, value, "").unwrap());
    let handles: BTreeSet<&Key> = found.keys().filter(|key| matches!(key, Key::Handle(_))).collect();
    for (key, value) in found {
        match key {
            Key::Block(cidr) => {
                let block = Block::decode(cidr, value).unwrap();
                for attribute in &block.attributes {
                    let handle = Key::Handle(attribute.handle().unwrap().clone());
                    assert!(handles.contains(&handle), "{handle} is missing beside its block");
                }
            }
            Key::Affinity { block, .. } => {
                assert!(found.contains_key(&Key::Block(*block)), "{key} without its block");
            }
            Key::Resource { kind: Kind::IpPool, .. } => {
                assert_eq!(found.len(), expected, "a pool before everything else");
            }
            _ => {}
        }
    }
    let is_usable = information.as_ref().is_some_and(|own| !is_locked(own));
    match &information {
        Some(own) => assert_eq!(unfinished(own).is_some(), !is_usable, "a lock without a mark"),
        None => assert!(found.keys().all(|key| key.kind() == Kind::Node), "records without a lock"),
    }
    assert!(!is_usable || found.len() == expected, "half of the records can be used");
    is_usable
}

#[derive(Clone, Copy, Debug)]
struct Point {
    layout: Option<Layout>,
    fault: Fault,
    at: u64,
}

/// Stops a copy at one write, and finishes it. Whether there was such a write.
async fn stop_and_resume(point: Point) -> bool {
    let from = source().await;
    let expected = contents(&*from.store).await.len();
    let inner = if point.layout.is_some() { kubernetes().await } else { memory() };
    let failing = Arc::new(FailingStore::new(inner.clone(), point.fault, point.at));
    let wrapped: Arc<dyn Store> = match point.layout {
        Some(_) => Arc::new(StepwiseStore::new(failing.clone())),
        None => failing.clone(),
    };
    let first = run_between(&copy(), &from, &opened(wrapped, point.layout)).await;
    let has_failed = failing.has_failed();
    let is_usable = check(&contents(&*inner).await, expected);
    assert_eq!(first.is_ok(), is_usable, "{point:?}: {first:?}");
    assert!(first.is_ok() || point.fault == Fault::End, "{point:?}: {first:?}");
    let again = run_between(&copy(), &from, &opened(inner.clone(), point.layout)).await;
    again.unwrap_or_else(|failures| panic!("{point:?}: {failures:?}"));
    let found = contents(&*inner).await;
    assert!(check(&found, expected), "{point:?}");
    for (key, value) in contents(&*from.store).await {
        if key != information::key() && key.kind() != Kind::Node {
            assert_eq!(found[&key], value, "{point:?} {key}");
        }
    }
    has_failed
}

async fn every_point(layout: Option<Layout>, fault: Fault, points: u64) {
    let mut under_way = tokio::task::JoinSet::new();
    for at in 0..points {
        under_way.spawn(stop_and_resume(Point { layout, fault, at }));
    }
    let failed = under_way.join_all().await;
    assert!(failed.iter().any(|failed| !failed), "there are more writes than {points}");
    assert!(failed.iter().filter(|failed| **failed).count() > 5, "it stopped nowhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_stops_at_any_commit_is_resumed() {
    for fault in [Fault::End, Fault::NotDone, Fault::AnswerLost] {
        every_point(None, fault, 16).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_stops_at_any_single_change_is_resumed() {
    for fault in [Fault::End, Fault::NotDone, Fault::AnswerLost] {
        every_point(Some(Layout::V1), fault, 160).await;
    }
}

#[tokio::test]
async fn a_finished_copy_is_not_written_again() {
    let (from, to) = (source().await, opened(memory(), None));
    run_between(&copy(), &from, &to).await.unwrap();
    let (before, revision) = to.store.list_all(model::KeyRange::Everything).await.unwrap();
    let job = run_between(&copy(), &from, &to).await.unwrap();
    assert!(!job.has_work(&copy()));
    let (after, now) = to.store.list_all(model::KeyRange::Everything).await.unwrap();
    assert_eq!((before, revision), (after, now));
    // Unlike one that was left locked.
    let locked = Copy { keep_locked: true, ..copy() };
    run_between(&locked, &from, &to).await.unwrap();
    let own = to.store.get(&information::key()).await.unwrap().unwrap();
    assert!(is_locked(&records::to_resource(&own).unwrap()));
    run_between(&copy(), &from, &to).await.unwrap();
    assert!(check(&contents(&*to.store).await, cluster().len()));
}

#[tokio::test]
async fn of_two_copies_at_once_the_later_one_goes_on() {
    let (from, to) = (source().await, opened(memory(), None));
    let source = Source::read(&from, "the source").await.unwrap();
    let mut first = Job::plan(&copy(), source, &to, "the destination").await.unwrap();
    let lock = first.beginning.lock(&*to.store, &first.survey.to, "the source").await.unwrap();
    let writer = Writer {
        store: to.store.clone(),
        to: Arc::new(first.survey.to.clone()),
        plan: first.plan.clone(),
        lock,
        bar: progress::bar(0),
    };
    run_between(&copy(), &from, &to).await.unwrap();
    let before = contents(&*to.store).await;
    let stopped = first.make(&writer, &mut Outcome::default()).await.unwrap_err();
    assert!(stopped.to_string().contains("changed ClusterInformation(default)"), "{stopped}");
    assert!(first.carry_out(&copy(), &to).await.is_err(), "its plan is out of date");
    assert_eq!(contents(&*to.store).await, before);
}

#[tokio::test]
async fn a_source_that_changes_during_the_copy_is_noticed() {
    for while_unlocked in [false, true] {
        let copy = Copy { while_unlocked, ..copy() };
        let (from, to) = (source().await, opened(memory(), None));
        let source = Source::read(&from, "the source").await.unwrap();
        let mut job = Job::plan(&copy, source, &to, "the destination").await.unwrap();
        let policy = Key::cluster(Kind::GlobalNetworkPolicy, "deny");
        let record = from.store.get(&policy).await.unwrap().unwrap();
        let (_, changed) = resource(Kind::GlobalNetworkPolicy, "deny", json!({"order": 5}));
        from.store.update(policy.clone(), changed.clone(), record.revision).await.unwrap();
        let done = job.carry_out(&copy, &to).await;
        assert_eq!(done.is_ok(), while_unlocked, "{done:?}");
        assert_eq!(check(&contents(&*to.store).await, cluster().len()), while_unlocked);
        if !while_unlocked {
            run_between(&copy, &from, &to).await.unwrap();
            assert_eq!(
                contents(&*to.store).await[&policy],
                changed,
                "what differs in an unfinished copy is ours"
            );
        }
    }
}

#[tokio::test]
async fn what_is_in_the_way_is_left_alone_unless_it_may_be_replaced() {
    let from = source().await;
    let (pool, other) = resource(Kind::IpPool, "pods", json!({"cidr": "10.99.0.0/16"}));
    let (surplus, value) = resource(Kind::FelixConfiguration, "default", json!({"bpfEnabled": true}));
    let expected = cluster().len();
    for rule in [ExistingRule::Refuse, ExistingRule::Keep, ExistingRule::Replace] {
        let to = opened(memory(), None);
        to.store.create(pool.clone(), other.clone()).await.unwrap();
        to.store.create(surplus.clone(), value.clone()).await.unwrap();
        let before = contents(&*to.store).await;
        let copy = Copy { existing: rule, ..copy() };
        let done = run_between(&copy, &from, &to).await;
        let after = contents(&*to.store).await;
        match rule {
            ExistingRule::Refuse => {
                let told = format!("{:?}", done.unwrap_err());
                assert!(told.contains("IPPool(pods) differs from the source in"), "{told}");
                assert!(told.contains("FelixConfiguration(default) does not exist in the source"), "{told}");
                assert_eq!(after, before);
            }
            ExistingRule::Keep => {
                done.unwrap();
                assert_eq!((after.len(), &after[&pool]), (expected + 1, &Bytes::from(other.clone())));
            }
            ExistingRule::Replace => {
                done.unwrap();
                assert!(check(&after, expected) && !after.contains_key(&surplus));
                assert_eq!(after[&pool], contents(&*from.store).await[&pool]);
            }
        }
    }
}

#[tokio::test]
async fn a_copy_that_keeps_records_keeps_them_when_it_is_resumed() {
    let (pool, other) = resource(Kind::IpPool, "pods", json!({"cidr": "10.99.0.0/16"}));
    let own = model::cluster::new_cluster_information("own");
    let copy = Copy { existing: ExistingRule::Keep, ..copy() };
    let mut stops = 0;
    for at in 0..16 {
        let (from, inner) = (source().await, memory());
        inner.create(pool.clone(), other.clone()).await.unwrap();
        inner.create(information::key(), own.encode()).await.unwrap();
        let failing = Arc::new(FailingStore::new(inner.clone(), Fault::End, at));
        let first = run_between(&copy, &from, &opened(failing, None)).await;
        stops += usize::from(first.is_err());
        run_between(&copy, &from, &opened(inner.clone(), None)).await.unwrap();
        let found = contents(&*inner).await;
        assert!(check(&found, cluster().len()), "stopped at {at}");
        assert_eq!(found[&pool], other, "stopped at {at}");
        let now = inner.get(&information::key()).await.unwrap().unwrap();
        assert_eq!(records::to_resource(&now).unwrap().spec("clusterGUID"), Some(&json!("own")));
    }
    assert!(stops > 3, "it stopped nowhere");
}

#[tokio::test]
async fn a_pod_that_is_another_one_by_then_learns_nothing() {
    let endpoint = |sandbox: &str, network: &str| {
        resource(
            Kind::WorkloadEndpoint,
            "a-k8s-web-eth0",
            json!({"containerID": sandbox, "ipNetworks": [network]}),
        )
    };
    let (key, value) = endpoint("c1", "10.65.0.0/32");
    for (now, expected) in [
        (Some(endpoint("", "10.65.0.0/32").1), "c1"),
        (Some(endpoint("", "10.65.0.9/32").1), ""),
        (Some(endpoint("c2", "10.65.0.0/32").1), "c2"),
        (None, "none"),
    ] {
        let from = source().await;
        from.store.create(key.clone(), value.clone()).await.unwrap();
        let to = opened(kubernetes().await, Some(Layout::V1));
        let at = to.store.create(key.clone(), endpoint("", "10.65.0.0/32").1).await.unwrap();
        let source = Source::read(&from, "the source").await.unwrap();
        let mut job = Job::plan(&copy(), source, &to, "the destination").await.unwrap();
        match now {
            Some(now) => drop(to.store.update(key.clone(), now, at).await.unwrap()),
            None => drop(to.store.delete(key.clone(), at).await.unwrap()),
        }
        job.carry_out(&copy(), &to).await.unwrap();
        let found = to.store.get(&key).await.unwrap().map(|record| records::to_resource(&record).unwrap());
        let sandbox = found.map_or(json!("none"), |pod| pod.spec("containerID").cloned().unwrap());
        assert_eq!(sandbox, expected);
    }
}

#[tokio::test]
async fn an_unfinished_copy_of_another_cluster_is_in_the_way() {
    let (from, to) = (source().await, opened(memory(), None));
    let another = model::cluster::new_cluster_information("another");
    let foreign = begun(another.clone(), "elsewhere", &another);
    to.store.create(information::key(), foreign.encode()).await.unwrap();
    let told = format!("{:?}", run_between(&copy(), &from, &to).await.unwrap_err());
    assert!(told.contains("unfinished copy of another cluster, from elsewhere"), "{told}");
    assert_eq!(contents(&*to.store).await.len(), 1);
    // Nor is an unfinished copy a source.
    let told = format!("{:?}", run_between(&copy(), &to, &opened(memory(), None)).await.unwrap_err());
    assert!(told.contains("holds an unfinished copy of elsewhere"), "{told}");
}

#[tokio::test]
async fn a_store_that_a_program_has_only_started_on_counts_as_empty() {
    let (from, to) = (source().await, opened(memory(), None));
    let writer = crate::write::Writer::new(to.store.clone(), false);
    crate::write::ensure_basics(&writer).await;
    let copy = Copy { ..copy() };
    run_between(&copy, &from, &to).await.unwrap();
    let found = contents(&*to.store).await;
    // Two of the built-in tiers were not in the source.
    assert!(check(&found, cluster().len() + 2));
    let own = to.store.get(&information::key()).await.unwrap().unwrap();
    assert_eq!(records::to_resource(&own).unwrap().spec("clusterGUID"), Some(&json!("g")));
}
