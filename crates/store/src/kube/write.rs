//! Changes, one request each: create, replace and delete by compare-and-swap.

use http::{Method, StatusCode};
use model::Key;
use model::kube::{Decoded, EncodeError, Place, encode, has_status_apart, place};
use serde_json::{Map, Value, json};

use super::Shared;
use super::client::{Answer, Request};
use super::failure::{HalfWritten, refusal};
use super::range::{Location, Source, escaped};
use super::read::{is_absence, record, unreadable};
use crate::request::check_precondition;
use crate::{Change, Precondition, Revision, StoreError, Write};

/// How often a creation is tried where something was in its way that is gone when it is looked at.
const TRIES: usize = 8;

impl Shared {
    pub(super) async fn change(&self, change: Change) -> Result<Revision, StoreError> {
        if change.write == Write::Nothing {
            return self.require(&change).await;
        }
        let Some(place) = place(&change.key) else { return self.change_view(&change).await };
        match (&change.precondition, &change.write) {
            (Precondition::Uid(_), _) => Err(StoreError::Invalid {
                problem: format!("{} is a record of its own, not a view of an object", change.key),
            }),
            (Precondition::Absent, Write::Put(value)) => self.create(&change.key, &place, value).await,
            (Precondition::At(revision), _) if revision.number().is_none_or(|number| number == 0) => {
                // The server would take some of these for "whatever is there".
                self.unmet(&change).await
            }
            (Precondition::At(revision), Write::Put(value)) => {
                self.replace(&change, &place, value, revision).await
            }
            (Precondition::At(revision), Write::Delete) => self.delete(&change, &place, revision).await,
            (_, Write::Nothing) => self.require(&change).await,
            (Precondition::Absent, Write::Delete) => Err(StoreError::Invalid {
                problem: format!("{} is to be absent and to be deleted", change.key),
            }),
        }
    }

    fn collection_of(&self, place: &Place) -> String {
        Source::Custom(place.kind).path(self.layout, place.namespace.as_deref())
    }

    fn path_of(&self, place: &Place) -> String {
        format!("{}/{}", self.collection_of(place), escaped(&place.name))
    }

    /// What lies where a record is to be written.
    async fn found(&self, key: &Key) -> Result<Option<Decoded>, StoreError> {
        match Location::of(key) {
            Some(location) => self.look_up(key, &location).await,
            None => Ok(None),
        }
    }

    async fn create(&self, key: &Key, place: &Place, value: &[u8]) -> Result<Revision, StoreError> {
        let document = self.document(key, value)?;
        let path = self.collection_of(place);
        let request = Request::write(Method::POST, path, body(&document));
        let operation = format!("creating {key}");
        for _ in 0..TRIES {
            let answer = self.client.send(&request).await?;
            match answer.status {
                StatusCode::OK | StatusCode::CREATED => {
                    return self.written(key, place, document, &answer).await;
                }
                StatusCode::CONFLICT => match self.found(key).await? {
                    None => {}
                    Some(marked) if marked.is_tombstone => self.finish_deletion(place, &marked).await?,
                    Some(existing) if existing.key == *key => {
                        return Err(StoreError::AlreadyExists { existing: Box::new(record(existing)) });
                    }
                    Some(namesake) => return Err(in_the_way(key, &namesake)),
                },
                _ => return Err(refusal(self.client.address(), &operation, &answer)),
            }
        }
        let source = "something else keeps being created and removed under its name".into();
        Err(StoreError::Other { operation, source })
    }

