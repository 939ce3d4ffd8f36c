//! Commits of stores without transactions: in order, up to the first change that fails.

use store::{Change, Revision};

use super::*;

pub(super) async fn a_commit_stops_at_the_first_failure_and_says_how_far_it_came(backend: &dyn Backend) {
    let store = backend.fresh().await;
    create(&*store, &pool("b"), "in the way").await;
    let there = existing(&*store, &pool("b")).await;
    let create = |name: &str| Change::create(pool(name), value("new"));

    let outcome = store.commit(vec![create("b"), create("c")]).await;
    assert_already_exists(outcome, &there);
    assert_eq!(read(&*store, &pool("c")).await, None, "what follows a failure is not done");

    let outcome =
        store.commit(vec![Change::require_absent(pool("z")), create("a"), create("b"), create("c")]).await;
    let Err(StoreError::Stopped { done, source }) = outcome else { panic!("{outcome:?}") };
    assert_already_exists(Err::<(), _>(*source), &there);
    let [_, made]: [Revision; 2] = done.revisions.try_into().expect("two changes were done");
    assert_eq!(existing(&*store, &pool("a")).await.revision, made);
    assert_eq!(read(&*store, &pool("c")).await, None);

    let committed = store.commit(vec![create("d"), create("e")]).await.unwrap();
    for (name, revision) in ["d", "e"].into_iter().zip(committed.revisions) {
        assert_eq!(
            existing(&*store, &pool(name)).await.revision,
            revision,
            "each record has its own revision"
        );
    }
}
