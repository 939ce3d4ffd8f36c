//! A store without transactions that does not answer for one pod's record: the other pods of the node come and go all the same.

use std::sync::Arc;

use book::{Addition, Additions, Book, HandleRequest};
use model::{HandleId, Key, Kind};
use store::Store;

use crate::common::{assert_clean, assign, holders, one, one_by_one, put_record, small, wait_for};
use crate::stores::Silent;

fn endpoint() -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, "shop", "stuck")
}

/// Pods come and go, as many as one round after the other needs.
async fn others_come_and_go(book: &Book) {
    for round in 0..3 {
        for name in ["x", "y"] {
            let handle = format!("{name}-{round}");
            let work = async {
                assign(book, "node-a", &handle).await;
                book.release_handle(HandleRequest::all(handle.as_str())).await.unwrap();
            };
            tokio::time::timeout(testkit::PATIENCE, work).await.expect("it waits for nobody");
        }
    }
}

async fn silent() -> (Arc<dyn Store>, Arc<Silent>, Book) {
    let store = one_by_one(small().await);
    let silent = Silent::about(endpoint(), store.clone());
    let book = Book::new(silent.clone());
    (store, silent, book)
}

#[tokio::test]
async fn a_release_that_is_not_answered_holds_up_nobody_else() {
    let (store, silent, book) = silent().await;
    let address = assign(&book, "node-a", "stuck").await;
    put_record(&store, endpoint(), "{}").await;
    let record = store.get(&endpoint()).await.unwrap().unwrap();
    let release = HandleRequest::all("stuck").with(vec![Addition::delete(&record)]);
    let first = tokio::spawn({
        let book = book.clone();
        async move { book.release_handle(release).await }
    });
    wait_for("the change of the record", || async { silent.asked() > 0 }).await;
    // It comes after the first, which has not freed anything yet.
    let second = tokio::spawn({
        let book = book.clone();
        async move { book.release_handle(HandleRequest::all("stuck")).await }
    });
    others_come_and_go(&book).await;
    assert!(!first.is_finished() && !second.is_finished());
    assert_eq!(holders(&store).await.get(&address), Some(&HandleId::from("stuck")), "its record says so");
    silent.end();
    assert_eq!(first.await.unwrap().unwrap().addresses, [address]);
    assert!(second.await.unwrap().unwrap().addresses.is_empty());
    assert_eq!(store.get(&endpoint()).await.unwrap(), None);
    assert_clean(&store).await;
}

#[tokio::test]
async fn an_assignment_that_is_not_answered_holds_up_nobody_else() {
    let (store, silent, book) = silent().await;
    let mut request = one("node-a", "stuck");
    request.additions = Additions::new(1, |_| Ok(vec![Addition::create(endpoint(), "{}")]));
    let stuck = tokio::spawn({
        let book = book.clone();
        async move { book.assign(request).await }
    });
    wait_for("the change of the record", || async { silent.asked() > 0 }).await;
    others_come_and_go(&book).await;
    assert!(!stuck.is_finished());
    silent.end();
    let granted = stuck.await.unwrap().unwrap().addresses[0].address;
    assert_eq!(holders(&store).await.get(&granted), Some(&HandleId::from("stuck")));
    assert!(store.get(&endpoint()).await.unwrap().is_some());
    assert_clean(&store).await;
}

/// Its pod may be gone long before the answer comes.
#[tokio::test]
async fn a_caller_who_left_an_unanswered_assignment_holds_nothing_in_the_end() {
    let (store, silent, book) = silent().await;
    let mut request = one("node-a", "stuck");
    request.additions = Additions::new(1, |_| Ok(vec![Addition::create(endpoint(), "{}")]));
    let stuck = tokio::spawn({
        let book = book.clone();
        async move { book.assign(request).await }
    });
    wait_for("the change of the record", || async { silent.asked() > 0 }).await;
    others_come_and_go(&book).await;
    stuck.abort();
    assert!(stuck.await.unwrap_err().is_cancelled());
    silent.end();
    let is_empty =
        || async { holders(&store).await.is_empty() && store.get(&endpoint()).await.unwrap().is_none() };
    wait_for("everything to be given back", is_empty).await;
}
