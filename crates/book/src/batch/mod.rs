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
//! takes the oldest request that is due and all others that go with it, as many as fit into one commit. There is no waiting
//! for more to come.
//!
//! Nobody suffers for another: a member whose own changes cannot be made is answered, the rest starts over without it. One that
//! has to try again is due later, and the worker serves others until then. Own changes that the store is slow to answer are
//! waited for beside the worker ([`own`]). A caller who is gone before the decision is left out; one who goes later has what was
//! committed given back.
//!
//! Requests of one handle are served in the order in which they came, whatever happens to each.

mod assign;
mod own;
mod release;
mod undo;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::HandleId;
use tokio::sync::{Notify, oneshot};

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

    /// When to try again.
    fn due(&self) -> Option<Instant> {
        match self {
            Job::Assign(member) => member.due,
            Job::Release(member) => member.due,
        }
    }

    fn set_due(&mut self, due: Instant) {
        match self {
            Job::Assign(member) => member.due = Some(due),
            Job::Release(member) => member.due = Some(due),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// There is something new to look at.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    has_worker: bool,
    /// Something is under way for these handles beside the worker.
    busy: BTreeSet<HandleId>,
}

/// What the worker does next.
#[derive(Debug)]
enum Next {
    Batch(Vec<Job>),
    /// Nothing before this time, unless something changes.
    Wait(Option<Instant>),
    /// The queue is empty, and the worker ends.
    End,
}

/// Room in a commit for what is not any member's own: blocks, affinities, pools, the lock.
const SHARED_CHANGES: usize = 8;

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest job that is due and those that go with it; none of a handle that something earlier has to do with.
    fn next(&self, changes_max: usize, now: Instant) -> Next {
        let mut waiting = self.lock();
        let mut handles = waiting.busy.clone();
        let mut room = changes_max.saturating_sub(SHARED_CHANGES);
        let (mut batch, mut rest, mut earliest): (Vec<Job>, _, Option<Instant>) =
            (Vec::new(), VecDeque::new(), None);
        // Those behind the ones that fill the commit need not be looked at.
        while (batch.is_empty() || room > 0)
            && let Some(job) = waiting.jobs.pop_front()
        {
            let is_new_handle = handles.insert(job.handle().to_owned());
            let due = job.due().filter(|due| *due > now);
            let goes_along =
                batch.first().is_none_or(|first| job.changes_min() <= room && job.goes_with(first));
            if is_new_handle && due.is_none() && goes_along {
                room = room.saturating_sub(job.changes_min());
                batch.push(job);
                continue;
            }
            earliest = [earliest, due].into_iter().flatten().min();
            rest.push_back(job);
        }
        rest.append(&mut waiting.jobs);
        waiting.jobs = rest;
        if !batch.is_empty() {
            return Next::Batch(batch);
        }
        if !waiting.jobs.is_empty() {
            return Next::Wait(earliest);
        }
        waiting.has_worker = false;
        Next::End
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
        self.change_queue(|jobs| jobs.push_back(job));
    }

    /// Puts back those who go on at once; they were first, and stay so.
    fn put_back(self: &Arc<Inner>, put_back: Vec<Job>) {
        if put_back.is_empty() {
            return;
        }
        self.change_queue(|jobs| put_back.into_iter().rev().for_each(|job| jobs.push_front(job)));
    }

    /// Puts back those who try again later, all at the same time: they go together again. Others are served before them, but
    /// nothing of the same handle is.
    fn put_off(self: &Arc<Inner>, put_off: Vec<Job>, delay: Duration) {
        if put_off.is_empty() {
            return;
        }
        let due = Instant::now() + delay;
        self.change_queue(|jobs| {
            for mut job in put_off {
                job.set_due(due);
                let later = jobs.iter().position(|other| other.handle() == job.handle());
                jobs.insert(later.unwrap_or(jobs.len()), job);
            }
        });
    }

    fn change_queue(self: &Arc<Inner>, change: impl FnOnce(&mut VecDeque<Job>)) {
        let needs_worker = {
            let mut waiting = self.queue.lock();
            change(&mut waiting.jobs);
            !std::mem::replace(&mut waiting.has_worker, true)
        };
        self.queue.changed.notify_one();
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
            let batch = match self.inner.queue.next(self.inner.changes_max(), Instant::now()) {
                Next::Batch(batch) => batch,
                Next::Wait(until) => {
                    self.wait(until).await;
                    continue;
                }
                Next::End => {
                    self.is_finished = true;
                    return;
                }
            };
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

    async fn wait(&self, until: Option<Instant>) {
        let changed = self.inner.queue.changed.notified();
        match until {
            Some(until) => drop(tokio::time::timeout_at(until.into(), changed).await),
            None => changed.await,
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
