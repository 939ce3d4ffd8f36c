//! Lists: pages for the caller, larger portions from etcd.
//!
//! etcd walks the index of the *whole* rest of a range for every request, however small the limit, so a long list
//! in small pages costs it the square of the length. Therefore only the first page is asked for as it is; a
//! caller who comes back for more is served from larger portions, the next of which is fetched while the caller
//! works on the one before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use model::{Key, KeyRange};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{CallError, Client, Effect};
use super::failure::Refusal;
use super::rpc::{KeyValue, RangeRequest, RangeResponse};
use crate::request::{counted, interval};
use crate::{Continuation, ListPage, ListRequest, Record, Revision, StoreError};

/// About how large a portion should be. Two of them are held for each list that is going on. Of 100,000 endpoints,
/// portions half as large take half as long again, and twice as large ones save nothing but cost memory.
const PORTION_BYTES: usize = 4 << 20;
const PORTION_RECORDS_MAX: usize = 20_000;
/// What a record is taken to be as long as none has been seen. Rather too much: a portion that turns out small
/// costs little.
const RECORD_BYTES_GUESS: usize = 4_000;
/// How many unfinished lists are remembered, and for how long. Forgetting one costs its reader a fetch, no more.
const UNFINISHED_MAX: usize = 8;
const UNFINISHED_FOR: Duration = Duration::from_secs(30);

/// The lists of one store.
#[derive(Debug, Default)]
pub(super) struct Lists {
    unfinished: Mutex<VecDeque<Unfinished>>,
}

#[derive(Debug)]
struct Unfinished {
    range: KeyRange,
    next: Continuation,
    rest: Rest,
    since: Instant,
}

impl Lists {
    pub(super) async fn page(
        &self,
        client: &Arc<Client>,
        request: ListRequest,
    ) -> Result<ListPage, StoreError> {
        let limit = request.limit.max(1);
        let mut rest = match &request.next {
            None => Rest::from_start(&request.range),
            Some(next) => match self.take(&request.range, next) {
                Some(rest) => rest,
                None => Rest::from_continuation(&request.range, next)?,
            },
        };
        let records = rest.take(client, limit).await.map_err(|error| list_error(error, &request.range))?;
        let revision = Revision::from(rest.revision);
        let next = records
            .last()
            .filter(|_| !rest.is_empty())
            .map(|last| Continuation { after: last.key.etcd_text(), revision: revision.clone() });
        if let Some(next) = next.clone() {
            rest.reads_ahead = true;
            self.keep(Unfinished { range: request.range, next, rest, since: Instant::now() });
        }
        Ok(ListPage { records, revision, next })
    }

    fn take(&self, range: &KeyRange, next: &Continuation) -> Option<Rest> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.retain(|list| list.since.elapsed() < UNFINISHED_FOR);
        let position = unfinished.iter().position(|list| list.range == *range && list.next == *next)?;
        unfinished.remove(position).map(|list| list.rest)
    }

    fn keep(&self, list: Unfinished) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if unfinished.len() == UNFINISHED_MAX {
            unfinished.pop_front();
        }
        unfinished.push_back(list);
    }
}

/// What is still to come of a list.
#[derive(Debug)]
struct Rest {
    ready: std::vec::IntoIter<KeyValue>,
    /// Where the next portion starts; `None` if there is none.
    start: Option<Bytes>,
    end: Bytes,
    /// The moment the list shows; 0 until the first answer has said which that is.
    revision: i64,
    /// Whether the caller has come back for more than the first page.
    reads_ahead: bool,
    record_bytes: usize,
    following: Option<JoinHandle<Result<RangeResponse, CallError>>>,
}

impl Rest {
    fn new(start: Bytes, end: Bytes, revision: i64, reads_ahead: bool) -> Rest {
        Rest {
            ready: Vec::new().into_iter(),
            start: Some(start),
            end,
            revision,
            reads_ahead,
            record_bytes: RECORD_BYTES_GUESS,
            following: None,
        }
    }

    fn from_start(range: &KeyRange) -> Rest {
        let (first, end) = interval(range);
        Rest::new(first.into(), end.into(), 0, false)
    }

    fn from_continuation(range: &KeyRange, next: &Continuation) -> Result<Rest, StoreError> {
        let (_, end) = interval(range);
        Ok(Rest::new(next.start().into(), end.into(), counted(&next.revision)?, true))
    }

    fn is_empty(&self) -> bool {
        self.ready.len() == 0 && self.start.is_none()
    }

    /// The next records, `limit` of them if there are as many. Keys that are not ours are passed over.
    async fn take(&mut self, client: &Arc<Client>, limit: usize) -> Result<Vec<Record>, CallError> {
        let mut records = Vec::with_capacity(limit.min(PORTION_RECORDS_MAX));
        while records.len() < limit {
            match self.ready.next() {
                Some(found) => records.extend(record(found)),
                None if self.start.is_some() => self.fetch(client, limit).await?,
                None => break,
            }
        }
        Ok(records)
    }

    async fn fetch(&mut self, client: &Arc<Client>, limit: usize) -> Result<(), CallError> {
        let Some(start) = self.start.take() else { return Ok(()) };
        let ahead = match self.following.take() {
            // One that failed is asked for again, here where the error can be told.
            Some(following) => following.await.ok().and_then(Result::ok),
            None => None,
        };
        let response = match ahead {
            Some(response) => response,
            None => client.call(self.request(start, limit), Effect::Reads).await?,
        };
        self.received(response, client, limit);
        Ok(())
    }

    fn received(&mut self, response: RangeResponse, client: &Arc<Client>, limit: usize) {
        if self.revision == 0 {
            self.revision = response.header.map_or(0, |header| header.revision);
        }
        let bytes: usize = response.kvs.iter().map(|found| found.key.len() + found.value.len()).sum();
        if let Some(last) = response.kvs.last() {
            self.record_bytes = (bytes / response.kvs.len()).max(1);
            self.start = response.more.then(|| just_after(&last.key));
        }
        self.ready = response.kvs.into_iter();
        if let Some(start) = self.start.clone().filter(|_| self.reads_ahead) {
            let (client, request) = (Arc::clone(client), self.request(start, limit));
            self.following = Some(tokio::spawn(async move { client.call(request, Effect::Reads).await }));
        }
    }

    fn request(&self, start: Bytes, limit: usize) -> RangeRequest {
        let portion = match self.reads_ahead {
            true => (PORTION_BYTES / self.record_bytes).clamp(1, PORTION_RECORDS_MAX).max(limit),
            false => limit,
        };
        RangeRequest {
            key: start,
            range_end: self.end.clone(),
            limit: i64::try_from(portion).unwrap_or(i64::MAX),
            revision: self.revision,
        }
    }
}

pub(super) fn record(found: KeyValue) -> Option<Record> {
    let key = Key::from_etcd_text(std::str::from_utf8(&found.key).ok()?).ok()?;
    Some(Record { key, value: found.value, revision: found.mod_revision.into() })
}

fn just_after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

fn list_error(error: CallError, range: &KeyRange) -> StoreError {
    match error {
        CallError::Refused { refusal: Refusal::Compacted | Refusal::FutureRevision, .. } => {
            StoreError::HistoryGone { range: range.clone() }
        }
        other => other.into_store_error(&format!("listing {}", range.etcd_prefix())),
    }
}
