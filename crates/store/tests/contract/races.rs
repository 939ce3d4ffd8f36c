//! Many at once: no update is lost, no commit is seen half.

use store::Change;

use super::*;

/// Adds one to the number kept under `key`, however often others get in between.
async fn increment(store: &dyn Store, key: &Key) {
    loop {
        let record = existing(store, key).await;
        let number: u64 = std::str::from_utf8(&record.value).unwrap().parse().unwrap();
        match store.update(key.clone(), (number + 1).to_string().into_bytes(), record.revision).await {
            Ok(_) => return,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

pub(super) async fn increments_by_compare_and_swap_add_up(backend: &dyn Backend) {
    const TASKS: usize = 8;
    let each = testkit::count(25, 250);
    let store = backend.fresh().await;
    let key = handle("counter");
    store.create(key.clone(), b"0".to_vec()).await.unwrap();
    let before = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Handles, &before).await;

    let mut tasks = Vec::new();
    for n in 0..TASKS {
        let store = if n % 2 == 0 { store.clone() } else { backend.another().await };
        let key = key.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..each {
                increment(&*store, &key).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let total = TASKS * each;
    assert_eq!(existing(&*store, &key).await.value, total.to_string());
    for n in 1..=total {
        match next(&mut watch).await {
            Event::Put(record) => assert_eq!(record.value, n.to_string()),
            other => panic!("expected {n}, got {other:?}"),
        }
    }
}

pub(super) async fn only_one_creator_wins(backend: &dyn Backend) {
    let store = backend.fresh().await;
    for round in 0..10 {
        let key = pool(&format!("p{round}"));
        let mut tasks = Vec::new();
        for n in 0..6 {
            let store = if n % 2 == 0 { store.clone() } else { backend.another().await };
            let key = key.clone();
            tasks.push(tokio::spawn(async move { store.create(key, value(&n.to_string())).await }));
        }
        let mut revisions = Vec::new();
        let mut refusals = Vec::new();
        for task in tasks {
            match task.await.unwrap() {
                Ok(revision) => revisions.push(revision),
                Err(StoreError::AlreadyExists { existing }) => refusals.push(*existing),
                Err(error) => panic!("{error:?}"),
            }
        }
        let winner = existing(&*store, &key).await;
        assert_eq!(revisions.as_slice(), std::slice::from_ref(&winner.revision));
        assert_eq!(refusals, vec![winner; 5]);
    }
}

/// Two records are always written together with the same value, by several writers. Every list, and the state after
/// every whole commit of a watch, shows them equal.
pub(super) async fn commits_of_several_records_are_never_seen_half(backend: &dyn Backend) {
    let rounds = testkit::count(30, 200);
    let store = backend.fresh().await;
    let pair = [handle("left"), handle("right")];
    store.commit(pair.iter().map(|key| Change::create(key.clone(), value("0"))).collect()).await.unwrap();
    let from = now(&*store).await;
    let mut watch = start(&*store, KeyRange::Handles, &from).await;

    let mut writers = Vec::new();
    for n in 0..3 {
        let store = backend.another().await;
        writers.push(tokio::spawn(async move { write_pairs(&*store, n, rounds).await }));
    }
    while writers.iter().any(|writer| !writer.is_finished()) {
        let (records, _) = store.list_all(KeyRange::Handles).await.unwrap();
        assert_eq!(records[0].value, records[1].value, "a list shows whole commits");
        assert_eq!(records[0].revision, records[1].revision);
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for _ in 0..3 * rounds {
        match (next(&mut watch).await, next(&mut watch).await) {
            (Event::Put(left), Event::Put(right)) => {
                assert_eq!((&left.value, &left.revision), (&right.value, &right.revision));
            }
            other => panic!("expected two changes, got {other:?}"),
        }
    }
}

pub(super) async fn write_pairs(store: &dyn Store, writer: usize, rounds: usize) {
    let mut done = 0;
    while done < rounds {
        let (records, _) = store.list_all(KeyRange::Handles).await.unwrap();
        let text = value(&format!("{writer}-{done}"));
        let update = |record: store::Record| Change::update(record.key, text.clone(), record.revision);
        match store.commit(records.into_iter().map(update).collect()).await {
            Ok(_) => done += 1,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}
