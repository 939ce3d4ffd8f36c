//! Watches: one stream for each collection, opened again where it left off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use model::{Key, KeyRange};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::client::{Request, pause_of};
use super::failure::{Status, refusal};
use super::range::{Collection, watched};
use super::read::record;
use super::write::revision_of;
use crate::backoff::Backoff;
use crate::request::counted;
use crate::watch::{Batch, EventSource};
use crate::{Event, Revision, StoreError, Watch};

/// After this long the server ends the stream, and we go on with a new one: by then it may be another server's turn.
const STREAM_FOR: Duration = Duration::from_secs(290);

/// How much later a stream counts as dead that has not ended. The connection is probed, but not what is behind a proxy on the way.
const OVERDUE: Duration = Duration::from_secs(20);

/// How long a server may refuse a watch that was open before. One that has just started does so until it has read everybody's rights
/// and all definitions.
const DOUBT_FOR: Duration = Duration::from_secs(60);

/// What a stream tells the watch.
type News = (usize, Result<Batch, StoreError>);

pub(super) fn start(shared: &Arc<Shared>, range: &KeyRange, after: Revision) -> Result<Watch, StoreError> {
    let collections = watched(range);
    let positions = positions(&after, collections.len())?;
    let (sender, receiver) = mpsc::channel(Watch::BUFFER);
    for (index, collection) in collections.into_iter().enumerate() {
        let stream = Stream {
            shared: Arc::clone(shared),
            collection,
            index,
            position: positions[index],
            marked: BTreeSet::new(),
            refused_since: None,
            was_open: false,
            is_doubtful: false,
            news: sender.clone(),
        };
        tokio::spawn(stream.run());
    }
    Ok(Watch::pulling(after, Merged { receiver, positions }))
}

/// Where each stream starts. The position of a watch over several collections has a number for each, once they differ.
fn positions(after: &Revision, streams: usize) -> Result<Vec<i64>, StoreError> {
    let numbers: Result<Vec<i64>, StoreError> =
        after.as_str().split(',').map(|text| counted(&Revision::new(text))).collect();
    match numbers?.as_slice() {
        [0] => Err(StoreError::Invalid { problem: "a watch cannot start at revision 0".to_owned() }),
        [number] => Ok(vec![*number; streams]),
        numbers if numbers.len() == streams => Ok(numbers.to_vec()),
        _ => Err(StoreError::Invalid { problem: format!("{after} is not a position of this watch") }),
    }
}

/// All streams of a watch, one event after the other.
#[derive(Debug)]
struct Merged {
    receiver: mpsc::Receiver<News>,
    positions: Vec<i64>,
}

#[async_trait]
impl EventSource for Merged {
    async fn next(&mut self) -> Result<Batch, StoreError> {
        let Some((index, news)) = self.receiver.recv().await else {
            return Err(StoreError::Other {
                operation: "watching".to_owned(),
                source: "the tasks that feed the watch have ended".into(),
            });
        };
        let batch = news?;
        if let (Some(position), Some(number)) = (self.positions.get_mut(index), batch.upto.number()) {
            *position = number;
        }
        Ok(Batch { upto: self.position(), ..batch })
    }
}

impl Merged {
    fn position(&self) -> Revision {
        let first = self.positions.first().copied().unwrap_or_default();
        if self.positions.iter().all(|position| *position == first) {
            return first.into();
        }
        let all: Vec<String> = self.positions.iter().map(ToString::to_string).collect();
        Revision::new(all.join(","))
    }
}

/// The task behind one collection of a watch.
struct Stream {
    shared: Arc<Shared>,
    collection: Collection,
    index: usize,
    position: i64,
    /// Records that are marked as removed but still there: told as deleted, so their removal is no news.
    marked: BTreeSet<Key>,
    /// Since when the server has refused the watch, if it does.
    refused_since: Option<Instant>,
    was_open: bool,
    /// The last stream came to its end without a word.
    is_doubtful: bool,
    news: mpsc::Sender<News>,
}

/// How a stream ended.
enum End {
    /// Nobody reads any more, or nothing can follow.
    ForGood,
    /// Open it again, after a pause if the server asks for one.
    Again(Duration),
}

