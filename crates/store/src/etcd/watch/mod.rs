//! A watch that survives the members it runs on.
//!
//! ```text
//!   etcd --stream--> task --(whole revisions)--> channel --> Watch
//!                     |  stream broken, cancelled, or the reader is slow:
//!                     +- new stream, on another member, from the last whole revision + 1
//! ```

mod backlog;
mod progress;

use std::sync::Arc;

use bytes::Bytes;
use model::KeyRange;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Streaming;
use tonic::metadata::AsciiMetadataValue;

use self::backlog::Backlog;
use self::progress::Progress;
use super::client::{CallError, Client, Effect};
use super::failure::{Failure, Refusal};
use super::members::Member;
use super::rpc::{RangeRequest, ResponseHeader, WatchCreateRequest, WatchResponse};
use super::trouble::Trouble;
use crate::backoff::Backoff;
use crate::request::{counted, interval};
use crate::watch::Batch;
use crate::{Event, Revision, StoreError, Watch};

type Sender = mpsc::Sender<Result<Batch, StoreError>>;

/// Starts a watch; a task feeds it until it is dropped.
pub(super) fn start(client: &Arc<Client>, range: &KeyRange, after: Revision) -> Result<Watch, StoreError> {
    let (first, end) = interval(range);
    let follower = Follower {
        client: Arc::clone(client),
        first: first.into(),
        end: end.into(),
        progress: Progress::after(counted(&after)?),
        backlog: Backlog::default(),
        cluster: None,
        token: None,
        token_rejections: 0,
        backoff: Backoff::new(),
    };
    let (sender, watch) = Watch::channel(after);
    tokio::spawn(async move {
        let dropped = sender.clone();
        tokio::select! {
            () = dropped.closed() => {}
            () = follower.run(sender) => {}
        }
    });
    Ok(watch)
}

#[derive(Debug)]
struct Follower {
    client: Arc<Client>,
    first: Bytes,
    end: Bytes,
    progress: Progress,
    backlog: Backlog,
    /// The cluster that the revisions belong to.
    cluster: Option<u64>,
    /// What the stream was opened with.
    token: Option<AsciiMetadataValue>,
    /// In a row: a watch lives longer than many tokens.
    token_rejections: usize,
    backoff: Backoff,
}

/// Why a stream is not read any further.
#[derive(Debug)]
enum Stop {
    /// A new stream may go on where this one ended.
    Broken(String),
    /// The reader is slow. The stream was closed rather than left unread: unread data would in the end keep
    /// every other call on the connection from being answered.
    ReaderBehind,
    HistoryGone,
    Failed(StoreError),
    ReaderGone,
}

impl Follower {
    async fn run(mut self, sender: Sender) {
        loop {
            match self.follow(&sender).await {
                Stop::Broken(cause) => {
                    tracing::info!(cause, "a watch was interrupted and is being resumed");
                    sleep(self.backoff.pause()).await;
                }
                Stop::ReaderBehind => {
                    // All of it has been read once there is room for all of it.
                    if sender.reserve_many(sender.max_capacity()).await.is_err() {
                        return;
                    }
                }
                Stop::HistoryGone => {
                    let events = vec![Event::HistoryGone];
                    let _ = sender.send(Ok(Batch { events, upto: self.progress.revision() })).await;
                    return;
                }
                Stop::Failed(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
                Stop::ReaderGone => return,
            }
        }
    }

    /// Reads one stream for as long as it goes well.
    async fn follow(&mut self, sender: &Sender) -> Stop {
        self.progress.restart();
        let until = Instant::now() + self.client.request_timeout();
        let member = match self.client.members().get(until).await {
            Ok(member) => member,
            Err(troubles) => return Stop::Broken(troubles.to_string()),
        };
        let mut stream = match self.open(&member, until).await {
            Ok(stream) => stream,
            Err(failure) => return self.failed(&member, failure).await,
        };
        loop {
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => {
                    let ended = Failure::NotDone(Trouble::Broken("the stream ended".to_owned()));
                    return self.failed(&member, ended).await;
                }
                Err(status) => return self.failed(&member, Failure::of(&status)).await,
            };
            if let Err(halt) = self.accept(response, &member, sender).await {
                drop(stream);
                return self.deliver_late(halt, sender).await;
            }
        }
    }

    /// Opens a stream. etcd answers with the creation of the watch, so one that does not is noticed here.
    async fn open(&mut self, member: &Member, until: Instant) -> Result<Streaming<WatchResponse>, Failure> {
        let opening = async {
            let along = self.client.along(member).await?;
            self.token.clone_from(&along.token);
            let create = WatchCreateRequest {
                key: self.first.clone(),
                range_end: self.end.clone(),
                start_revision: self.progress.resume_from(),
                progress_notify: true,
                fragment: true,
            };
            member.connection.watch(create, &along).await.map_err(|status| Failure::of(&status))
        };
        timeout_at(until, opening).await.unwrap_or(Err(Failure::NotDone(Trouble::TimedOut)))
    }

