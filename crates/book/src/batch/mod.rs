//! Requests that arrive while a commit is on its way wait for it, and go together in the next.
//!
//! ```text
//!   assign ──┐                    ┌─ one group: same node, pools, purpose … ─▶ one decision ─▶ one commit
//!   assign ──┼─▶ queue ─▶ worker ─┤
//!   release ─┘                    └─ releases ─▶ every block written once ─▶ one commit
//! ```
//!
//! On a store without transactions a batch shares the writes of its blocks all the same ([`assign::one_by_one`],
//! [`release::one_by_one`]): handles and the members' own changes are made beside each other, each block once.
//!
//! The worker is a task that lives as long as the queue is not empty, so that a caller who goes away stops nothing. It
//! takes the oldest request and all others that go with it, as many as fit into one commit. There is no waiting for
//! more to come.
//!
//! Nobody suffers for another: a member whose own changes cannot be made is answered, the rest starts over without it.
//! A caller who is gone before the decision is left out; one who goes later has what was committed given back.

mod assign;
mod release;
mod undo;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::HandleId;
use tokio::sync::oneshot;

pub(crate) use assign::{Assigning, group_request};
pub use release::GivenBack;
pub(crate) use release::Releasing;
pub(crate) use undo::Unwanted;

use crate::BookError;
use crate::book::Inner;

/// Someone who waits.
#[derive(Debug)]
pub(crate) enum Job {
    Assign(Box<Assigning>),
    Release(Box<Releasing>),
}

impl Job {
    /// How many changes of a commit it needs at least.
    fn changes_min(&self) -> usize {
        match self {
            Job::Assign(member) => 1 + member.request.additions.count,
            Job::Release(member) => 1 + member.request.additions.len(),
        }
    }

    fn goes_with(&self, other: &Job) -> bool {
        match (self, other) {
            (Job::Assign(one), Job::Assign(other)) => one.request.is_alike(&other.request),
            (Job::Release(_), Job::Release(_)) => true,
            (Job::Assign(_), Job::Release(_)) | (Job::Release(_), Job::Assign(_)) => false,
        }
    }

    fn handle(&self) -> &HandleId {
        match self {
            Job::Assign(member) => &member.request.owner.handle,
            Job::Release(member) => &member.request.handle,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    has_worker: bool,
}

/// Room in a commit for what is not any member's own: blocks, affinities, pools, the lock.
const SHARED_CHANGES: usize = 8;

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest job and those that go with it; none of a handle that an earlier one in the queue has to do with.
    fn next_batch(&self, changes_max: usize) -> Vec<Job> {
        let mut waiting = self.lock();
        let Some(first) = waiting.jobs.pop_front() else {
            waiting.has_worker = false;
            return Vec::new();
        };
        let mut room = changes_max.saturating_sub(SHARED_CHANGES + first.changes_min());
        let mut handles = BTreeSet::from([first.handle().to_owned()]);
        let (mut batch, mut rest) = (vec![first], VecDeque::new());
        // Those behind the ones that fill the commit need not be looked at.
        while room > 0
            && let Some(job) = waiting.jobs.pop_front()
        {
            let is_new_handle = handles.insert(job.handle().to_owned());
            let fits = job.changes_min() <= room && job.goes_with(&batch[0]) && is_new_handle;
            if fits {
                room -= job.changes_min();
                batch.push(job);
            } else {
                rest.push_back(job);
            }
        }
        rest.append(&mut waiting.jobs);
        waiting.jobs = rest;
        batch
    }

    /// Puts back those who have to try again; they were first, and stay so.
    pub(crate) fn put_back(&self, jobs: Vec<Job>) {
        let mut waiting = self.lock();
        for job in jobs.into_iter().rev() {
            waiting.jobs.push_front(job);
        }
    }
}

impl Inner {
    /// Queues a request and waits for its answer.
    pub(crate) async fn ask<T>(
        self: &Arc<Inner>,
        job: impl FnOnce(oneshot::Sender<Result<T, BookError>>) -> Job,
    ) -> Result<T, BookError> {
        let (sender, receiver) = oneshot::channel();
        self.enqueue(job(sender));
        receiver.await.unwrap_or(Err(BookError::Closed))
    }

    pub(crate) fn enqueue(self: &Arc<Inner>, job: Job) {
        let needs_worker = {
            let mut waiting = self.queue.lock();
            waiting.jobs.push_back(job);
            !std::mem::replace(&mut waiting.has_worker, true)
        };
        if needs_worker {
            let worker = Worker { inner: Arc::clone(self), is_finished: false };
            tokio::spawn(worker.run());
        }
    }
}

struct Worker {
    inner: Arc<Inner>,
    is_finished: bool,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let batch = self.inner.queue.next_batch(self.inner.changes_max());
            if batch.is_empty() {
                self.is_finished = true;
                return;
            }
            let (mut assigning, mut releasing) = (Vec::new(), Vec::new());
            for job in batch {
                match job {
                    Job::Assign(member) => assigning.push(*member),
                    Job::Release(member) => releasing.push(*member),
                }
            }
            if !assigning.is_empty() {
                assign::serve(&self.inner, assigning).await;
            }
            if !releasing.is_empty() {
                release::serve(&self.inner, releasing).await;
            }
        }
    }
}

impl Drop for Worker {
    /// A worker that ends before its time (the runtime is shutting down, or a bug) leaves nobody waiting for ever.
    fn drop(&mut self) {
        if !self.is_finished {
            let mut waiting = self.inner.queue.lock();
            waiting.has_worker = false;
            waiting.jobs.clear();
        }
    }
}
