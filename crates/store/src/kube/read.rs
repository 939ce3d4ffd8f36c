//! Single records, and lists page by page.

use http::StatusCode;
use model::Key;
use model::kube::Decoded;

use super::Shared;
use super::client::{Answer, Request};
use super::failure::{Status, refusal};
use super::page::{Page, PageMetadata};
use super::range::{Collection, Location, collections, escaped};
use crate::{Continuation, ListPage, ListRequest, Record, Revision, StoreError};

/// How far a list has come: which collection, and the server's own mark within it. Empty at a collection's start.
struct Mark {
    collection: usize,
    token: String,
}

impl Mark {
    fn parse(text: &str) -> Option<Mark> {
        let (collection, token) = text.split_once(' ')?;
        Some(Mark { collection: collection.parse().ok()?, token: token.to_owned() })
    }
}

impl Shared {
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let Some(location) = Location::of(key) else { return Ok(None) };
        let found = self.look_up(key, &location).await?;
        Ok(found.filter(|found| !found.is_tombstone && found.key == *key).map(record))
    }

    /// What lies where a record is kept, even if it is marked as removed or is another record with the same name.
    pub(super) async fn look_up(
        &self,
        key: &Key,
        location: &Location,
    ) -> Result<Option<Decoded>, StoreError> {
        let operation = format!("reading {key}");
        let request =
            Request::get(location.path(self.layout)).metadata_only(location.source.is_in_metadata());
        let answer = self.client.send(&request).await?;
        match answer.status {
            StatusCode::OK => {
                let object =
                    serde_json::from_slice(&answer.body).map_err(|error| unreadable(&operation, error))?;
                Ok(location.source.decode(self.form(), object))
            }
            StatusCode::NOT_FOUND if is_absence(&answer) => Ok(None),
            // A name that the server cannot even take is not there.
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Ok(None),
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }

    pub(super) async fn page(&self, request: ListRequest) -> Result<ListPage, StoreError> {
        let collections = collections(&request.range);
        let (mut mark, mut moment) = match &request.next {
            None => (Mark { collection: 0, token: String::new() }, None),
            Some(next) => {
                let mark = Mark::parse(&next.after).filter(|mark| mark.collection < collections.len());
                let mark = mark.ok_or_else(|| StoreError::Invalid {
                    problem: "the continuation is not one of this list".to_owned(),
                })?;
                (mark, Some(next.revision.clone()))
            }
        };
        loop {
            let collection = &collections[mark.collection];
            let mut page = self.fetch(&request, collection, &mark.token, moment.as_ref()).await?;
            let revision =
                moment.clone().unwrap_or_else(|| Revision::new(page.metadata.resource_version.clone()));
            mark = match (page.metadata.next.is_empty(), mark.collection + 1) {
                (false, _) => Mark { token: page.metadata.next, ..mark },
                (true, following) => Mark { collection: following, token: String::new() },
            };
            let mut records = std::mem::take(&mut page.records);
            records.sort_by_cached_key(|record| record.key.etcd_text());
            let next = (mark.collection < collections.len()).then(|| Continuation {
                after: format!("{} {}", mark.collection, mark.token),
                revision: revision.clone(),
            });
            if !records.is_empty() || next.is_none() {
                return Ok(ListPage { records, revision, next });
            }
            moment = Some(revision);
        }
    }

    async fn fetch(
        &self,
        request: &ListRequest,
        collection: &Collection,
        token: &str,
        moment: Option<&Revision>,
    ) -> Result<Page, StoreError> {
        let mut path = format!("{}limit={}", collection.path(self.layout), collection.page(request.limit));
        match (token, moment) {
            ("", None) => {}
            // The other collections of a list show the moment of the first.
            ("", Some(moment)) => {
                path.push_str(&format!("&resourceVersion={moment}&resourceVersionMatch=Exact"));
            }
            (token, _) => path.push_str(&format!("&continue={}", escaped(token))),
        }
        let operation = format!("listing {}", collection.source.plural(self.layout));
        let request_of_page = Request::list(path).metadata_only(collection.is_in_metadata);
        let answer = self.client.send(&request_of_page).await?;
        match answer.status {
            StatusCode::OK => Page::read(self.form(), collection, &answer.body)
                .map_err(|error| unreadable(&operation, error)),
            StatusCode::GONE => Err(StoreError::HistoryGone { range: request.range.clone() }),
            // An older Calico has fewer kinds.
            StatusCode::NOT_FOUND if request.range == model::KeyRange::Everything && moment.is_some() => {
                let resource_version = moment.map(ToString::to_string).unwrap_or_default();
                let metadata = PageMetadata { resource_version, next: String::new() };
                Ok(Page { metadata, records: Vec::new() })
            }
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }
}

pub(super) fn record(decoded: Decoded) -> Record {
    Record { key: decoded.key, value: decoded.value.into(), revision: Revision::new(decoded.revision) }
}

/// Whether the object is missing, rather than the kind of object.
pub(super) fn is_absence(answer: &Answer) -> bool {
    let status = Status::of(answer);
    status.reason == "NotFound" && !status.details.name.is_empty()
}

pub(super) fn unreadable(
    operation: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    StoreError::Other { operation: operation.to_owned(), source: Box::new(error) }
}
