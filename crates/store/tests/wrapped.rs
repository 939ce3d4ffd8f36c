//! Stores around a store keep the contract, each as far as it goes.

mod contract;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use store::wrap::{CountingStore, FailingStore, Failure, StepwiseStore};
use store::{MemoryStore, Store};

/// A store in memory with something around it.
struct Wrapped {
    memory: Mutex<Arc<MemoryStore>>,
    wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>,
}

impl Wrapped {
    fn new(wrap: fn(Arc<dyn Store>) -> Arc<dyn Store>) -> Wrapped {
        Wrapped { memory: Mutex::default(), wrap }
    }

    fn current(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.memory.lock().unwrap())
    }
}

#[async_trait]
impl contract::Backend for Wrapped {
    async fn fresh(&self) -> Arc<dyn Store> {
        *self.memory.lock().unwrap() = Arc::new(MemoryStore::new());
        self.another().await
    }

    async fn another(&self) -> Arc<dyn Store> {
        (self.wrap)(self.current())
    }

    async fn forget_history(&self) {
        self.current().forget_history();
    }

    async fn put_foreign(&self, key: &str, value: &str) {
        self.current().put_foreign(key, value.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counted_store_keeps_the_contract() {
    contract::run_all(&Wrapped::new(|inner| Arc::new(CountingStore::new(inner)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_to_fail_keeps_the_contract_until_then() {
    let later = |inner| -> Arc<dyn Store> { Arc::new(FailingStore::new(inner, Failure::End, u64::MAX)) };
    contract::run_all(&Wrapped::new(later)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stepwise_store_keeps_what_needs_no_transactions() {
    contract::run_all(&Wrapped::new(|inner| Arc::new(StepwiseStore::new(inner)))).await;
}
