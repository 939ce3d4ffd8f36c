//! The memory store keeps the contract, and forgets what it was told to forget.

mod contract;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use model::{Key, KeyRange};
use store::{Event, MemoryStore, Store};

#[derive(Default)]
struct Memory(Mutex<Arc<MemoryStore>>);

impl Memory {
    fn current(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.0.lock().unwrap())
    }
}

#[async_trait]
impl contract::Backend for Memory {
    async fn fresh(&self) -> Arc<dyn Store> {
        *self.0.lock().unwrap() = Arc::new(MemoryStore::new());
        self.current()
    }

    async fn another(&self) -> Arc<dyn Store> {
        self.current()
    }

    async fn forget_history(&self) {
        self.current().forget_history();
    }

    async fn put_foreign(&self, key: &str, value: &str) {
        self.current().put_foreign(key, value.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_contract() {
    contract::run_all(&Memory::default()).await;
}

#[tokio::test]
async fn history_is_as_long_as_asked_for() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_history(3));
    let mut revisions = vec![store.list_all(KeyRange::Handles).await.unwrap().1];
    for n in 0..5 {
        revisions.push(store.create(Key::Handle(format!("h{n}").into()), b"x".to_vec()).await.unwrap());
    }
    for (index, revision) in revisions.into_iter().enumerate() {
        let mut watch = store.watch(KeyRange::Handles, revision).await.unwrap();
        let lost = index < 2;
        if index < 5 {
            let first = watch.next().await.unwrap().unwrap();
            assert_eq!(first == Event::HistoryGone, lost, "after {index} changes");
        }
    }
}
