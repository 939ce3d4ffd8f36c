//! Reads, each on a connection of its own.
//!
//! Whatever may take long runs away from the threads that run async tasks. A few rows, which as a rule are in the page
//! cache, are read right where they are wanted: that takes less time than two other threads need to wake up, and
//! readers wait for no lock while a writer writes.

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
    /// Each with the generation of the file that it reads.
    idle: Mutex<Vec<(u64, Connection)>>,
}

impl Readers {
    /// More connections than this are opened when many read at once, but not kept.
    const IDLE_MAX: usize = 4;

    pub(super) fn new(file: Arc<DatabaseFile>) -> Arc<Readers> {
        Arc::new(Readers { file, idle: Mutex::default() })
    }

    /// Reads a few rows, inside one read transaction.
    pub(super) async fn few<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let generation = self.file.check_identity().map_err(|trouble| self.tell(trouble))?;
        match self.waiting(generation) {
            Some(connection) => {
                self.read_on(generation, connection, read).map_err(|trouble| self.tell(trouble))
            }
            None => self.many(read).await,
        }
    }

    /// Reads what may be much, inside one read transaction.
    pub(super) async fn many<T: Send + 'static>(
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
            readers.read_anywhere(read).map_err(|trouble| readers.tell(trouble))
        })
    }

    fn read_anywhere<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Trouble> {
        let generation = self.file.check_identity()?;
        let connection = match self.waiting(generation) {
            Some(connection) => connection,
            None => self.file.connect_reader()?,
        };
        self.read_on(generation, connection, read)
    }

    /// A connection that fails is not used again.
    fn read_on<T>(
        &self,
        generation: u64,
        mut connection: Connection,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Trouble> {
        let transaction = connection.transaction()?;
        let answer = read(&transaction)?;
        transaction.commit()?;
        let mut idle = self.lock();
        if idle.len() < Readers::IDLE_MAX {
            idle.push((generation, connection));
        }
        Ok(answer)
    }

    /// Closes what still reads a file of an earlier generation.
    fn waiting(&self, generation: u64) -> Option<Connection> {
        let mut idle = self.lock();
        idle.retain(|(of, _)| *of == generation);
        idle.pop().map(|(_, connection)| connection)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, trouble: Trouble) -> StoreError {
        self.file.explain(trouble).at(&self.file.path)
    }
}

/// What a read that was started has to say.
pub(super) fn finished<T>(joined: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    joined.unwrap_or_else(|error| {
        Err(StoreError::Other { operation: "reading the database".to_owned(), source: Box::new(error) })
    })
}
