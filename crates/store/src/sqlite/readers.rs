//! Reads, away from the threads that run async tasks, each on a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::task::{JoinError, JoinHandle};

use super::error::Trouble;
use super::file::DatabaseFile;
use crate::StoreError;

/// Connections that wait for the next read.
#[derive(Debug)]
pub(super) struct Readers {
    file: Arc<DatabaseFile>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    /// More connections than this are opened when many read at once, but not kept.
    const IDLE_MAX: usize = 4;

    pub(super) fn new(file: Arc<DatabaseFile>) -> Arc<Readers> {
        Arc::new(Readers { file, idle: Mutex::default() })
    }

    /// Runs `read` inside one read transaction.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        finished(self.start(read).await)
    }

    /// The same for callers that may give up waiting and come back for the answer.
    pub(super) fn start<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> JoinHandle<Result<T, StoreError>> {
        let readers = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            readers.read(read).map_err(|trouble| readers.file.explain(trouble).at(&readers.file.path))
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Trouble> {
        let waiting = self.lock().pop();
        let mut connection = match waiting {
            Some(connection) => connection,
            None => self.file.connect_reader()?,
        };
        let transaction = connection.transaction()?;
        let answer = read(&transaction)?;
        transaction.commit()?;
        let mut idle = self.lock();
        if idle.len() < Readers::IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a read that was started has to say.
pub(super) fn finished<T>(joined: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    joined.unwrap_or_else(|error| {
        Err(StoreError::Other { operation: "reading the database".to_owned(), source: Box::new(error) })
    })
}
