//! The one thread of this process that writes.
//!
//! ```text
//!  commit() ──request──▶ queue ──▶ writer thread: BEGIN IMMEDIATE, all that waits, COMMIT
//!     ▲                               │        └──▶ news (watches here), announcement (watches elsewhere)
//!     └────────────answer─────────────┘
//! ```
//! Requests that wait at the same time share a transaction, and so the cost of making it durable. Each still is a
//! commit of its own, with its own revision and its own refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use model::Key;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot, watch};

use super::commit::{apply, finish};
use super::error::Trouble;
use super::file::DatabaseFile;
use super::place::Place;
use super::read::standing;
use super::{History, Latest, News};
use crate::{Change, Committed, Event, Record, Revision, StoreError, Write};

type Answer = Result<Committed, StoreError>;

#[derive(Debug)]
struct Request {
    changes: Vec<Change>,
    answer: oneshot::Sender<Answer>,
}

/// A handle to the writer thread. Dropping it ends the thread once its queue is empty.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    place: Arc<Place>,
    /// The last transaction failed, for all that was in it.
    failed: Arc<AtomicBool>,
}

impl Writer {
    /// Further commits wait outside the queue.
    const QUEUE_MAX: usize = 256;
    /// More would make the first of them wait for too long.
    const GROUP_MAX: usize = 64;
    /// Whoever writes so often will write more.
    const WRITTEN_OFTEN: u32 = 8;

    pub(super) fn start(
        file: Arc<DatabaseFile>,
        connection: Connection,
        history: History,
        news: watch::Sender<News>,
    ) -> std::io::Result<Writer> {
        let (queue, requests) = mpsc::channel(Writer::QUEUE_MAX);
        let failed = Arc::new(AtomicBool::new(false));
        let own_failed = Arc::clone(&failed);
        let desk = Desk { file, generation: 0, connection, history, news, written: 0, failed: own_failed };
        let place = Arc::new(Place::new());
        let own_place = Arc::clone(&place);
        let work = move || {
            own_place.take();
            desk.work(requests);
        };
        let thread = std::thread::Builder::new().name("sqlite-writer".into()).spawn(work)?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), place, failed })
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Without changes it is a trial: something is written that changes nothing.
    pub(super) async fn commit(&self, changes: Vec<Change>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let request = Request { changes, answer };
        self.place.keep_off();
        if let Some(queue) = &self.queue
            && queue.send(request).await.is_ok()
            && let Ok(answer) = answered.await
        {
            return answer;
        }
        Err(StoreError::Uncertain { source: "the thread that writes has ended".into() })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the writer thread works with.
struct Desk {
    file: Arc<DatabaseFile>,
    /// Of the file that the connection writes to.
    generation: u64,
    connection: Connection,
    history: History,
    news: watch::Sender<News>,
    /// Transactions so far.
    written: u32,
    failed: Arc<AtomicBool>,
}

impl Desk {
    fn work(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let mut group = vec![first];
            while group.len() < Writer::GROUP_MAX
                && let Ok(request) = requests.try_recv()
            {
                group.push(request);
            }
            // Whoever gave up before anything was done need not be served.
            group.retain(|request| !request.answer.is_closed());
            if !group.is_empty() {
                self.serve(group);
            }
        }
    }

    fn serve(&mut self, group: Vec<Request>) {
        let written = self.write(&group);
        self.failed.store(written.is_err(), Ordering::Relaxed);
        match written {
            Ok((answers, latest)) => {
                // First of all those who wait: what watches do about the news may take a while.
                for (request, answer) in group.into_iter().zip(answers) {
                    let _ = request.answer.send(answer);
                }
                if let Some(latest) = latest {
                    self.news.send_modify(|news| {
                        news.advance(latest.after);
                        news.latest = Some(latest);
                    });
                    self.file.announce();
                    self.written = self.written.saturating_add(1);
                    if self.written == Writer::WRITTEN_OFTEN {
                        self.make_room();
                    }
                }
            }
            Err(failure) => {
                for request in group {
                    let _ = request.answer.send(Err(failure.tell(&self.file)));
                }
            }
        }
    }

    fn make_room(&mut self) {
        let behavior = TransactionBehavior::Immediate;
        let Ok(_transaction) = self.connection.transaction_with_behavior(behavior) else { return };
        if let Err(error) = self.file.make_room_in_log() {
            tracing::debug!(path = %self.file.path.display(), %error, "the log grows step by step");
        }
    }

    /// Answers for each request, and what has changed, if anything. An error concerns all of them.
    fn write(&mut self, group: &[Request]) -> Result<(Vec<Answer>, Option<Latest>), Failure> {
        let generation = self.file.check_identity()?;
        if generation != self.generation {
            self.connection = self.file.connect()?;
            self.generation = generation;
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let before = standing(&transaction)?;
        let mut after = before;
        let mut answers = Vec::with_capacity(group.len());
        for request in group {
            answers.push(apply(&transaction, &mut after, &request.changes)?);
        }
        if after.revision == before.revision {
            if group.iter().any(|request| request.changes.is_empty()) {
                transaction.execute("UPDATE store SET history_bytes = history_bytes", [])?;
                transaction.commit().map_err(Failure::at_commit)?;
            }
            return Ok((answers, None));
        }
        let after = finish(&transaction, after, &self.history)?;
        transaction.commit().map_err(Failure::at_commit)?;
        let events = group.iter().zip(&answers).flat_map(|(request, answer)| events(request, answer));
        let latest = Latest { before: before.revision, after: after.revision, events: events.collect() };
        Ok((answers, Some(latest)))
    }
}

/// What a watch hears of a request that was served.
fn events(request: &Request, answer: &Answer) -> Vec<(String, Event)> {
    let Ok(Committed { revisions }) = answer else { return Vec::new() };
    let event = |(change, revision): (&Change, &Revision)| {
        let text = change.key.etcd_text();
        // As whoever reads it.
        let (key, revision) = (Key::from_etcd_text(&text).ok()?, revision.clone());
        let event = match &change.write {
            Write::Put(value) => Event::Put(Record { key, value: value.clone(), revision }),
            Write::Delete => Event::Deleted { key, revision },
            Write::Nothing => return None,
        };
        Some((text, event))
    };
    request.changes.iter().zip(revisions).filter_map(event).collect()
}

/// Why a transaction did not happen, or may not have.
struct Failure {
    trouble: Trouble,
    uncertain: bool,
}

impl Failure {
    /// If the disk fails while the log is made durable, what was written may be found again after a crash.
    fn at_commit(error: rusqlite::Error) -> Failure {
        let trouble = Trouble::from(error);
        Failure { uncertain: trouble.is_io_failure(), trouble }
    }

    fn tell(&self, file: &DatabaseFile) -> StoreError {
        let error = file.explain(self.trouble.clone()).at(&file.path);
        if self.uncertain { StoreError::Uncertain { source: Box::new(error) } } else { error }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure { trouble, uncertain: false }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::from(Trouble::from(error))
    }
}
