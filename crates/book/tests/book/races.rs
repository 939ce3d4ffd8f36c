//! Lost races and lost answers: never two addresses, never a lost one.

use std::sync::Arc;
use std::time::Duration;

use book::{Addition, Additions, Book, BookError, GivenRequest, HandleRequest, Settings};
use model::{Key, Kind};
use serde_json::json;
use store::wrap::{FailingStore, Failure};
use store::{Store, StoreError};
use tokio::task::JoinSet;

use crate::common::{address, assert_clean, assign, holders, one, owner, put, small, with_pools};
use crate::stores::Late;

fn endpoint(name: &str) -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, "shop", name)
}

fn with_endpoint(handle: &str) -> book::AssignRequest {
    let mut request = one("node-a", handle);
    let key = endpoint(handle);
    request.additions = Additions::new(1, move |granted| {
        Ok(vec![Addition::create(key.clone(), format!("\"{}\"", granted[0].address))])
    });
    request
}

#[tokio::test]
async fn several_books_share_one_pool() {
    let store = small().await;
    let mut work = JoinSet::new();
    for node in 0..8 {
        let store = store.clone();
        work.spawn(async move {
            let node = format!("node-{node}");
            let book = if node.ends_with(['0', '1']) {
                Book::following(store, Settings::default(), &node)
            } else {
                Book::new(store)
            };
            for number in 0..20 {
                assign(&book, &node, &format!("{node}.{number}")).await;
                if number % 3 == 0 {
                    book.release_handle(HandleRequest::all(format!("{node}.{number}"))).await.unwrap();
                }
            }
        });
    }
    work.join_all().await;
    assert_eq!(holders(&store).await.len(), 8 * 13);
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_lost_answer_is_found_out() {
    for is_warm in [false, true] {
        let store = small().await;
        assign(&Book::new(store.clone()), "node-a", "before").await;
        let failing: Arc<dyn Store> = Arc::new(FailingStore::new(store.clone(), Failure::AnswerLost, 0));
        let book = match is_warm {
            true => Book::following(failing, Settings::default(), "node-a"),
            false => Book::new(failing),
        };
        book.in_sync().await;
        let mut request = with_endpoint("h");
        request.handle_may_exist = false;
        let grant = book.assign(request).await.unwrap();
        assert_eq!(holders(&store).await.get(&grant.addresses[0].address).unwrap(), "h");
        assert_eq!(holders(&store).await.len(), 2, "one address, though it was asked for twice");
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn a_whole_batch_with_a_lost_answer_is_found_out() {
    let store = small().await;
    let failing: Arc<dyn Store> = Arc::new(FailingStore::new(store.clone(), Failure::AnswerLost, 1));
    let book = Book::new(failing);
    let mut work = JoinSet::new();
    for number in 0..20 {
        let book = book.clone();
        work.spawn(async move { book.assign(with_endpoint(&format!("h{number}"))).await });
    }
    for done in work.join_all().await {
        done.unwrap();
    }
    assert_eq!(holders(&store).await.len(), 20);
    assert_clean(&store).await;
}

/// The commit is still on its way when we look, and happens when we try again: one of the two must lose.
#[tokio::test]
async fn a_commit_that_arrives_late_gives_no_second_address() {
    for late in 1..4 {
        let store = small().await;
        let book = Book::new(Late::new(store.clone(), late));
        let mut request = with_endpoint("h");
        request.handle_may_exist = false;
        let grant = book.assign(request).await.unwrap();
        let held = holders(&store).await;
        assert_eq!(held.len(), 1, "{held:?}");
        assert!(held.contains_key(&grant.addresses[0].address));
        let recorded = store.get(&endpoint("h")).await.unwrap().unwrap();
        assert_eq!(recorded.value, format!("\"{}\"", grant.addresses[0].address));
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn given_addresses_and_releases_survive_lost_answers() {
    let store = small().await;
    let losing =
        |at| -> Arc<dyn Store> { Arc::new(FailingStore::new(store.clone(), Failure::AnswerLost, at)) };
    let mut request = GivenRequest::new("node-a", owner("h"), vec![address("10.0.0.9")]);
    request.additions = Additions::new(1, |_| Ok(vec![Addition::create(endpoint("h"), "{}")]));
    Book::new(losing(0)).assign_addresses(request).await.unwrap();
    assert_eq!(holders(&store).await.len(), 1);
    let record = store.get(&endpoint("h")).await.unwrap().unwrap();
    let release = HandleRequest::all("h").with(vec![Addition::delete(&record)]);
    Book::new(losing(0)).release_handle(release).await.unwrap();
    assert!(holders(&store).await.is_empty());
    assert_eq!(store.get(&endpoint("h")).await.unwrap(), None);
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_store_that_is_not_there_is_reported_at_once() {
    let store = small().await;
    let failing: Arc<dyn Store> = Arc::new(FailingStore::new(store.clone(), Failure::End, 0));
    let error = Book::new(failing).assign(one("node-a", "h")).await.unwrap_err();
    let BookError::Store(source) = &error else { panic!("{error}") };
    assert!(matches!(**source, StoreError::Unreachable { .. }), "{error}");
    assert!(holders(&store).await.is_empty());
}

/// Everyone writes the same record all the time: patience ends, and the error says over what.
#[tokio::test]
async fn patience_has_an_end() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let contested: Arc<dyn Store> = Arc::new(Contested(store.clone()));
    let settings = Settings { patience: Duration::from_millis(50), ..Settings::default() };
    let book = Book::with_settings(contested, settings);
    let error = book.assign(one("node-a", "h")).await.unwrap_err();
    let BookError::Contended { subject, .. } = &error else { panic!("{error}") };
    assert_eq!(subject, "IPPool(pool-0)");
    assert!(error.to_string().starts_with("others kept changing IPPool(pool-0) for 0."), "{error}");
    assert!(holders(&store).await.is_empty());
}

/// Someone changes the pool before every commit.
#[derive(Debug)]
struct Contested(Arc<dyn Store>);

#[async_trait::async_trait]
impl Store for Contested {
    fn capabilities(&self) -> store::Capabilities {
        self.0.capabilities()
    }

    async fn get(&self, key: &Key) -> Result<Option<store::Record>, StoreError> {
        self.0.get(key).await
    }

    async fn list(&self, request: store::ListRequest) -> Result<store::ListPage, StoreError> {
        self.0.list(request).await
    }

    async fn commit(&self, changes: Vec<store::Change>) -> Result<store::Committed, StoreError> {
        put(&self.0, Kind::IpPool, "pool-0", json!({"cidr": "10.0.0.0/30", "blockSize": 30})).await;
        self.0.commit(changes).await
    }

    async fn watch(
        &self,
        range: model::KeyRange,
        after: store::Revision,
    ) -> Result<store::Watch, StoreError> {
        self.0.watch(range, after).await
    }
}
