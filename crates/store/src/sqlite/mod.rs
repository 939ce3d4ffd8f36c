//! The default store: one SQLite file, used by several processes at once.
//!
//! It holds the keys and values of Calico's etcd layout, so that moving to etcd is a copy, one revision for the whole
//! store, and a bounded history that serves watches and lists in pages. Local disks only.
//!
//! ```text
//!  get, list, watch ──▶ readers    a connection each; what may take long goes to blocking threads
//!  commit ────────────▶ writer     one thread, one connection
//!  watch ◀──news──────── writer    what this process commits
//!        ◀──news──────── listener  what others commit: one thread, started by the first watch
//! ```

mod commit;
mod create;
mod error;
mod file;
mod identity;
mod listener;
mod place;
mod read;
mod readers;
mod schema;
mod watch;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use model::{Key, KeyRange};
use rusqlite::Connection;

use self::error::Trouble;
use self::file::DatabaseFile;
use self::listener::Listener;
use self::readers::Readers;
use self::watch::Following;
use self::writer::Writer;
use crate::request::{check_commit, check_key, check_lookups, counted};
use crate::{
    Capabilities, Change, Committed, Event, ListPage, ListRequest, Lookup, Record, Revision, Store,
    StoreError, Watch,
};

/// So many lookups are answered right where they are wanted; the ranges among them are small by contract.
const LOOKUPS_FEW: usize = 32;

/// A store in a SQLite file. Handles are cheap to share (`Arc`); each has its own threads and connections.
#[derive(Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

/// What may be done with the file, and what if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read and write. A missing file is made, readable for its owner only; so is its directory, but not the
    /// directory's parent.
    CreateIfMissing,
    /// Read and write a file that must be there.
    Existing,
    /// Only read; the file is not changed, and not made if it is missing. (SQLite may leave its two companions,
    /// `-wal` and `-shm`, beside it.) Works on a read-only file system, too.
    ReadOnly,
}

/// How much of the past is kept for watches that fall behind and for lists in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    pub commits_max: u32,
    /// Counts what the changes replaced.
    pub bytes_max: u64,
}

impl Default for History {
    fn default() -> History {
        History { commits_max: 10_000, bytes_max: 64 * 1024 * 1024 }
    }
}

/// What is seldom set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    pub history: History,
    /// How long to wait for another process that holds the database.
    pub lock_patience: Duration,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        SqliteOptions { history: History::default(), lock_patience: Duration::from_secs(30) }
    }
}

impl SqliteStore {
    /// Opens the file, and makes sure that it is ours and that it can be used as `mode` says. Blocks.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_with(path, mode, SqliteOptions::default())
    }

    pub fn open_with(
        path: impl AsRef<Path>,
        mode: OpenMode,
        options: SqliteOptions,
    ) -> Result<SqliteStore, StoreError> {
        let (file, connection) = DatabaseFile::open(path.as_ref(), mode, options.lock_patience)?;
        let file = Arc::new(file);
        let (news, _) = tokio::sync::watch::channel(News::default());
        let writer = if file.is_writable() {
            let writer = Writer::start(Arc::clone(&file), connection, options.history, news.clone());
            Some(writer.map_err(|error| Trouble::io("cannot start a thread", &error).at(&file.path))?)
        } else {
            None
        };
        let readers = Readers::new(Arc::clone(&file));
        Ok(SqliteStore { inner: Arc::new(Inner { file, readers, writer, news, listener: Mutex::default() }) })
    }

    /// The file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.inner.file.path
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities { atomic_commits: true, endpoints_are_records: true }
    }

    fn commits_apart(&self) -> bool {
        true
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        check_key(key)?;
        let text = key.etcd_text();
        let stored = self.inner.readers.few(move |connection| read::stored(connection, &text)).await?;
        Ok(stored.map(|stored| stored.record(key.clone())))
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let moment = request.next.as_ref().map(|next| counted(&next.revision)).transpose()?;
        let range = request.range.clone();
        let page =
            self.inner.readers.many(move |connection| read::page(connection, &request, moment)).await?;
        page.ok_or(StoreError::HistoryGone { range })
    }

    async fn read(&self, lookups: Vec<Lookup>) -> Result<Vec<Vec<Record>>, StoreError> {
        check_lookups(&lookups)?;
        let readers = &self.inner.readers;
        let few = lookups.len() <= LOOKUPS_FEW;
        let look_up = move |connection: &Connection| read::all(connection, &lookups);
        if few { readers.few(look_up).await } else { readers.many(look_up).await }
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Committed, StoreError> {
        check_commit(&changes)?;
        match &self.inner.writer {
            _ if changes.is_empty() => Ok(Committed { revisions: Vec::new() }),
            Some(writer) => writer.commit(changes).await,
            None => Err(Trouble::new("was opened for reading only").at(&self.inner.file.path)),
        }
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let inner = &self.inner;
        inner.readers.few(read::standing).await?;
        match &inner.writer {
            Some(writer) if writer.has_failed() || inner.file.may_be_full() => {
                inner.file.check_room().map_err(|trouble| trouble.at(&inner.file.path))?;
                writer.commit(Vec::new()).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn watch(&self, range: KeyRange, after: Revision) -> Result<Watch, StoreError> {
        let position = counted(&after)?;
        let inner = Arc::clone(&self.inner);
        let started = tokio::task::spawn_blocking(move || inner.ensure_listener()).await;
        started.map_err(|error| StoreError::Other {
            operation: format!("watching {}", self.inner.file.path.display()),
            source: Box::new(error),
        })??;
        Ok(Watch::pulling(after, Following::new(Arc::clone(&self.inner), range, position)))
    }
}

/// What a store and its watches share.
#[derive(Debug)]
struct Inner {
    file: Arc<DatabaseFile>,
    readers: Arc<Readers>,
    /// None if the file is only read.
    writer: Option<Writer>,
    news: tokio::sync::watch::Sender<News>,
    listener: Mutex<Option<Listener>>,
}

impl Inner {
    fn ensure_listener(&self) -> Result<(), StoreError> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.is_none() {
            let started = Listener::start(Arc::clone(&self.file), self.news.clone());
            *listener = Some(started.map_err(|trouble| self.file.explain(trouble).at(&self.file.path))?);
        }
        Ok(())
    }
}

/// What writer and listener tell the watches.
#[derive(Clone, Debug, Default)]
struct News {
    revision: i64,
    /// What the writer of this process has done last.
    latest: Option<Latest>,
    /// The file cannot be followed now.
    trouble: Option<Trouble>,
    /// Grows when another file is taken over, or the file went back in time: no watch goes on from before.
    era: u64,
}

/// One transaction of this process: a watch that was in step before it need not read to be in step again.
#[derive(Clone, Debug)]
struct Latest {
    before: i64,
    after: i64,
    /// In their order, with their keys as they are in the file.
    events: Arc<[(String, Event)]>,
}

impl News {
    /// Says whether this was new.
    fn advance(&mut self, revision: i64) -> bool {
        let newer = revision > self.revision;
        self.revision = self.revision.max(revision);
        newer
    }

    /// What was known before is history of another file.
    fn start_over(&mut self, revision: i64) {
        *self = News { revision, latest: None, trouble: None, era: self.era + 1 };
    }
}
