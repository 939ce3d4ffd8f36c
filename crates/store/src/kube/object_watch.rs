//! Changes of Kubernetes' own objects: one stream after the other, each from where the one before ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt as _;
use kube_client::client::Body;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::client::{Client, Request};
use super::failure::refusal;
use super::objects::ObjectKind;
use crate::StoreError;
use crate::backoff::Backoff;

/// After this long the server ends the stream, and we go on with a new one.
const STREAM_FOR: Duration = Duration::from_secs(290);
/// A stream that is silent for longer is dead: the server sends bookmarks every minute, and ends it in time.
const SILENCE_MAX: Duration = Duration::from_secs(310);

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectEvent {
    Put(Map<String, Value>),
    Deleted(Map<String, Value>),
}

/// The changes of one kind.
pub struct ObjectWatch {
    client: Arc<Client>,
    kind: ObjectKind,
    revision: String,
    stream: Option<(Body, BytesMut)>,
    backoff: Backoff,
}

impl std::fmt::Debug for ObjectWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectWatch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A line of a stream.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Map<String, Value>,
}

/// What a line says.
#[derive(Debug, PartialEq)]
enum Said {
    Event(ObjectEvent, String),
    /// How far the server is.
    Bookmark(String),
    Forgotten,
    Unclear,
}

impl ObjectWatch {
    pub(super) fn new(client: Arc<Client>, kind: ObjectKind, revision: &str) -> ObjectWatch {
        let revision = revision.to_owned();
        ObjectWatch { client, kind, revision, stream: None, backoff: Backoff::new() }
    }

    /// `None` when the server does not know any more what followed: list again. An error if it refuses.
    pub async fn next(&mut self) -> Result<Option<ObjectEvent>, StoreError> {
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let (event, revision) = match read(&line) {
                Said::Event(event, revision) => (Some(event), revision),
                Said::Bookmark(revision) => (None, revision),
                Said::Forgotten => return Ok(None),
                Said::Unclear => {
                    self.stream = None;
                    continue;
                }
            };
            self.revision = revision;
            self.backoff.reset();
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// The next line, of this stream or of the next one. `None` if the server has forgotten where we are.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        loop {
            let Some((body, buffer)) = &mut self.stream else {
                if !self.open().await? {
                    return Ok(None);
                }
                continue;
            };
            if let Some(length) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(length).to_vec();
                buffer.advance(1);
                return Ok(Some(line));
            }
            let frame = timeout(SILENCE_MAX, body.frame()).await;
            match frame.ok().flatten().and_then(Result::ok).map(http_body::Frame::into_data) {
                Some(Ok(data)) => buffer.extend_from_slice(&data),
                Some(Err(_trailers)) => {}
                None => {
                    self.stream = None;
                    sleep(self.backoff.pause()).await;
                }
            }
        }
    }

    /// Whether the server knows what followed.
    async fn open(&mut self) -> Result<bool, StoreError> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            self.kind.path(),
            self.revision,
            STREAM_FOR.as_secs()
        );
        match self.client.open(&Request::get(path)).await? {
            Ok(body) => self.stream = Some((body, BytesMut::new())),
            Err((answer, pause)) => match answer.status {
                StatusCode::GONE => return Ok(false),
                status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                    sleep(pause.max(self.backoff.pause())).await;
                }
                _ => {
                    let operation = format!("watching {}", self.kind.plural());
                    return Err(refusal(self.client.address(), &operation, &answer));
                }
            },
        }
        Ok(true)
    }
}

fn read(line: &[u8]) -> Said {
    let Ok(Line { kind, object }) = serde_json::from_slice(line) else { return Said::Unclear };
    let revision = object.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
    let revision = revision.and_then(Value::as_str).map(str::to_owned);
    match (kind.as_str(), revision) {
        ("ADDED" | "MODIFIED", Some(revision)) => Said::Event(ObjectEvent::Put(object), revision),
        ("DELETED", Some(revision)) => Said::Event(ObjectEvent::Deleted(object), revision),
        ("BOOKMARK", Some(revision)) => Said::Bookmark(revision),
        ("ERROR", _) if object.get("code").and_then(Value::as_u64) == Some(410) => Said::Forgotten,
        _ => Said::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let object = r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#;
        let parsed: Map<String, Value> = serde_json::from_str(object).unwrap();
        let said = |kind: &str| read(format!(r#"{{"type":"{kind}","object":{object}}}"#).as_bytes());
        for kind in ["ADDED", "MODIFIED"] {
            assert_eq!(said(kind), Said::Event(ObjectEvent::Put(parsed.clone()), "7".to_owned()));
        }
        assert_eq!(said("DELETED"), Said::Event(ObjectEvent::Deleted(parsed), "7".to_owned()));
        assert_eq!(said("BOOKMARK"), Said::Bookmark("7".to_owned()));
        assert_eq!(read(br#"{"type":"ERROR","object":{"code":410}}"#), Said::Forgotten);
        for unclear in
            [&br#"{"type":"ERROR","object":{"code":500}}"#[..], b"{", b"", br#"{"type":"ADDED","object":{}}"#]
        {
            assert_eq!(read(unclear), Said::Unclear);
        }
    }
}
