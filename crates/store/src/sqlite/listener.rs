//! Notices what other processes commit: one sleeping thread for all watches of a store.
//!
//! After every commit the writer opens the directory of the database (see `DatabaseFile::announce`), and the kernel
//! reports that to whoever watches the directory. It also reports a file that is removed or replaced. A slow look every
//! few seconds catches what was never announced: a writer that died right after its commit, or one that is not ours.
//!
//! A file that cannot be followed is looked for again and again: moved back, it is followed as before; another one in its
//! place is taken over (see `identity`), and every watch starts over.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use rusqlite::Connection;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::watch;

use super::News;
use super::error::Trouble;
use super::file::DatabaseFile;
use super::identity::{Look, move_on};
use super::read::standing;

/// How long the thread sleeps if nothing happens.
const SLOW_LOOK: Duration = Duration::from_secs(5);
/// The same if the kernel gives us no notices (all its inotify instances are taken).
const LOOK_WITHOUT_NOTICES: Duration = Duration::from_millis(100);
/// The same while the file cannot be followed. A file that looks the same for so long is not being copied any more.
const LOOK_IN_TROUBLE: Duration = Duration::from_secs(1);

/// The listening thread. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Listener {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// When this returns, every later commit of any process will be told to `news`.
    pub(super) fn start(file: Arc<DatabaseFile>, news: watch::Sender<News>) -> Result<Listener, Trouble> {
        let cannot = |what: &'static str| move |error: std::io::Error| Trouble::io(what, &error);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| cannot("cannot watch for changes")(error.into()))?);
        let notices = Notices::of(&file);
        let connection = file.connect_reader()?;
        let mut ear = Ear { file, connection, news, notices, data_version: None, stranger: None };
        // What comes later is compared with this: a file may also go back.
        ear.look()?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("sqlite-listener".into())
            .spawn(move || ear.listen(&stopped))
            .map_err(cannot("cannot watch for changes"))?;
        Ok(Listener { stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the listening thread works with.
struct Ear {
    file: Arc<DatabaseFile>,
    connection: Connection,
    news: watch::Sender<News>,
    notices: Option<Notices>,
    data_version: Option<i64>,
    /// Another file that was seen at the path.
    stranger: Option<Look>,
}

impl Ear {
    fn listen(mut self, stop: &OwnedFd) {
        loop {
            let outcome = if self.is_in_trouble() {
                if self.wait_for(stop, LOOK_IN_TROUBLE) {
                    return;
                }
                self.recover()
            } else {
                match self.wait(stop) {
                    Woken::Stop => return,
                    Woken::Irrelevant => continue,
                    Woken::Look => self.look(),
                }
            };
            if let Err(trouble) = outcome {
                self.report(trouble);
            }
        }
    }

    fn is_in_trouble(&self) -> bool {
        self.news.borrow().trouble.is_some()
    }

    fn report(&self, trouble: Trouble) {
        let trouble = self.file.explain(trouble);
        if !self.is_in_trouble() {
            let (path, problem) = (self.file.path.display(), trouble.at(&self.file.path));
            tracing::warn!(%path, %problem, "the database cannot be followed; looking for it again and again");
        }
        self.news.send_modify(|news| news.trouble = Some(trouble));
    }

    /// Not by the kernel's notices: looking opens the file, and would wake us up again at once. Says whether to stop.
    fn wait_for(&self, stop: &OwnedFd, duration: Duration) -> bool {
        let timeout = Timespec::try_from(duration).ok();
        let mut sources = [PollFd::new(stop, PollFlags::IN)];
        poll(&mut sources, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn wait(&mut self, stop: &OwnedFd) -> Woken {
        let timeout = if self.notices.is_some() { SLOW_LOOK } else { LOOK_WITHOUT_NOTICES };
        let timeout = Timespec::try_from(timeout).ok();
        let mut sources = vec![PollFd::new(stop, PollFlags::IN)];
        if let Some(notices) = &self.notices {
            sources.push(PollFd::new(&notices.inotify, PollFlags::IN));
        }
        match poll(&mut sources, timeout.as_ref()) {
            Err(_) => return Woken::Look,
            Ok(0) => return Woken::Look,
            Ok(_) if !sources[0].revents().is_empty() => return Woken::Stop,
            Ok(_) => {}
        }
        let concerned = self.notices.as_mut().is_none_or(Notices::concern_us);
        if concerned { Woken::Look } else { Woken::Irrelevant }
    }

    /// Tells the news if there are any.
    fn look(&mut self) -> Result<(), Trouble> {
        self.file.check_identity()?;
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.data_version == Some(version) {
            return Ok(());
        }
        let revision = standing(&self.connection)?.revision;
        self.data_version = Some(version);
        // Read after it: the writer tells its own news only after the commit.
        let known = self.news.borrow().revision;
        if revision < known && standing(&self.connection)?.revision < known {
            return self.went_back(known);
        }
        self.news.send_if_modified(|news| news.advance(revision));
        Ok(())
    }

    /// A backup was restored into the file itself.
    fn went_back(&mut self, known: i64) -> Result<(), Trouble> {
        tracing::warn!(path = %self.file.path.display(), known, "the database went back to an earlier state");
        let revision = if self.file.is_writable() {
            move_on(&mut self.file.connect()?, known)?
        } else {
            standing(&self.connection)?.revision
        };
        self.news.send_modify(|news| news.start_over(revision));
        Ok(())
    }

    /// Goes on with the same file if it is back, or else with the one in its place, once that no longer changes.
    fn recover(&mut self) -> Result<(), Trouble> {
        let known = self.news.borrow().revision;
        match self.file.stranger() {
            Some(stranger) if self.stranger == Some(stranger) => self.file.take_over(known)?,
            Some(stranger) => {
                self.stranger = Some(stranger);
                return self.file.check_identity().map(drop);
            }
            None => {}
        }
        self.file.check_identity()?;
        self.stranger = None;
        self.connection = self.file.connect_reader()?;
        self.data_version = None;
        // The directory may be another one, too.
        self.notices = Notices::of(&self.file);
        let revision = standing(&self.connection)?.revision;
        if revision < known {
            self.went_back(known)?;
        } else {
            self.news.send_modify(|news| news.start_over(revision));
        }
        tracing::info!(path = %self.file.path.display(), "the database is followed again");
        Ok(())
    }
}

enum Woken {
    Stop,
    Look,
    /// Another file of the directory changed.
    Irrelevant,
}

/// The kernel's notices about the directory of the database.
struct Notices {
    inotify: Inotify,
    file_name: OsString,
}

impl Notices {
    fn of(file: &DatabaseFile) -> Option<Notices> {
        let file_name = file.path.file_name()?.to_owned();
        let mask = WatchMask::OPEN
            | WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::MOVE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF;
        let started = Inotify::init().and_then(|inotify| {
            inotify.watches().add(file.directory(), mask)?;
            Ok(Notices { inotify, file_name })
        });
        if let Err(error) = &started {
            let path = file.path.display();
            tracing::warn!(%path, %error, "no notices of changes; looking by turns instead");
        }
        started.ok()
    }

    /// Reads what has come in, and says whether any of it is about the database: its file, or the directory itself.
    fn concern_us(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let mut concerned = false;
        // Until there is no more, or until there is an error: then the slow look has to do.
        while let Ok(events) = self.inotify.read_events(&mut buffer) {
            for event in events {
                concerned |= event.name.is_none_or(|name| name == self.file_name);
            }
        }
        concerned
    }
}