    async fn replace(
        &self,
        change: &Change,
        place: &Place,
        value: &[u8],
        revision: &Revision,
    ) -> Result<Revision, StoreError> {
        let mut document = self.document(&change.key, value)?;
        set_revision(&mut document, revision.as_str());
        let request = Request::write(Method::PUT, self.path_of(place), body(&document));
        let answer = self.client.send(&request).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => self.written(&change.key, place, document, &answer).await,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => self.lost(change, &answer).await,
            _ => Err(refusal(self.client.address(), &format!("updating {}", change.key), &answer)),
        }
    }

    /// Removes the record in one step. Where finalizers hold it, its deletion has begun, and others finish it.
    async fn delete(
        &self,
        change: &Change,
        place: &Place,
        revision: &Revision,
    ) -> Result<Revision, StoreError> {
        let answer = self.send_deletion(place, revision.as_str()).await?;
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED => {
                Ok(revision_of(&answer).unwrap_or_else(|| revision.clone()))
            }
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => self.lost(change, &answer).await,
            _ => Err(refusal(self.client.address(), &format!("deleting {}", change.key), &answer)),
        }
    }

    async fn send_deletion(&self, place: &Place, revision: &str) -> Result<Answer, StoreError> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "resourceVersion": revision } });
        let options = options.to_string().into_bytes();
        self.client.send(&Request::write(Method::DELETE, self.path_of(place), options)).await
    }

    /// Removes what Calico has marked as removed. That somebody else was faster is as good.
    async fn finish_deletion(&self, place: &Place, marked: &Decoded) -> Result<(), StoreError> {
        let answer = self.send_deletion(place, &marked.revision).await?;
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::CONFLICT | StatusCode::NOT_FOUND => Ok(()),
            _ => {
                let operation = format!("removing {}, which is marked as deleted", marked.key);
                Err(refusal(self.client.address(), &operation, &answer))
            }
        }
    }

    /// What a change that lost a race found.
    pub(super) async fn lost(&self, change: &Change, answer: &Answer) -> Result<Revision, StoreError> {
        if answer.status == StatusCode::NOT_FOUND && !is_absence(answer) {
            let operation = format!("changing {}", change.key);
            return Err(refusal(self.client.address(), &operation, answer));
        }
        self.unmet(change).await
    }

    pub(super) async fn unmet(&self, change: &Change) -> Result<Revision, StoreError> {
        let found = self.found(&change.key).await?;
        Err(match found.filter(|found| !found.is_tombstone && found.key == change.key) {
            Some(current) => StoreError::Conflict { current: Box::new(record(current)) },
            None => StoreError::NotFound { key: change.key.clone() },
        })
    }

    /// Checks what a commit relies on. A list of one name also tells the store's revision.
    async fn require(&self, change: &Change) -> Result<Revision, StoreError> {
        let operation = format!("reading {}", change.key);
        let location = Location::of(&change.key).ok_or_else(|| not_kept(&change.key))?;
        let answer = self.client.send(&Request::get(location.path_as_list(self.layout))).await?;
        if answer.status != StatusCode::OK {
            return Err(refusal(self.client.address(), &operation, &answer));
        }
        let mut page: Map<String, Value> =
            serde_json::from_slice(&answer.body).map_err(|error| unreadable(&operation, error))?;
        let found = page.get_mut("items").and_then(Value::as_array_mut).and_then(Vec::pop);
        let decoded = match found {
            Some(Value::Object(document)) => location.source.decode(self.form(), document),
            _ => None,
        };
        let current = decoded.filter(|found| !found.is_tombstone && found.key == change.key).map(record);
        check_precondition(change, current)?;
        revision_of(&answer).ok_or_else(|| StoreError::Other {
            operation,
            source: "the API server's list has no revision".into(),
        })
    }

    fn document(&self, key: &Key, value: &[u8]) -> Result<Map<String, Value>, StoreError> {
        encode(self.layout, key, value).map_err(|error| StoreError::Invalid {
            problem: match &error {
                EncodeError::NotAnObject { source, .. } => format!("{error}: {source}"),
                _ => error.to_string(),
            },
        })
    }

    /// The new revision of a record that was written. Where its status is kept apart, that is written now.
    async fn written(
        &self,
        key: &Key,
        place: &Place,
        mut document: Map<String, Value>,
        answer: &Answer,
    ) -> Result<Revision, StoreError> {
        let operation = format!("writing {key}");
        let stored: Map<String, Value> =
            serde_json::from_slice(&answer.body).map_err(|error| unreadable(&operation, error))?;
        let revision = revision_in(&stored).ok_or_else(|| StoreError::Other {
            operation: operation.clone(),
            source: "the API server's answer has no revision".into(),
        })?;
        let is_missing = document.get("status").is_some_and(|status| stored.get("status") != Some(status));
        if !has_status_apart(place.kind) || !is_missing {
            return Ok(revision);
        }
        set_revision(&mut document, revision.as_str());
        if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
            // On a record that was just created it is another than the one given.
            metadata.remove("uid");
        }
        self.write_status(key, place, &document, revision).await.map_err(|source| {
            // The record is there, so no refusal and no lost race is all there is to say.
            let source = HalfWritten { key: key.clone(), source };
            StoreError::Uncertain { source: Box::new(source) }
        })
    }

    async fn write_status(
        &self,
        key: &Key,
        place: &Place,
        document: &Map<String, Value>,
        revision: Revision,
    ) -> Result<Revision, StoreError> {
        let operation = format!("writing the status of {key}");
        let path = format!("{}/status", self.path_of(place));
        let answer = self.client.send(&Request::write(Method::PUT, path, body(document))).await?;
        let change =
            Change { key: key.clone(), precondition: Precondition::At(revision), write: Write::Nothing };
        match answer.status {
            StatusCode::OK => revision_of(&answer).ok_or_else(|| StoreError::Other {
                operation,
                source: "the API server's answer has no revision".into(),
            }),
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => self.lost(&change, &answer).await,
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }
}

/// No object of Kubernetes can hold the record.
pub(super) fn not_kept(key: &Key) -> StoreError {
    StoreError::Unsupported { operation: format!("keep {key}: no object of Kubernetes stands for it") }
}

fn in_the_way(key: &Key, namesake: &Decoded) -> StoreError {
    let source = format!("its custom resource would have the same name as that of {}", namesake.key).into();
    StoreError::Other { operation: format!("creating {key}"), source }
}

pub(super) fn body(document: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(document).expect("a JSON value can always be written")
}

fn set_revision(document: &mut Map<String, Value>, revision: &str) {
    if let Some(Value::Object(metadata)) = document.get_mut("metadata") {
        metadata.insert("resourceVersion".into(), revision.into());
    }
}

pub(super) fn revision_of(answer: &Answer) -> Option<Revision> {
    revision_in(&serde_json::from_slice(&answer.body).ok()?)
}

fn revision_in(document: &Map<String, Value>) -> Option<Revision> {
    let revision = document.get("metadata")?.get("resourceVersion")?.as_str()?;
    (!revision.is_empty()).then(|| Revision::new(revision))
}