#[derive(Debug, Deserialize)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    object: Map<String, Value>,
}

impl Stream {
    async fn run(mut self) {
        let news = self.news.clone();
        tokio::select! {
            () = news.closed() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&mut self) {
        let mut backoff = Backoff::new();
        loop {
            let before = self.position;
            match self.open_and_read().await {
                End::ForGood => return,
                End::Again(pause) => {
                    if self.position != before {
                        backoff.reset();
                    }
                    sleep(pause.max(backoff.pause())).await;
                }
            }
        }
    }

    async fn open_and_read(&mut self) -> End {
        if std::mem::take(&mut self.is_doubtful) && self.is_ahead_of_server().await {
            return self.history_gone().await;
        }
        let path = format!(
            "{}watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.collection.path(self.shared.layout),
            self.position,
            STREAM_FOR.as_secs()
        );
        let request = Request::get(path).metadata_only(self.collection.is_in_metadata);
        match self.shared.client.open(&request).await {
            Ok(Ok(body)) => {
                (self.was_open, self.refused_since) = (true, None);
                self.read(body, Instant::now() + STREAM_FOR + OVERDUE).await
            }
            Ok(Err((answer, pause))) => match answer.status {
                StatusCode::GONE => self.history_gone().await,
                status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    End::Again(pause)
                }
                _ => {
                    let operation = format!("watching {}", self.collection.source.plural(self.shared.layout));
                    self.refused(refusal(self.shared.client.address(), &operation, &answer)).await
                }
            },
            Err(error @ (StoreError::AccessDenied { .. } | StoreError::BadSetting { .. })) => {
                self.refused(error).await
            }
            Err(error) => {
                tracing::debug!(%error, source = ?self.collection.source, "a watch could not be opened");
                End::Again(Duration::ZERO)
            }
        }
    }

    /// Whether the store was put back to an earlier state than the one that this watch has told of. Until it is there again the server
    /// keeps silent, without bookmarks even, and then goes on with what has never followed that.
    async fn is_ahead_of_server(&self) -> bool {
        let path = format!("{}limit=1", self.collection.path(self.shared.layout));
        let answer = match self.shared.client.send(&Request::list(path).metadata_only(true)).await {
            Ok(answer) if answer.status == StatusCode::OK => answer,
            _ => return false,
        };
        let now = revision_of(&answer).and_then(|revision| revision.number());
        let is_ahead = now.is_some_and(|now| now < self.position);
        if is_ahead {
            tracing::warn!(
                now,
                told = self.position,
                "the API server's store was put back to an earlier state"
            );
        }
        is_ahead
    }

    /// A refusal ends the watch, unless it was open before and the refusal is new.
    async fn refused(&mut self, error: StoreError) -> End {
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        if self.was_open && since.elapsed() < DOUBT_FOR {
            tracing::debug!(%error, "a watch that was open is refused");
            return End::Again(Duration::ZERO);
        }
        self.tell(Err(error)).await;
        End::ForGood
    }

