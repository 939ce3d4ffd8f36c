//! What Calico's own clients leave in the API server, and what they find that we wrote.

use model::kube::Layout;
use model::{AffinityOwner, IpVersion, Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::kube::KubeStore;
use store::{Change, Event, Record, Revision, Store, StoreError};
use testkit::kube::{KubeApiServer, Setup};

use crate::fixture::{collection, connect, next, start};

const LAYOUTS: [Layout; 2] = [Layout::V1, Layout::V3];

struct Cluster {
    server: KubeApiServer,
    layout: Layout,
    store: KubeStore,
}

impl Cluster {
    async fn start(test: &str, layout: Layout) -> Option<Cluster> {
        let server = start(test, Setup::default(), layout)?;
        let store = connect(server.kubeconfig().unwrap()).await;
        Some(Cluster { server, layout, store })
    }

    fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", collection(self.layout, kind))
    }

    fn object(&self, kind: Kind, name: &str) -> Value {
        self.server.api().read(&self.path(kind, name)).unwrap()
    }

    /// Changes an object as a client of its own would.
    fn edit(&self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(kind, name);
        change(&mut object);
        self.server.api().replace(&self.path(kind, name), &object).unwrap();
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn read(&self, key: &Key) -> Option<Record> {
        self.store.get(key).await.unwrap()
    }
}

fn handle(id: &str) -> Key {
    Key::Handle(id.into())
}

fn affinity(node: &str, block: &str) -> Key {
    Key::Affinity { owner: AffinityOwner::Host(node.to_owned()), block: block.parse().unwrap() }
}

fn value(record: &Record) -> Value {
    serde_json::from_slice(&record.value).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marked_record_does_not_exist_and_is_in_nobodys_way() {
    for layout in LAYOUTS {
        let test = "a_marked_record_does_not_exist_and_is_in_nobodys_way";
        let Some(cluster) = Cluster::start(test, layout).await else { return };
        let mark = if layout == Layout::V1 { json!("true") } else { json!(true) };
        let of_handle = br#"{"block":{"10.0.0.0/26":1},"deleted":false}"#.to_vec();
        let of_affinity = br#"{"state":"confirmed","deleted":false}"#.to_vec();
        for (key, record, kind, name, mark, range) in [
            (handle("h"), of_handle, Kind::IpamHandle, "h", json!(true), KeyRange::Handles),
            (
                affinity("n", "10.0.0.0/26"),
                of_affinity,
                Kind::BlockAffinity,
                "n-10-0-0-0-26",
                mark,
                KeyRange::HostAffinities,
            ),
        ] {
            let first = cluster.store().create(key.clone(), record.clone()).await.unwrap();
            let (listed, from) = cluster.store().list_all(range.clone()).await.unwrap();
            assert_eq!(listed.len(), 1);
            let mut watch = cluster.store.watch(range.clone(), from).await.unwrap();

            cluster.edit(kind, name, |object| object["spec"]["deleted"] = mark);
            assert_eq!(cluster.read(&key).await, None, "{key}");
            assert_eq!(cluster.store().list_all(range).await.unwrap().0, []);
            assert!(matches!(next(&mut watch).await, Event::Deleted { key: told, .. } if told == key));
            for late in [
                Change::update(key.clone(), record.clone(), first.clone()),
                Change::delete(key.clone(), first),
            ] {
                let refused = cluster.store.commit(vec![late]).await;
                assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
            }
            // Its removal is not told a second time: the next event is the new record.
            let made = cluster.store().create(key.clone(), record).await.unwrap();
            match next(&mut watch).await {
                Event::Put(record) => assert_eq!((record.key, record.revision), (key, made)),
                other => panic!("expected the new record, got {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_that_differ_only_in_case_do_not_mix() {
    let test = "handles_that_differ_only_in_case_do_not_mix";
    let Some(cluster) = Cluster::start(test, Layout::V1).await else { return };
    let record = br#"{"block":{},"deleted":false}"#.to_vec();
    cluster.store().create(handle("lb-AbC"), record.clone()).await.unwrap();
    assert_eq!(cluster.object(Kind::IpamHandle, "lb-abc")["spec"]["handleID"], "lb-AbC");
    assert_eq!(cluster.read(&handle("lb-AbC")).await.unwrap().key, handle("lb-AbC"));
    assert_eq!(cluster.read(&handle("lb-abc")).await, None);
    let error = cluster.store().create(handle("lb-abc"), record).await.unwrap_err();
    assert!(format!("{error:?}").contains("lb-AbC"), "{error:?}");
    assert!(!error.is_lost_race(), "reading again would not help");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn affinities_are_found_by_their_node() {
    for layout in LAYOUTS {
        let test = "affinities_are_found_by_their_node";
        let Some(cluster) = Cluster::start(test, layout).await else { return };
        let long = "n".repeat(250);
        let made = [
            ("node-a", "10.0.0.0/26"),
            ("node-a", "fd00::/122"),
            ("node-ab", "10.0.0.64/26"),
            (&long, "10.0.1.0/26"),
        ];
        for (node, block) in made {
            let pending = br#"{"state":"pending"}"#.to_vec();
            cluster.store().create(affinity(node, block), pending).await.unwrap();
        }
        for (node, version, count) in [
            ("node-a", IpVersion::V4, 1),
            ("node-a", IpVersion::V6, 1),
            ("node-b", IpVersion::V4, 0),
            (&long, IpVersion::V4, 1),
        ] {
            let range = KeyRange::AffinitiesOf(AffinityOwner::Host(node.to_owned()), version);
            let (found, _) = cluster.store().list_all(range).await.unwrap();
            assert_eq!(found.len(), count, "{node} {version:?}");
        }
        let labels = &cluster.object(Kind::BlockAffinity, "node-a-10-0-0-0-26")["metadata"]["labels"];
        assert_eq!(labels["projectcalico.org/affinity-type"], "host");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_kept_apart_is_written_too() {
    for layout in LAYOUTS {
        let test = "a_status_that_is_kept_apart_is_written_too";
        let Some(cluster) = Cluster::start(test, layout).await else { return };
        let key = Key::cluster(Kind::CalicoNodeStatus, "n");
        let status = |time: &str| {
            let spec = json!({ "node": "n", "classes": ["BGP"], "updatePeriodSeconds": 10 });
            json!({ "metadata": { "name": "n" }, "spec": spec, "status": { "lastUpdated": time } })
                .to_string()
                .into_bytes()
        };
        let mut at = cluster.store().create(key.clone(), status("2026-01-01T00:00:00Z")).await.unwrap();
        for time in ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"] {
            at = cluster.store().update(key.clone(), status(time), at).await.unwrap();
            let record = cluster.read(&key).await.unwrap();
            assert_eq!(record.revision, at, "the revision is the record's last one");
            assert_eq!(value(&record)["status"]["lastUpdated"], time);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_put_on_the_objects_survives_our_writes() {
    for layout in LAYOUTS {
        let test = "what_others_put_on_the_objects_survives_our_writes";
        let Some(cluster) = Cluster::start(test, layout).await else { return };
        let pool = json!({ "metadata": { "name": "p", "labels": { "team": "blue" } },
            "spec": { "cidr": "10.0.0.0/16" } });
        let key = Key::cluster(Kind::IpPool, "p");
        cluster.store().create(key.clone(), pool.to_string().into_bytes()).await.unwrap();
        cluster.edit(Kind::IpPool, "p", |object| {
            object["metadata"]["finalizers"] = json!(["example.org/mine"]);
        });
        let record = cluster.read(&key).await.unwrap();
        let mut changed = value(&record);
        assert_eq!(changed["metadata"]["labels"]["team"], "blue");
        changed["spec"]["disabled"] = json!(true);
        let changed = changed.to_string().into_bytes();
        let at = cluster.store().update(key.clone(), changed, record.revision).await.unwrap();
        let object = cluster.object(Kind::IpPool, "p");
        assert_eq!(object["metadata"]["finalizers"], json!(["example.org/mine"]));
        assert_eq!(object["spec"]["disabled"], true);

        // A deletion that a finalizer holds has begun, and shows.
        cluster.store().delete(key.clone(), at).await.unwrap();
        let leaving = cluster.read(&key).await.unwrap();
        assert!(value(&leaving)["metadata"]["deletionTimestamp"].is_string());
        cluster.edit(Kind::IpPool, "p", |object| object["metadata"]["finalizers"] = json!([]));
        assert_eq!(cluster.read(&key).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_cannot_take_is_refused_with_its_words() {
    let test = "what_the_server_cannot_take_is_refused_with_its_words";
    let Some(cluster) = Cluster::start(test, Layout::V1).await else { return };
    for id in ["with_underscore", "with space", &"x".repeat(300)] {
        let refused = cluster.store().create(handle(id), br#"{"block":{}}"#.to_vec()).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        assert_eq!(cluster.read(&handle(id)).await, None);
    }
    let pool = Key::cluster(Kind::IpPool, "p");
    for (key, record, word) in [
        (Key::namespaced(Kind::NetworkSet, "nowhere", "s"), r#"{"spec":{}}"#, "nowhere"),
        (pool.clone(), "not JSON", "JSON"),
        (pool, r#"{"spec":{"cidr":5}}"#, "cidr"),
    ] {
        match cluster.store().create(key, record.as_bytes().to_vec()).await {
            Err(StoreError::Invalid { problem }) => assert!(problem.contains(word), "{problem}"),
            other => panic!("{other:?}"),
        }
    }
    let stale = Change::delete(handle("h"), Revision::new("7"));
    assert!(matches!(cluster.store.commit(vec![stale]).await, Err(StoreError::NotFound { .. })));
}

/// Nobody may take an object that cannot be read for one that is not there: whatever it says counts as said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_read_is_a_record_that_cannot_be_read() {
    let test = "an_object_that_cannot_be_read_is_a_record_that_cannot_be_read";
    let Some(cluster) = Cluster::start(test, Layout::V1).await else { return };
    let (kind, key) = (Kind::ClusterInformation, Key::cluster(Kind::ClusterInformation, "default"));
    let locked = json!({ "spec": { "datastoreReady": false } }).to_string().into_bytes();
    cluster.store().create(key.clone(), locked).await.unwrap();
    let (_, from) = cluster.store().list_all(KeyRange::Kind(kind)).await.unwrap();
    let mut watch = cluster.store.watch(KeyRange::Kind(kind), from).await.unwrap();
    cluster.edit(kind, "default", |object| {
        object["metadata"]["annotations"] = json!({ "projectcalico.org/metadata": "{" });
    });
    let found = cluster.read(&key).await.unwrap();
    let text = String::from_utf8(found.value.to_vec()).unwrap();
    assert!(text.contains(r#""datastoreReady":false"#) && serde_json::from_str::<Value>(&text).is_err());
    let everything = cluster.store().list_all(KeyRange::Everything).await.unwrap().0;
    assert!(everything.contains(&found), "{everything:?}");
    assert!(matches!(next(&mut watch).await, Event::Put(told) if told == found));
    let there = cluster.store().create(key.clone(), br#"{"spec":{}}"#.to_vec()).await;
    assert!(matches!(there, Err(StoreError::AlreadyExists { existing }) if *existing == found));
    let relied_on = Change::require(key.clone(), found.revision.clone());
    cluster.store.commit(vec![relied_on]).await.unwrap();
    cluster.store().delete(key.clone(), found.revision).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::Deleted { key: told, .. } if told == key));
}
