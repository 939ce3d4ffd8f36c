//! The members' own changes on a store that writes record by record: beside each other, and no longer in the worker's way than they
//! usually take.
//!
//! A change of one pod's record may be answered late, or never: a webhook of the cluster hangs, or the pod's record is contended.
//! The worker waits a moment for those that are tried for the first time, so that the members share the writes of their blocks. What
//! takes longer goes on behind the scenes. Until it is known what became of it, nothing else is done for its handle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::HandleId;
use store::{Change, Store};
use tokio::task::JoinSet;

use crate::beside;
use crate::book::Inner;
use crate::make::{NotMade, make};

/// Much longer than a healthy store takes.
const GRACE: Duration = Duration::from_millis(500);

/// Someone with changes of its own.
pub(super) trait Own: Send + 'static {
    fn handle(&self) -> &HandleId;

    fn changes(&self) -> Vec<Change>;

    /// It is tried again because the store did not answer.
    fn is_retried(&self) -> bool;
}

/// What became of them: all were made, or so many and then one was not.
pub(super) type Outcome = Result<(), (usize, NotMade)>;

/// Makes all changes of all members. Gives those that were answered in time; the others go to `late`, each as soon as it is known.
pub(super) async fn make_all<M, F>(
    inner: &Arc<Inner>,
    members: Vec<M>,
    late: impl Fn(Arc<Inner>, M, Outcome) -> F + Send + 'static,
) -> Vec<(M, Outcome)>
where
    M: Own,
    F: Future<Output = ()> + Send + 'static,
{
    let mut waited_for: BTreeSet<HandleId> =
        members.iter().filter(|member| !member.is_retried()).map(|member| member.handle().clone()).collect();
    let mut open: BTreeSet<HandleId> = members.iter().map(|member| member.handle().clone()).collect();
    // In their order, which decides who comes first if not all fit into a commit.
    let order: Vec<HandleId> = members.iter().map(|member| member.handle().clone()).collect();
    let mut running = beside::start(members.into_iter().map(|member| {
        let store = Arc::clone(&inner.store);
        async move {
            let outcome = make_own(&*store, &member.changes()).await;
            (member, outcome)
        }
    }));
    let mut known = Vec::new();
    let grace = tokio::time::sleep(GRACE);
    tokio::pin!(grace);
    while !waited_for.is_empty() {
        tokio::select! {
            biased;
            Some(joined) = running.join_next() => {
                let (member, outcome) = unwrapped(joined);
                waited_for.remove(member.handle());
                open.remove(member.handle());
                known.push((member, outcome));
            }
            () = &mut grace => break,
        }
    }
    if !open.is_empty() {
        let busy = inner.hold(open);
        tokio::spawn(wait_for_rest(Arc::clone(inner), running, busy, late));
    }
    known.sort_by_cached_key(|(member, _): &(M, Outcome)| {
        order.iter().position(|handle| handle == member.handle())
    });
    known
}

async fn make_own(store: &dyn Store, changes: &[Change]) -> Outcome {
    for (position, change) in changes.iter().enumerate() {
        make(store, change).await.map_err(|not_made| (position, not_made))?;
    }
    Ok(())
}

async fn wait_for_rest<M, F>(
    inner: Arc<Inner>,
    mut running: JoinSet<(M, Outcome)>,
    mut busy: Busy,
    late: impl Fn(Arc<Inner>, M, Outcome) -> F + Send + 'static,
) where
    M: Own,
    F: Future<Output = ()> + Send + 'static,
{
    while let Some(joined) = running.join_next().await {
        let (member, outcome) = unwrapped(joined);
        let handle = member.handle().clone();
        late(Arc::clone(&inner), member, outcome).await;
        busy.release(&handle);
    }
}

fn unwrapped<T>(joined: Result<T, tokio::task::JoinError>) -> T {
    // Nobody aborts them while this waits.
    joined.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Handles for which nothing else is done until they are released.
#[derive(Debug)]
pub(super) struct Busy {
    inner: Arc<Inner>,
    handles: BTreeSet<HandleId>,
}

impl Busy {
    fn release(&mut self, handle: &HandleId) {
        self.handles.remove(handle);
        self.inner.queue.lock().busy.remove(handle);
        self.inner.queue.changed.notify_one();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut waiting = self.inner.queue.lock();
        waiting.busy.retain(|handle| !self.handles.contains(handle));
        drop(waiting);
        self.inner.queue.changed.notify_one();
    }
}

impl Inner {
    fn hold(self: &Arc<Inner>, handles: BTreeSet<HandleId>) -> Busy {
        self.queue.lock().busy.extend(handles.iter().cloned());
        Busy { inner: Arc::clone(self), handles }
    }
}
