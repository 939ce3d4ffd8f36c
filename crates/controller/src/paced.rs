//! The store as a controller may use it: at most so many requests per second, and changes only while it leads.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::{Key, KeyRange};
use store::kube::KubeObjects;
use store::{
    Capabilities, Change, Committed, ListPage, ListRequest, Lookup, Record, Revision, Store, StoreError,
    Watch,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::election::Reign;
use crate::pages::Metrics;

/// A store behind a limit.
#[derive(Debug)]
pub(crate) struct PacedStore {
    inner: Arc<dyn Store>,
    reign: Arc<Reign>,
    metrics: Arc<Metrics>,
    line: Mutex<Line>,
}

/// Requests that were not needed for so long may be sent at once.
const CREDIT: Duration = Duration::from_millis(200);

/// Who waits for whom.
#[derive(Debug)]
struct Line {
    /// Between two requests.
    pause: Duration,
    /// When the next request may be sent.
    next: Instant,
}

impl Line {
    /// When so many requests may be sent that are ready now.
    fn place(&mut self, now: Instant, requests: usize) -> Instant {
        let at = self.next.max(now.checked_sub(CREDIT).unwrap_or(now));
        self.next = at + self.pause.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        at
    }
}

impl PacedStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        reign: Arc<Reign>,
        metrics: Arc<Metrics>,
        per_second: u32,
    ) -> PacedStore {
        let line = Line { pause: Duration::from_secs(1) / per_second.max(1), next: Instant::now() };
        PacedStore { inner, reign, metrics, line: Mutex::new(line) }
    }

    /// Returns when so many requests may be sent.
    async fn wait_for(&self, requests: usize) {
        self.metrics.requests.add(requests);
        let at = self.line.lock().await.place(Instant::now(), requests);
        sleep_until(at).await;
    }

    /// A commit is one request where it is atomic, and one for each change where it is not.
    fn requests_of(&self, parts: usize) -> usize {
        if self.inner.capabilities().atomic_commits { 1 } else { parts }
    }
}

fn does_not_lead() -> StoreError {
    StoreError::Other {
        operation: "changing records".to_owned(),
        source: "this controller does not lead any more".into(),
    }
}

#[async_trait]
impl Store for PacedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn objects(&self) -> Option<KubeObjects> {
        self.inner.objects()
    }

    fn commits_apart(&self) -> bool {
        self.inner.commits_apart()
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.wait_for(1).await;
        self.inner.get(key).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        self.wait_for(1).await;
        self.inner.list(request).await
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        self.wait_for(self.requests_of(lookups.len())).await;
        self.inner.read(lookups).await
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        self.wait_for(self.requests_of(changes.len())).await;
        let left = self.reign.left().ok_or_else(does_not_lead)?;
        match timeout(left, self.inner.commit(changes)).await {
            Ok(committed) => committed,
            // It was sent in time, and may have been carried out.
            Err(_) => Err(does_not_lead()),
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.inner.probe().await
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(range, after).await
    }
}

#[cfg(test)]
mod tests {
    use store::MemoryStore;

    use super::*;

    fn paced(per_second: u32) -> (Arc<MemoryStore>, Arc<Reign>, PacedStore) {
        let (inner, reign) = (Arc::new(MemoryStore::new()), Arc::new(Reign::default()));
        let store = PacedStore::new(inner.clone(), reign.clone(), Arc::default(), per_second);
        (inner, reign, store)
    }

    fn handle(name: &str) -> Change {
        Change::create(Key::Handle(name.into()), "{}")
    }

    #[tokio::test]
    async fn only_who_leads_changes_anything() {
        let (inner, reign, store) = paced(1000);
        assert!(store.commit(vec![handle("a")]).await.unwrap_err().to_string().contains("changing records"));
        reign.extend(std::time::Instant::now() + Duration::from_secs(1000));
        store.commit(vec![handle("b")]).await.unwrap();
        reign.end();
        assert!(store.commit(vec![handle("c")]).await.is_err());
        let (records, _) = (&*inner as &dyn Store).list_all(KeyRange::Handles).await.unwrap();
        assert_eq!(
            records.iter().map(|record| record.key.to_string()).collect::<Vec<_>>(),
            ["IPAMHandle(b)"]
        );
    }

    #[test]
    fn requests_are_as_many_per_second_as_is_allowed() {
        let start = Instant::now();
        let mut line = Line { pause: Duration::from_millis(20), next: start };
        let mut now = start;
        for _ in 0..100 {
            now = now.max(line.place(now, 5));
        }
        assert_eq!(now - start, Duration::from_millis(99 * 5 * 20));
        // After a rest a few may go at once, and not as many as were not sent.
        now += Duration::from_secs(3600);
        assert!(line.place(now, 10) < now && line.place(now, 1) <= now);
        assert!(line.place(now, 1) > now);
    }

    #[tokio::test]
    async fn requests_are_counted() {
        let (_, _, store) = paced(1000);
        store.get(&Key::Handle("a".into())).await.unwrap();
        let lookups = ["a", "b"].map(|name| Lookup::Record(Key::Handle(name.into())));
        store.read(lookups.to_vec()).await.unwrap();
        assert_eq!(store.metrics.requests.count(), 2, "one transaction is one request");
    }
}
