//! A running watch: what its reader sees, and the two ways a backend can feed it.

use std::collections::VecDeque;
use std::fmt;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{Event, Revision, StoreError};

/// A running watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    source: Box<dyn EventSource>,
    ready: VecDeque<Event>,
    /// Everything up to here has been handed out.
    position: Revision,
    /// Where `position` goes once `ready` is empty.
    upto: Revision,
    ended: bool,
}

impl Watch {
    /// The next event; waits for it. An error is final, and so is `HistoryGone`; `None` follows either.
    ///
    /// May be given up and called again (`select!`): no event is lost by that.
    pub async fn next(&mut self) -> Option<Result<Event, StoreError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.handed_out(&event);
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            match self.source.next().await {
                Ok(batch) => {
                    self.ready.extend(batch.events);
                    self.upto = batch.upto;
                    if self.ready.is_empty() {
                        self.position = self.upto.clone();
                    }
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Where a new watch may go on if this one is dropped now. It misses nothing; it repeats at most the events
    /// of a commit that was read only in part. (An event's own revision is not good for this: a commit may
    /// cause several events with the same revision.)
    pub fn position(&self) -> &Revision {
        &self.position
    }

    fn handed_out(&mut self, event: &Event) {
        let Some(revision) = event.revision() else {
            self.ready.clear();
            self.ended = true;
            return;
        };
        match self.ready.front() {
            None => self.position = self.upto.clone(),
            Some(following) if following.revision() != Some(revision) => self.position = revision.clone(),
            Some(_) => {}
        }
    }
}

/// Some commits, each whole, as far as they touch the range watched.
#[derive(Debug)]
pub(crate) struct Batch {
    /// In order. `Event::HistoryGone` may be the last one; nothing is asked of the source after it. May be empty,
    /// to say that time has passed without any event for this watch.
    pub(crate) events: Vec<Event>,
    /// The store's revision after the last of these commits.
    pub(crate) upto: Revision,
}

/// Where a watch gets its events from, when it asks.
#[async_trait]
pub(crate) trait EventSource: Send + fmt::Debug {
    /// What follows what was given before; waits for it. Nothing may be lost when the future is dropped halfway.
    async fn next(&mut self) -> Result<Batch, StoreError>;
}

impl Watch {
    /// How many batches may wait for a slow reader before the backend stops reading ahead.
    pub(crate) const BUFFER: usize = 256;

    /// A watch that asks `source` whenever its reader wants more.
    pub(crate) fn pulling(after: Revision, source: impl EventSource + 'static) -> Watch {
        Watch {
            source: Box::new(source),
            ready: VecDeque::new(),
            position: after.clone(),
            upto: after,
            ended: false,
        }
    }

    /// A watch that is fed by a task of the backend. The task ends when sending fails: the reader is gone.
    pub(crate) fn channel(after: Revision) -> (mpsc::Sender<Result<Batch, StoreError>>, Watch) {
        let (sender, receiver) = mpsc::channel(Watch::BUFFER);
        (sender, Watch::pulling(after, Pushed(receiver)))
    }
}

#[derive(Debug)]
struct Pushed(mpsc::Receiver<Result<Batch, StoreError>>);

#[async_trait]
impl EventSource for Pushed {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        match self.0.recv().await {
            Some(result) => result,
            None => Err(StoreError::Other {
                operation: "watching".to_owned(),
                source: "the task that feeds the watch has ended".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Key;

    use super::*;

    fn deleted(revision: i64) -> Event {
        Event::Deleted { key: Key::Handle(format!("h{revision}").into()), revision: revision.into() }
    }

    fn batch(revisions: &[i64], upto: i64) -> Result<Batch, StoreError> {
        Ok(Batch { events: revisions.iter().copied().map(deleted).collect(), upto: upto.into() })
    }

    #[tokio::test]
    async fn the_position_moves_only_past_whole_commits() {
        let (sender, mut watch) = Watch::channel(1.into());
        sender.send(batch(&[2, 3, 3, 3], 5)).await.unwrap();
        for expected in [2, 2, 2, 5] {
            watch.next().await.unwrap().unwrap();
            assert_eq!(watch.position(), &Revision::from(expected));
        }
        sender.send(batch(&[], 9)).await.unwrap();
        sender.send(batch(&[10], 10)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap(), deleted(10));
    }

    #[tokio::test]
    async fn nothing_follows_the_loss_of_history() {
        let (sender, mut watch) = Watch::channel(1.into());
        sender
            .send(Ok(Batch { events: vec![deleted(2), Event::HistoryGone], upto: 2.into() }))
            .await
            .unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap(), deleted(2));
        assert_eq!(watch.next().await.unwrap().unwrap(), Event::HistoryGone);
        assert!(watch.next().await.is_none());
        assert_eq!(watch.position(), &Revision::from(2));
    }

    #[tokio::test]
    async fn nothing_follows_an_error() {
        let (sender, mut watch) = Watch::channel(1.into());
        drop(sender);
        assert!(watch.next().await.unwrap().is_err());
        assert!(watch.next().await.is_none());
    }
}