    /// Reads lines, each an event, until the stream ends or is overdue.
    async fn read<B>(&mut self, mut body: B, overdue: Instant) -> End
    where
        B: http_body::Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    {
        let mut buffer = BytesMut::new();
        let mut searched = 0;
        self.is_doubtful = true;
        while let Ok(Some(frame)) = timeout_at(overdue, body.frame()).await {
            let data = match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => {
                    tracing::debug!(%error, source = ?self.collection.source, "a watch broke");
                    self.is_doubtful = false;
                    return End::Again(Duration::ZERO);
                }
            };
            buffer.extend_from_slice(&data);
            while let Some(length) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(searched + length);
                buffer.advance(1);
                searched = 0;
                if let Some(end) = self.line(&line).await {
                    return end;
                }
            }
            searched = buffer.len();
        }
        End::Again(Duration::ZERO)
    }

    async fn line(&mut self, line: &[u8]) -> Option<End> {
        let event: WatchEvent = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, "the API server sent an event that cannot be read");
                return Some(End::Again(Duration::ZERO));
            }
        };
        if event.kind == "ERROR" {
            let status: Status = serde_json::from_value(Value::Object(event.object)).unwrap_or_default();
            return Some(match status.code {
                410 => self.history_gone().await,
                _ => {
                    tracing::debug!(message = status.message, "a watch ended with an error");
                    End::Again(pause_of(status.details.retry_after_seconds))
                }
            });
        }
        let revision = event.object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
        let number = revision.and_then(Value::as_str).and_then(|text| Revision::new(text).number());
        let Some(number) = number else { return Some(End::Again(Duration::ZERO)) };
        if number < self.position {
            // The store was put back to an earlier state, and what followed that is not what we have told.
            return Some(self.history_gone().await);
        }
        (self.position, self.is_doubtful) = (number, false);
        let events = self.event(&event.kind, event.object).into_iter().collect();
        let told = self.tell(Ok(Batch { events, upto: number.into() })).await;
        if told { None } else { Some(End::ForGood) }
    }

    /// What a change of the custom resource is to the reader of records, if it is anything.
    fn event(&mut self, kind: &str, object: Map<String, Value>) -> Option<Event> {
        if !matches!(kind, "ADDED" | "MODIFIED" | "DELETED") {
            return None;
        }
        let decoded = self.collection.decode(self.shared.form(), object)?;
        let was_marked = self.marked.contains(&decoded.key);
        let is_removal = kind == "DELETED";
        match (is_removal, decoded.is_tombstone) {
            (false, false) => {
                self.marked.remove(&decoded.key);
                return Some(Event::Put(record(decoded)));
            }
            (false, true) => {
                self.marked.insert(decoded.key.clone());
            }
            (true, _) => {
                self.marked.remove(&decoded.key);
            }
        }
        // One that was marked before the watch began was not listed either.
        let is_old_news = was_marked || is_removal && decoded.is_tombstone;
        (!is_old_news).then(|| Event::Deleted { key: decoded.key, revision: Revision::new(decoded.revision) })
    }

    async fn history_gone(&self) -> End {
        self.tell(Ok(Batch { events: vec![Event::HistoryGone], upto: self.position.into() })).await;
        End::ForGood
    }

    /// Whether anybody still listens.
    async fn tell(&self, news: Result<Batch, StoreError>) -> bool {
        self.news.send((self.index, news)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use model::kube::Layout;

    use super::super::client::Client;
    use super::super::{KubeConfig, KubeSettings};
    use super::*;

    #[test]
    fn a_position_has_a_number_for_each_stream_that_differs() {
        assert_eq!(positions(&Revision::new("7"), 3).unwrap(), [7, 7, 7]);
        assert_eq!(positions(&Revision::new("7,8,7"), 3).unwrap(), [7, 8, 7]);
        for wrong in ["", "x", "0", "7,8", "07", "7,"] {
            assert!(positions(&Revision::new(wrong), 3).is_err(), "{wrong}");
        }
        let (_, receiver) = mpsc::channel(1);
        let mut merged = Merged { receiver, positions: vec![7, 7] };
        assert_eq!(merged.position(), Revision::new("7"));
        merged.positions[1] = 9;
        assert_eq!(merged.position(), Revision::new("7,9"));
    }

    /// Of a connection that is dead without anybody knowing.
    struct Silence;

    impl http_body::Body for Silence {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_stream_that_falls_silent_is_given_up() {
        let server = Some("http://127.0.0.1:1".to_owned());
        let settings = KubeSettings { server, ..KubeSettings::default() };
        let client = Client::connect(&KubeConfig { settings, ..KubeConfig::default() }).await.unwrap();
        let (news, _receiver) = mpsc::channel(1);
        let mut stream = Stream {
            shared: Arc::new(Shared {
                client: Arc::new(client),
                layout: Layout::V1,
                prefixes: Arc::default(),
            }),
            collection: watched(&KeyRange::Handles).remove(0),
            index: 0,
            position: 7,
            marked: BTreeSet::new(),
            refused_since: None,
            was_open: true,
            is_doubtful: false,
            news,
        };
        assert!(matches!(stream.read(Silence, Instant::now()).await, End::Again(Duration::ZERO)));
        assert!(stream.is_doubtful, "the next one is not opened before the server has said how far it is");
    }
}
