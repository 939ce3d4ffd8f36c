//! A process's kernel work, one piece after the other: on a thread of its own, or on the caller's where that is idle.
//!
//! The kernel takes one change of the network at a time anyway: several threads only wait for each other in there.
//! And work that enters a pod's namespace is best kept off the threads on which everything else runs, unless there
//! is nothing else: to wake a thread up takes longer than most pieces of work.
//!
//! A panic in a piece of work is one of the whole process: programs are built to end then, and whatever they leave
//! halfway is found at the next start.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use tokio::sync::{mpsc, oneshot};

use crate::{Host, HostError};

/// How many pieces of work may wait before those who bring more wait, too.
const QUEUE_MAX: usize = 1024;

/// Gives back what is to be told, and to whom: whoever is told finds the worker idle.
type Job = Box<dyn FnOnce(&mut Host) -> Tell + Send>;
type Tell = Box<dyn FnOnce() + Send>;

/// Cheap to clone; the thread ends when the last one is gone and all work is done.
#[derive(Clone)]
pub struct Worker {
    jobs: mpsc::Sender<Job>,
    host: Arc<Mutex<Host>>,
}

impl Worker {
    /// Starts a thread, called `name`, in the network namespace of the calling one.
    pub fn start(name: &str) -> Result<Worker, HostError> {
        Worker::start_with(name, Host::here()?)
    }

    /// The same with a node that was opened before.
    pub fn start_with(name: &str, host: Host) -> Result<Worker, HostError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE_MAX);
        let host = Arc::new(Mutex::new(host));
        let shared = Arc::clone(&host);
        let work = move || {
            while let Some(job) = queue.blocking_recv() {
                let tell = job(&mut shared.lock().unwrap_or_else(PoisonError::into_inner));
                tell();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map(|_| Worker { jobs, host }).map_err(|source| HostError::Worker { source: Some(source) })
    }

    /// Has a piece of work done. Once started it is finished, even if nobody waits for its outcome any more.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        let (answer, outcome) = oneshot::channel();
        let job = move |host: &mut Host| -> Tell {
            let done = work(host);
            Box::new(move || drop(answer.send(done)))
        };
        let gone = HostError::Worker { source: None };
        if self.jobs.send(Box::new(job)).await.is_err() {
            return Err(gone);
        }
        outcome.await.map_err(|_| gone)
    }

    /// The same on the calling thread, if no other work is under way or waits. For short work on a thread of this
    /// process that is in the node's namespace and has nothing else to do.
    pub async fn run_here<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        if self.jobs.capacity() == QUEUE_MAX {
            match self.host.try_lock() {
                Ok(mut host) => return Ok(work(&mut host)),
                Err(TryLockError::Poisoned(host)) => return Ok(work(&mut host.into_inner())),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.run(work).await
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;

    use super::*;

    fn thread() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn work_is_done_on_the_workers_thread() {
        let worker = Worker::start("test").unwrap();
        assert_eq!(worker.run(|_| thread()).await.unwrap().as_deref(), Some("test"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_idle_worker_lets_the_caller_do_it() {
        let worker = Worker::start("test").unwrap();
        assert_eq!(worker.run_here(|_| thread()).await.unwrap(), thread());
        let (begun, begins) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let busy = tokio::spawn({
            let worker = worker.clone();
            async move {
                let work = move |_: &mut Host| {
                    let _ = begun.send(());
                    let _ = ends.recv();
                };
                worker.run(work).await
            }
        });
        tokio::task::yield_now().await;
        begins.recv().unwrap();
        let waiting = worker.run_here(|_| thread());
        tokio::pin!(waiting);
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(
                waiting.as_mut().poll(context).is_pending()
            ))
            .await
        );
        drop(end);
        assert_eq!(waiting.await.unwrap().as_deref(), Some("test"), "work under way is not interrupted");
        busy.await.unwrap().unwrap();
    }
}