    async fn accept(
        &mut self,
        response: WatchResponse,
        member: &Member,
        sender: &Sender,
    ) -> Result<(), Halt> {
        if response.canceled {
            return Err(self.canceled(&response, member).await.into());
        }
        if response.created {
            return self.created(response.header.as_ref()).await.map_err(Halt::from);
        }
        let before = self.progress.revision();
        let events = self.progress.accept(response);
        let upto = self.progress.revision();
        self.backoff.reset();
        if events.is_empty() && upto == before {
            return Ok(());
        }
        self.backlog.add(&events);
        match sender.try_send(Ok(Batch { events, upto })) {
            Ok(()) if self.backlog.is_too_large(sender) => Err(Stop::ReaderBehind.into()),
            Ok(()) => Ok(()),
            Err(TrySendError::Full(batch)) => {
                Err(Halt { stop: Stop::ReaderBehind, undelivered: Some(batch) })
            }
            Err(TrySendError::Closed(_)) => Err(Stop::ReaderGone.into()),
        }
    }

    /// What is already taken from the stream counts as delivered, so it goes first, with the stream closed.
    async fn deliver_late(&mut self, halt: Halt, sender: &Sender) -> Stop {
        if let Some(batch) = halt.undelivered
            && sender.send(batch).await.is_err()
        {
            return Stop::ReaderGone;
        }
        halt.stop
    }

    /// Makes sure that the store has not gone back in time: that of a backup that was restored, or an empty one.
    /// Waiting there for the revisions we know would mean to wait in silence while other things happen.
    async fn created(&mut self, header: Option<&ResponseHeader>) -> Result<(), Stop> {
        self.token_rejections = 0;
        let Some(header) = header else { return Ok(()) };
        let cluster = *self.cluster.get_or_insert(header.cluster_id);
        if cluster != header.cluster_id {
            return Err(Stop::HistoryGone);
        }
        if self.progress.is_reached_by(header.revision) {
            return Ok(());
        }
        // The member may merely lag behind; the cluster as a whole cannot.
        let request = RangeRequest {
            key: self.first.clone(),
            range_end: self.end.clone(),
            limit: 1,
            ..RangeRequest::default()
        };
        let revision = match self.client.call(request, Effect::Reads).await {
            Ok(response) => response.header.map_or(0, |header| header.revision),
            Err(error) => {
                return Err(Stop::Broken(format!("the store's revision cannot be read: {error:?}")));
            }
        };
        if self.progress.is_reached_by(revision) { Ok(()) } else { Err(Stop::HistoryGone) }
    }

    async fn canceled(&mut self, response: &WatchResponse, member: &Member) -> Stop {
        if response.compact_revision != 0 {
            return Stop::HistoryGone;
        }
        let reason = response.cancel_reason.as_str();
        let failure = if reason.contains("invalid auth token") {
            Failure::Refused(Refusal::TokenRejected)
        } else if reason.contains("permission denied") {
            // What some versions also say to a token they do not know. A new one makes the difference.
            match self.renew_token().await {
                Ok(()) => return Stop::Broken("a new session is needed, perhaps".to_owned()),
                Err(_) => Failure::Refused(Refusal::Forbidden),
            }
        } else {
            Failure::NotDone(Trouble::Answered(format!("the watch is cancelled ({reason})")))
        };
        self.failed(member, failure).await
    }

    async fn failed(&mut self, member: &Member, failure: Failure) -> Stop {
        let failure = match failure {
            Failure::Refused(Refusal::TokenRejected) => match self.renew_token().await {
                Ok(()) => return Stop::Broken("the session has ended".to_owned()),
                Err(failure) => failure,
            },
            other => other,
        };
        match failure {
            Failure::Refused(Refusal::Compacted | Refusal::FutureRevision) => Stop::HistoryGone,
            Failure::Refused(refusal) => {
                let address = member.address.to_string();
                let error = CallError::Refused { address, refusal };
                Stop::Failed(error.into_store_error("watching records in etcd"))
            }
            Failure::NotDone(trouble) | Failure::Unanswered(trouble) => {
                self.client.members().give_up_on(member).await;
                Stop::Broken(member.has(trouble).to_string())
            }
        }
    }

    async fn renew_token(&mut self) -> Result<(), Failure> {
        self.client.renew_token(self.token.as_ref(), &mut self.token_rejections).await
    }
}

/// A stop, and the batch that could not be handed over before it.
#[derive(Debug)]
struct Halt {
    stop: Stop,
    undelivered: Option<Result<Batch, StoreError>>,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        Halt { stop, undelivered: None }
    }
}
