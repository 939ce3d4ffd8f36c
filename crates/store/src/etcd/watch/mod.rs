//! A watch that survives the members it runs on.
//!
//! ```text
//!   etcd --stream--> task --(whole revisions)--> channel --> Watch
//!                     |  stream broken, cancelled, or the reader is slow:
//!                     +- new stream, on another member, from the last whole revision + 1
//! ```

mod progress;

use std::sync::Arc;

use bytes::Bytes;
use model::KeyRange;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Status, Streaming};

use self::progress::Progress;
use super::backoff::Backoff;
use super::client::{CallError, Client, Effect};
use super::failure::{Failure, Refusal};
use super::members::Member;
use super::rpc::{RangeRequest, ResponseHeader, WatchRequest, WatchResponse};
use super::trouble::{Trouble, Troubles};
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
        cluster: None,
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
    /// The cluster that the revisions belong to.
    cluster: Option<u64>,
    /// In a row: a watch lives longer than many tokens.
    token_rejections: usize,
    backoff: Backoff,
}

/// Why a stream is not read any further.
#[derive(Debug)]
enum Stop {
    /// A new stream may go on where this one ended.
    Broken(Troubles),
    /// The reader is slow. The stream was closed rather than left unread: unread data would in the end keep
    /// every other call on the connection from being answered.
    ReaderBehind,
    TokenRenewed,
    HistoryGone,
    Denied(StoreError),
    ReaderGone,
}

impl Follower {
    async fn run(mut self, sender: Sender) {
        loop {
            match self.follow(&sender).await {
                Stop::Broken(troubles) => {
                    tracing::info!(cause = %troubles, "a watch was interrupted and is being resumed");
                    sleep(self.backoff.pause()).await;
                }
                Stop::ReaderBehind => {
                    if sender.reserve_many(Watch::BUFFER / 2).await.is_err() {
                        return;
                    }
                }
                Stop::TokenRenewed => sleep(self.backoff.pause()).await,
                Stop::HistoryGone => {
                    let events = vec![Event::HistoryGone];
                    let _ = sender.send(Ok(Batch { events, upto: self.progress.revision() })).await;
                    return;
                }
                Stop::Denied(error) => {
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
            Err(troubles) => return Stop::Broken(troubles),
        };
        let (mut stream, token) = match self.open(&member, until).await {
            Ok(opened) => opened,
            Err(failure) => return self.failed(&member, failure).await,
        };
        loop {
            let response = match stream.message().await {
                Ok(Some(response)) => response,
                Ok(None) => {
                    return self.broken(&member, Trouble::Broken("the stream ended".to_owned())).await;
                }
                Err(status) => return self.failed(&member, Failure::of(&status)).await,
            };
            if let Err(stop) = self.accept(response, &member, token.as_ref(), sender).await {
                drop(stream);
                return self.deliver_late(stop, sender).await;
            }
        }
    }

    /// Opens a stream. The answer to the creation is read with the events, but must be on its way in time.
    async fn open(
        &self,
        member: &Member,
        until: Instant,
    ) -> Result<(Streaming<WatchResponse>, Option<AsciiMetadataValue>), Failure> {
        let opening = async {
            let along = self.client.along(member).await?;
            let create =
                WatchRequest::create(self.first.clone(), self.end.clone(), self.progress.resume_from());
            let stream = member.connection.watch(create, &along).await;
            Ok((stream.map_err(|status: Status| Failure::of(&status))?, along.token))
        };
        timeout_at(until, opening).await.unwrap_or(Err(Failure::NotDone(Trouble::TimedOut)))
    }

    async fn accept(
        &mut self,
        response: WatchResponse,
        member: &Member,
        token: Option<&AsciiMetadataValue>,
        sender: &Sender,
    ) -> Result<(), Halt> {
        if response.canceled {
            return Err(self.canceled(&response, member, token).await.into());
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
        match sender.try_send(Ok(Batch { events, upto })) {
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
            Err(CallError::Failed(error @ StoreError::AccessDenied { .. })) => {
                return Err(Stop::Denied(error));
            }
            Err(error) => {
                tracing::debug!(?error, "the store's revision could not be read");
                return Err(Stop::Broken(Troubles(Vec::new())));
            }
        };
        if self.progress.is_reached_by(revision) { Ok(()) } else { Err(Stop::HistoryGone) }
    }

    async fn canceled(
        &mut self,
        response: &WatchResponse,
        member: &Member,
        token: Option<&AsciiMetadataValue>,
    ) -> Stop {
        if response.compact_revision != 0 {
            return Stop::HistoryGone;
        }
        let reason = response.cancel_reason.as_str();
        // Some versions call a token they do not know a lack of permission.
        if reason.contains("invalid auth token") || reason.contains("permission denied") {
            let failure = match self.client.renew_token(token, &mut self.token_rejections).await {
                Ok(()) => return Stop::TokenRenewed,
                Err(_) if reason.contains("permission") => {
                    Failure::Refused(Refusal::Denied("the user lacks the permission to watch"))
                }
                Err(failure) => failure,
            };
            return self.failed(member, failure).await;
        }
        self.broken(member, Trouble::Answered(format!("the watch is cancelled ({reason})"))).await
    }

    async fn failed(&mut self, member: &Member, failure: Failure) -> Stop {
        match failure {
            Failure::Refused(Refusal::Compacted | Refusal::FutureRevision) => Stop::HistoryGone,
            Failure::Refused(refusal) => {
                let address = member.address.to_string();
                let error =
                    CallError::Refused { address, refusal }.into_store_error("watching records in etcd");
                Stop::Denied(error)
            }
            Failure::NotDone(trouble) | Failure::Unanswered(trouble) => self.broken(member, trouble).await,
        }
    }

    async fn broken(&mut self, member: &Member, trouble: Trouble) -> Stop {
        self.client.members().give_up_on(member).await;
        Stop::Broken(Troubles(vec![member.has(trouble)]))
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
