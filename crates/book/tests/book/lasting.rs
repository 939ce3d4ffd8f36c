//! SQLite and real etcd: as many round trips as in memory, and answers that really get lost.

use std::sync::Arc;
use std::time::Duration;

use book::{Book, HandleRequest, Settings};
use model::{HandleId, Key};
use serde_json::json;
use store::Store;
use store::etcd::{EtcdConfig, EtcdStore};
use store::wrap::CountingStore;
use testkit::etcd::{Setup, start_or_skip};
use testkit::forwarder::{Forwarder, Traffic};
use tokio::task::JoinSet;

use crate::common::{assert_clean, assign, holders, one, put_pools, wait_for};
use crate::places::Place;

/// An address out of an own block, alone and in a burst, remembered and not.
async fn takes_few_round_trips(store: Arc<dyn Store>) {
    put_pools(&store, &[json!({"cidr": "10.0.0.0/16", "blockSize": 26})]).await;
    let counting = Arc::new(CountingStore::new(store.clone()));
    let agent = Book::following(counting.clone(), Settings::default(), "node-a");
    agent.in_sync().await;
    assign(&agent, "node-a", "first").await;
    let before = counting.counts();
    assign(&agent, "node-a", "warm").await;
    assert_eq!((counting.counts() - before).round_trips(), 1);
    let one_shot = Arc::new(CountingStore::new(store.clone()));
    assign(&Book::new(one_shot.clone()), "node-a", "cold").await;
    assert_eq!(one_shot.counts().round_trips(), 3);
    // The stranger's write, noticed.
    assign(&agent, "node-a", "after").await;

    let before = counting.counts();
    let mut burst = JoinSet::new();
    for number in 0..110 {
        let agent = agent.clone();
        burst.spawn(async move { agent.assign(one("node-a", &format!("burst-{number}"))).await });
    }
    for done in burst.join_all().await {
        assert_eq!(done.unwrap().addresses.len(), 1);
    }
    let counts = counting.counts() - before;
    assert!(counts.commits <= 3, "{counts:?}");
    assert_eq!(holders(&store).await.len(), 114);
    assert_clean(&store).await;

    let mut releases = JoinSet::new();
    for number in 0..110 {
        let agent = agent.clone();
        releases
            .spawn(async move { agent.release_handle(HandleRequest::all(format!("burst-{number}"))).await });
    }
    for done in releases.join_all().await {
        assert_eq!(done.unwrap().addresses.len(), 1);
    }
    assert_eq!(holders(&store).await.len(), 4);
    assert_clean(&store).await;
}

#[tokio::test]
async fn sqlite_takes_few_round_trips() {
    takes_few_round_trips(Place::sqlite().open().await).await;
}

#[tokio::test]
async fn etcd_takes_few_round_trips() {
    let Some(place) = Place::etcd("etcd_takes_few_round_trips").await else { return };
    takes_few_round_trips(place.open().await).await;
}

/// The request arrives, the answer does not, and then the connection breaks.
#[tokio::test]
async fn an_answer_that_etcd_could_not_give_is_found_out() {
    let test = "an_answer_that_etcd_could_not_give_is_found_out";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    let near: Arc<dyn Store> =
        Arc::new(EtcdStore::connect(EtcdConfig::new([cluster.endpoint(0)])).await.unwrap());
    put_pools(&near, &[json!({"cidr": "10.0.0.0/24", "blockSize": 28})]).await;
    let forwarder = Forwarder::to(cluster.client_port(0));
    let endpoint = format!("http://127.0.0.1:{}", forwarder.port());
    let config = EtcdConfig { request_timeout: Duration::from_secs(3), ..EtcdConfig::new([endpoint]) };
    let far: Arc<dyn Store> = Arc::new(EtcdStore::connect(config).await.unwrap());
    let agent = Book::following(far, Settings::default(), "node-a");
    agent.in_sync().await;
    assign(&agent, "node-a", "before").await;

    forwarder.set(Traffic::AnswersLost);
    let asking = {
        let agent = agent.clone();
        let mut request = one("node-a", "asked");
        request.handle_may_exist = false;
        tokio::spawn(async move { agent.assign(request).await })
    };
    let handle = Key::Handle("asked".into());
    wait_for("the commit", || async { near.get(&handle).await.unwrap().is_some() }).await;
    forwarder.interrupt();
    forwarder.set(Traffic::Flows);
    let grant = asking.await.unwrap().unwrap();
    let held = holders(&near).await;
    assert_eq!(held.len(), 2, "{held:?}");
    assert_eq!(held.get(&grant.addresses[0].address).map(HandleId::as_str), Some("asked"));
    assert_clean(&near).await;
}
