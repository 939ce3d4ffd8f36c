//! One thread that does a process's kernel work, one piece after the other.
//!
//! The kernel takes one change of the network at a time anyway: several threads only wait for each other in there.
//! And work that enters a pod's namespace is best kept off the threads on which everything else runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::{mpsc, oneshot};

use crate::{Host, HostError};

/// How many pieces of work may wait before those who bring more wait, too.
const QUEUE_MAX: usize = 1024;

type Job = Box<dyn FnOnce(&mut Host) + Send>;

/// Cheap to clone; the thread ends when the last one is gone and all work is done.
#[derive(Clone)]
pub struct Worker {
    jobs: mpsc::Sender<Job>,
}

impl Worker {
    /// Starts a thread, called `name`, in the network namespace of the calling one.
    pub fn start(name: &str) -> Result<Worker, HostError> {
        Worker::start_with(name, Host::here()?)
    }

    /// The same with a node that was opened before.
    pub fn start_with(name: &str, mut host: Host) -> Result<Worker, HostError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE_MAX);
        let work = move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut host);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map(|_| Worker { jobs }).map_err(|source| HostError::Worker { source: Some(source) })
    }

    /// Has a piece of work done. Once started it is finished, even if nobody waits for its outcome any more.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        let (answer, outcome) = oneshot::channel();
        let job = move |host: &mut Host| {
            // A bug in one piece of work must not take the others along. The answer is then never given.
            if let Ok(done) = catch_unwind(AssertUnwindSafe(|| work(host))) {
                let _ = answer.send(done);
            }
        };
        let gone = HostError::Worker { source: None };
        if self.jobs.send(Box::new(job)).await.is_err() {
            return Err(gone);
        }
        outcome.await.map_err(|_| gone)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_panic_spoils_one_piece_of_work_only() {
        let worker = Worker::start("test").unwrap();
        let name = worker.run(|_| std::thread::current().name().map(str::to_owned)).await.unwrap();
        assert_eq!(name.as_deref(), Some("test"));
        assert!(worker.run(|_| panic!("as asked for")).await.is_err());
        assert_eq!(worker.run(|_| 5).await.unwrap(), 5);
    }
}
