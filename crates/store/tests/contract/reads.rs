//! Reading several records and ranges at once: which answers, in which order, and which moment they show.

use store::{Change, Lookup, MAX_CHANGES};

use super::*;

fn record(key: &Key) -> Lookup {
    Lookup::Record(key.clone())
}

async fn read_all(store: &dyn Store, lookups: Vec<Lookup>) -> Vec<Vec<Record>> {
    store.read(lookups).await.expect("read works")
}

pub(super) async fn answers_come_in_the_order_of_the_lookups(backend: &dyn Backend) {
    let store = backend.fresh().await;
    for key in [handle("h2"), pool("b"), handle("h1"), pool("a")] {
        create(&*store, &key, &key.to_string()).await;
    }
    let [h1, h2] = [existing(&*store, &handle("h1")).await, existing(&*store, &handle("h2")).await];
    let [a, b] = [existing(&*store, &pool("a")).await, existing(&*store, &pool("b")).await];
    let lookups = vec![
        record(&pool("b")),
        Lookup::Range(KeyRange::Handles),
        record(&handle("nobody")),
        record(&handle("h1")),
        Lookup::Range(KeyRange::Kind(Kind::Tier)),
        record(&pool("b")),
        Lookup::Range(pools()),
    ];
    let expected =
        vec![vec![b.clone()], vec![h1.clone(), h2], vec![], vec![h1], vec![], vec![b.clone()], vec![a, b]];
    assert_eq!(read_all(&*store, lookups).await, expected);
    assert_eq!(read_all(&*store, Vec::new()).await, Vec::<Vec<Record>>::new());
}

pub(super) async fn reads_pass_over_foreign_keys(backend: &dyn Backend) {
    let store = backend.fresh().await;
    backend.put_foreign("/calico/resources/v3/projectcalico.org/ippools/a/x", "not even JSON").await;
    backend.put_foreign("/calico/ipam/v2/config-of-others", "not even JSON").await;
    create(&*store, &pool("b"), "ours").await;
    let ours = vec![existing(&*store, &pool("b")).await];
    let lookups = vec![Lookup::Range(pools()), Lookup::Range(KeyRange::Everything), record(&Key::IpamConfig)];
    assert_eq!(read_all(&*store, lookups).await, [ours.clone(), ours, vec![]]);
}

pub(super) async fn what_cannot_be_spelled_cannot_be_read(backend: &dyn Backend) {
    let store = backend.fresh().await;
    backend.put_foreign("/calico/resources/v3/projectcalico.org/ippools/a/x", "{}").await;
    for key in [pool("a/x"), pool(""), handle("")] {
        let lookups = vec![record(&pool("fine")), record(&key)];
        for result in [store.read(lookups).await.map(|_| ()), store.get(&key).await.map(|_| ())] {
            assert!(matches!(result, Err(StoreError::Invalid { .. })), "{key}: {result:?}");
        }
    }
}

/// More than etcd takes in one transaction, and more than SQLite answers where it is asked.
pub(super) async fn many_lookups_are_answered(backend: &dyn Backend) {
    let store = backend.fresh().await;
    let keys: Vec<Key> = (0..2 * MAX_CHANGES + 3).map(|n| handle(format!("h{n:04}"))).collect();
    for some in keys.chunks(MAX_CHANGES) {
        let creations = some.iter().map(|key| Change::create(key.clone(), value(&key.to_string())));
        store.commit(creations.collect()).await.unwrap();
    }
    let missing = handle("nobody");
    let mut asked: Vec<&Key> = keys.iter().rev().collect();
    asked.insert(MAX_CHANGES, &missing);
    let mut lookups: Vec<Lookup> = asked.iter().copied().map(record).collect();
    lookups.push(Lookup::Range(KeyRange::Handles));

    let mut answers = read_all(&*store, lookups).await;
    let listed = answers.pop().unwrap();
    assert_eq!(listed, store.list_all(KeyRange::Handles).await.unwrap().0);
    assert_eq!(answers.len(), asked.len());
    for (key, answer) in asked.into_iter().zip(answers) {
        let expected: Vec<&Record> = listed.iter().filter(|record| record.key == *key).collect();
        assert_eq!(answer.iter().collect::<Vec<_>>(), expected, "{key}");
    }
}

/// The pair that [`races::write_pairs`] writes, read as two records, and as a record and a range, with so many
/// lookups in between that etcd needs several transactions.
pub(super) async fn a_read_shows_one_moment(backend: &dyn Backend) {
    let rounds = testkit::count(40, 400);
    let store = backend.fresh().await;
    let pair = [handle("left"), handle("right")];
    store.commit(pair.iter().map(|key| Change::create(key.clone(), value("0"))).collect()).await.unwrap();
    let other = backend.another().await;
    let writer = tokio::spawn(async move { races::write_pairs(&*other, 0, rounds).await });
    let padding = |count| std::iter::repeat_with(|| record(&pool("padding"))).take(count);
    for round in 0.. {
        let finished = writer.is_finished();
        let mut lookups = vec![record(&pair[0])];
        lookups.extend(padding([0, MAX_CHANGES][round % 2]));
        lookups.extend([record(&pair[1]), Lookup::Range(KeyRange::Handles)]);
        let answers = read_all(&*store, lookups).await;
        let seen: Vec<&Record> = answers.iter().flatten().collect();
        assert_eq!(seen.len(), 4);
        for record in &seen {
            let first = (&seen[0].value, &seen[0].revision);
            assert_eq!((&record.value, &record.revision), first, "a read shows whole commits");
        }
        if finished {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}
