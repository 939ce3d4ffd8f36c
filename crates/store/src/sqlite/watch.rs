//! A watch on the database: reads the history whenever there is news, at its reader's pace.

use std::sync::Arc;

use async_trait::async_trait;
use model::KeyRange;
use rusqlite::Connection;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::read::{Since, since};
use super::readers::finished;
use super::{Inner, News};
use crate::request::interval;
use crate::watch::{Batch, EventSource};
use crate::{Event, StoreError};

/// A watch that is at most this far behind has little to read.
const FEW_COMMITS: i64 = 16;
/// More of one transaction is read in steps.
const EVENTS_MAX: usize = 256;

/// A watch's place in the history.
#[derive(Debug)]
pub(super) struct Following {
    inner: Arc<Inner>,
    news: watch::Receiver<News>,
    range: KeyRange,
    /// The range as texts: its first, and the first beyond it.
    interval: (String, String),
    position: i64,
    /// The era that the position is of.
    era: u64,
    /// The newest revision known to exist.
    newest: i64,
    /// A read under way. It is kept here because the reader may give up waiting and ask again.
    reading: Option<JoinHandle<Result<Since, StoreError>>>,
}

impl Following {
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange, position: i64) -> Following {
        let news = inner.news.subscribe();
        // Nothing is known yet, so the first thing is to read.
        let interval = interval(&range);
        let era = news.borrow().era;
        Following { inner, news, range, interval, position, era, newest: i64::MAX, reading: None }
    }

    /// What there is to hear, if all that is new is one transaction of this process.
    fn told(&self, news: &News) -> Option<Vec<Event>> {
        let latest = news.latest.as_ref()?;
        let is_in_step = self.reading.is_none()
            && self.newest == news.revision
            && latest.before == self.position
            && latest.after == news.revision;
        let (first, end) = &self.interval;
        let concerns = |(key, _): &&(String, Event)| first <= key && key < end;
        let told = || latest.events.iter().filter(concerns);
        // As much as is read in one step.
        let is_little = is_in_step && told().count() <= EVENTS_MAX;
        is_little.then(|| told().map(|(_, event)| event.clone()).collect())
    }

    async fn read(&mut self) -> Result<Batch, StoreError> {
        let (range, position) = (self.range.clone(), self.position);
        let read = move |connection: &Connection| since(connection, &range, position);
        let few = self.newest.saturating_sub(self.position) <= FEW_COMMITS;
        let found = match &mut self.reading {
            None if few => self.inner.readers.few(read).await?,
            reading => {
                let joined = reading.get_or_insert_with(|| self.inner.readers.start(read)).await;
                self.reading = None;
                finished(joined)?
            }
        };
        Ok(match found {
            Since::Gone => Batch { events: vec![Event::HistoryGone], upto: self.position.into() },
            Since::Changes { events, upto, newest } => {
                (self.position, self.newest) = (upto, newest);
                Batch { events, upto: upto.into() }
            }
        })
    }
}

#[async_trait]
impl EventSource for Following {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        loop {
            let news = self.news.borrow_and_update().clone();
            if let Some(trouble) = &news.trouble {
                return Err(trouble.at(&self.inner.file.path));
            }
            if news.era != self.era {
                return Ok(Batch { events: vec![Event::HistoryGone], upto: self.position.into() });
            }
            self.newest = self.newest.max(news.revision);
            if let Some(events) = self.told(&news) {
                self.position = news.revision;
                return Ok(Batch { events, upto: news.revision.into() });
            }
            if self.position < self.newest || self.reading.is_some() {
                return self.read().await;
            }
            // The sender lives in `inner`, which this watch holds: it cannot be gone.
            let _ = self.news.changed().await;
        }
    }
}
