//! Pods that start, fifty a second, while something else goes on.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use book::{AssignRequest, Book, HandleRequest, Settings};
use ipam::Owner;
use jiff::Timestamp;
use model::IpVersion;
use store::Store;
use testkit::figures::Run;
use tokio::task::JoinSet;

const PER_SECOND: u32 = 50;
/// A node of the made-up cluster.
const NODE: &str = "worker-0000";

/// When an assign began, and how long it took.
pub(crate) type Assign = (Instant, Duration);

/// How long these took.
pub(crate) fn run(assigns: impl IntoIterator<Item = Assign>) -> Run {
    Run::new(assigns.into_iter().map(|(_, took)| took))
}

/// Every assign that was made meanwhile.
pub(crate) async fn during(store: &Arc<dyn Store>, other: impl Future) -> Result<Vec<Assign>> {
    let book = Arc::new(Book::following(Arc::clone(store), Settings::default(), NODE));
    book.in_sync().await;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let (mut under_way, mut times) = (JoinSet::new(), Vec::new());
    let mut other = std::pin::pin!(other);
    loop {
        tokio::select! {
            _ = other.as_mut() => break,
            _ = ticks.tick() => {
                under_way.spawn(assign(Arc::clone(&book)));
            }
            Some(done) = under_way.join_next() => times.push(done??),
        }
    }
    while let Some(done) = under_way.join_next().await {
        times.push(done??);
    }
    eprintln!("{} assigns", times.len());
    Ok(times)
}

async fn assign(book: Arc<Book>) -> Result<Assign> {
    let handle = format!("k8s-pod-network.{}", uuid::Uuid::new_v4().simple());
    let owner = Owner::on_node(&handle, NODE, Timestamp::now());
    let started = Instant::now();
    book.assign(AssignRequest::new(NODE, owner, &[IpVersion::V4])).await?;
    let took = started.elapsed();
    book.release_handle(HandleRequest::all(&handle)).await?;
    Ok((started, took))
}
