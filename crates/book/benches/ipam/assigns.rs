//! Addresses given by the book: by one that follows the store, as an agent's does, and by one for a single call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use book::{AssignRequest, Book, HandleRequest, Settings};
use ipam::ReleaseRule;
use model::{HandleId, IpVersion};
use sim::cluster::Pod;
use store::Store;
use store::wrap::{CountingStore, Counts};
use tokio::task::JoinSet;

/// What some assignments took.
pub(crate) struct Taken {
    pub(crate) time: Duration,
    pub(crate) addresses: usize,
    pub(crate) counts: Counts,
    /// The most round trips that one of them took; only of those that were alone.
    pub(crate) round_trips_max: u64,
}

/// A node and its book, with a first block that has its first address given out.
struct Node {
    name: String,
    counting: Arc<CountingStore>,
    book: Book,
    given: Vec<HandleId>,
}

impl Node {
    async fn start(store: &Arc<dyn Store>, name: String) -> anyhow::Result<Node> {
        let counting = Arc::new(CountingStore::new(Arc::clone(store)));
        let book = Book::following(counting.clone(), Settings::default(), &name);
        book.in_sync().await;
        let mut node = Node { name, counting, book, given: Vec::new() };
        let first = node.request();
        node.book.assign(first).await?;
        // A node that has its first block is not looking for the next one when the first pod comes.
        node.book.at_rest().await;
        Ok(node)
    }

    fn request(&mut self) -> AssignRequest {
        request(&self.name, &mut self.given)
    }

    /// Leaves the store as it was.
    async fn end(self) -> anyhow::Result<()> {
        let mut releases = JoinSet::new();
        for handle in self.given {
            let book = self.book.clone();
            releases.spawn(async move { book.release_handle(HandleRequest::all(handle)).await });
        }
        while let Some(released) = releases.join_next().await {
            released??;
        }
        self.book.release_host(&self.name, ReleaseRule::default()).await?;
        Ok(())
    }
}

fn request(node: &str, given: &mut Vec<HandleId>) -> AssignRequest {
    // Beyond every pod of the cluster that fills the store.
    let owner = Pod::new(10_000_000 + given.len(), node).owner();
    let owner = ipam::Owner { handle: format!("{}-{node}", owner.handle).into(), ..owner };
    given.push(owner.handle.clone());
    AssignRequest { handle_may_exist: false, ..AssignRequest::new(node, owner, &[IpVersion::V4]) }
}

/// Bursts of so many requests at once, one burst after the other until there are `addresses_min`.
pub(crate) async fn in_bursts(
    store: &Arc<dyn Store>,
    node: String,
    burst: usize,
    addresses_min: usize,
) -> anyhow::Result<Taken> {
    let mut node = Node::start(store, node).await?;
    let bursts = addresses_min.div_ceil(burst);
    let requests: Vec<Vec<AssignRequest>> =
        (0..bursts).map(|_| (0..burst).map(|_| node.request()).collect()).collect();
    let before = node.counting.counts();
    let mut round_trips_max = 0;
    let started = Instant::now();
    for requests in requests {
        let before = node.counting.counts();
        at_once(&node.book, requests).await?;
        round_trips_max = round_trips_max.max((node.counting.counts() - before).round_trips());
    }
    let time = started.elapsed();
    let counts = node.counting.counts() - before;
    node.end().await?;
    Ok(Taken { time, addresses: bursts * burst, counts, round_trips_max })
}

async fn at_once(book: &Book, requests: Vec<AssignRequest>) -> anyhow::Result<()> {
    let mut assigns = JoinSet::new();
    for request in requests {
        let book = book.clone();
        assigns.spawn(async move { book.assign(request).await });
    }
    while let Some(assigned) = assigns.join_next().await {
        assigned??;
    }
    Ok(())
}

/// The most round trips of some assignments, each by a book of its own that knows nothing yet.
pub(crate) async fn one_shot_round_trips(store: &Arc<dyn Store>, node: String) -> anyhow::Result<u64> {
    let mut node = Node::start(store, node).await?;
    let mut most = 0;
    for _ in 0..10 {
        let before = node.counting.counts();
        let request = node.request();
        Book::new(node.counting.clone()).assign(request).await?;
        most = most.max((node.counting.counts() - before).round_trips());
    }
    node.end().await?;
    Ok(most)
}
