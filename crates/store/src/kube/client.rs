//! Requests to the API server: which may be repeated, how long they may take, and what a broken one amounts to.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy;
use kube_client::client::Body;
use tokio::time::{Instant, sleep, timeout_at};

use super::config::KubeConfig;
use super::dial;
use super::failure::{Status, Trouble};
use super::once;
use super::token::TokenFile;
use crate::StoreError;
use crate::backoff::Backoff;
use crate::etcd::Trouble as Cause;

/// How long a request may take, waiting for a busy server included.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same for a page of a list, which the server may have to read from disk.
const PATIENCE_FOR_LISTS: Duration = Duration::from_secs(60);
/// How long to go on trying to connect: a server that is restarted is back by then, or behind the same address another one answers.
const RECONNECT_FOR: Duration = Duration::from_secs(3);
/// How long to wait for a busy server that does not say how long.
const PAUSE_IF_BUSY: Duration = Duration::from_secs(1);

/// Whether a request changes anything: one that does is never sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Lists,
    Writes,
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// With its query.
    pub(super) path: String,
    pub(super) body: Bytes,
    pub(super) effect: Effect,
    /// Of the objects in the answer only the metadata is wanted.
    pub(super) wants_metadata_only: bool,
}

/// An answer with whole objects.
const WHOLE: &str = "application/json";
/// An answer with the metadata of objects; whole ones from whoever cannot leave out the rest.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// How Calico patches: fields that are not named stay as they are, and `null` removes one.
const PATCH: &str = "application/strategic-merge-patch+json";

impl Request {
    pub(super) fn get(path: String) -> Request {
        let (method, body) = (Method::GET, Bytes::new());
        Request { method, path, body, effect: Effect::Reads, wants_metadata_only: false }
    }

    pub(super) fn list(path: String) -> Request {
        Request { effect: Effect::Lists, ..Request::get(path) }
    }

    pub(super) fn write(method: Method, path: String, body: Vec<u8>) -> Request {
        Request { method, body: body.into(), effect: Effect::Writes, ..Request::get(path) }
    }

    #[must_use]
    pub(super) fn metadata_only(mut self, only: bool) -> Request {
        self.wants_metadata_only = only;
        self
    }

    fn accepted(&self) -> &'static str {
        match (self.wants_metadata_only, self.effect) {
            (false, _) => WHOLE,
            (true, Effect::Lists) => METADATA_LIST,
            (true, _) => METADATA,
        }
    }

    fn content_type(&self) -> &'static str {
        if self.method == Method::PATCH { PATCH } else { WHOLE }
    }
}

/// What the server said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// One try that gave no answer.
#[derive(Debug)]
struct Failed {
    cause: Cause,
    /// The server may have received the request.
    may_have_arrived: bool,
}

pub(super) struct Client {
    inner: kube_client::Client,
    /// For messages.
    address: String,
    token: Option<TokenFile>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// Prepares connections; the first request makes one.
    pub(super) async fn connect(config: &KubeConfig) -> Result<Client, StoreError> {
        let mut loaded = config.load().await?;
        let address = loaded.cluster_url.to_string().trim_end_matches('/').to_owned();
        // The library would notice a new token within a minute. A token may be replaced because the old one ends now.
        let token = loaded.auth_info.token_file.take().map(|path| TokenFile::new(PathBuf::from(path)));
        Ok(Client { inner: dial::client(loaded).await?, address, token })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request, again where that is safe, until there is an answer that trying again would not better.
    pub(super) async fn send(&self, request: &Request) -> Result<Answer, StoreError> {
        let started = Instant::now();
        let patience = if request.effect == Effect::Lists { PATIENCE_FOR_LISTS } else { PATIENCE };
        let deadline = started + patience;
        let mut backoff = Backoff::new();
        loop {
            let pause = match timeout_at(deadline, self.exchange(request)).await {
                Err(_) => return Err(self.gave_up(request, Trouble::TimedOut, true)),
                Ok(Err(Tried::Refused(error))) => return Err(error),
                Ok(Err(Tried::Failed(failed))) => {
                    let is_final = failed.cause.is_denial()
                        || failed.may_have_arrived && request.effect == Effect::Writes
                        || started.elapsed() > RECONNECT_FOR;
                    if is_final {
                        return Err(self.broken(request, failed));
                    }
                    backoff.pause()
                }
                Ok(Ok((answer, headers))) => {
                    match self.wait_before_retry(request, &answer, &headers, &mut backoff)? {
                        Some(pause) if Instant::now() + pause < deadline => pause,
                        Some(_) => return self.last_word(request, answer),
                        None => return Ok(answer),
                    }
                }
            };
            sleep(pause).await;
        }
    }

    /// Starts a request whose answer is a stream. A refusal comes whole.
    pub(super) async fn open(
        &self,
        request: &Request,
    ) -> Result<Result<Body, (Answer, Duration)>, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        let response = match timeout_at(deadline, self.attempt(request)).await {
            Err(_) => return Err(self.gave_up(request, Trouble::TimedOut, true)),
            Ok(Err(Tried::Refused(error))) => return Err(error),
            Ok(Err(Tried::Failed(failed))) => return Err(self.broken(request, failed)),
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() {
            return Ok(Ok(response.into_body()));
        }
        let pause = retry_after(response.headers()).unwrap_or_default();
        match timeout_at(deadline, collect(response)).await {
            Ok(Ok((answer, _))) => Ok(Err((answer, pause))),
            Ok(Err(failed)) => Err(self.broken(request, failed)),
            Err(_) => Err(self.gave_up(request, Trouble::TimedOut, true)),
        }
    }

    /// How long to wait before the request is sent again; `None` if the answer counts.
    fn wait_before_retry(
        &self,
        request: &Request,
        answer: &Answer,
        headers: &HeaderMap,
        backoff: &mut Backoff,
    ) -> Result<Option<Duration>, StoreError> {
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            // The server has not looked at the request.
            return Ok(Some(retry_after(headers).unwrap_or(PAUSE_IF_BUSY).max(backoff.pause())));
        }
        if !answer.status.is_server_error() {
            return Ok(None);
        }
        match request.effect {
            Effect::Writes => Err(self.gave_up(request, answered(answer), true)),
            Effect::Reads | Effect::Lists => {
                Ok(Some(retry_after(headers).unwrap_or_default().max(backoff.pause())))
            }
        }
    }

    /// There is no time left to wait for a better answer.
    fn last_word(&self, request: &Request, answer: Answer) -> Result<Answer, StoreError> {
        let busy = answer.status == StatusCode::TOO_MANY_REQUESTS;
        let trouble = if busy { Trouble::Busy } else { answered(&answer) };
        Err(self.gave_up(request, trouble, !busy))
    }

    fn broken(&self, request: &Request, failed: Failed) -> StoreError {
        if failed.cause.is_denial() {
            let reason = failed.cause.to_string();
            return StoreError::AccessDenied { address: self.address.clone(), reason, hint: None };
        }
        self.gave_up(request, Trouble::Connection(failed.cause), failed.may_have_arrived)
    }

    fn gave_up(&self, request: &Request, trouble: Trouble, may_have_arrived: bool) -> StoreError {
        if may_have_arrived && request.effect == Effect::Writes {
            return StoreError::Uncertain { source: Box::new(trouble) };
        }
        StoreError::Unreachable { address: self.address.clone(), source: Box::new(trouble) }
    }

    /// One request and its whole answer.
    async fn exchange(&self, request: &Request) -> Result<(Answer, HeaderMap), Tried> {
        let response = self.attempt(request).await?;
        Ok(collect(response).await?)
    }

    /// One request, and a second one if its token was replaced: a request that is refused for its token was not looked at.
    async fn attempt(&self, request: &Request) -> Result<Response<Body>, Tried> {
        loop {
            let mut message = http::Request::new(Body::from(request.body.clone()));
            *message.method_mut() = request.method.clone();
            *message.uri_mut() = request.path.parse().map_err(|_| invalid_path(&request.path))?;
            let headers = message.headers_mut();
            headers.insert(ACCEPT, HeaderValue::from_static(request.accepted()));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(request.content_type()));
            headers
                .insert(USER_AGENT, HeaderValue::from_static(concat!("plumb/", env!("CARGO_PKG_VERSION"))));
            let token = self.token.as_ref().map(TokenFile::header).transpose().map_err(Tried::Refused)?;
            if let Some(token) = &token {
                headers.insert(AUTHORIZATION, token.clone());
            }
            let response = self.inner.send(message).await.map_err(|error| Tried::Failed(failed(&error)))?;
            log_warnings(response.headers());
            let is_refused = response.status() == StatusCode::UNAUTHORIZED;
            let has_changed =
                |token: &HeaderValue| self.token.as_ref().is_some_and(|file| file.has_changed_since(token));
            if !(is_refused && token.as_ref().is_some_and(has_changed)) {
                return Ok(response);
            }
        }
    }
}

/// What a try came to that brought no answer.
#[derive(Debug)]
enum Tried {
    Failed(Failed),
    /// Trying again is no use.
    Refused(StoreError),
}

impl From<Failed> for Tried {
    fn from(failed: Failed) -> Tried {
        Tried::Failed(failed)
    }
}

async fn collect(response: Response<Body>) -> Result<(Answer, HeaderMap), Failed> {
    let (parts, body) = response.into_parts();
    let collected = body.collect().await.map_err(|error| failed(&error))?;
    Ok((Answer { status: parts.status, body: collected.to_bytes() }, parts.headers))
}

fn failed(error: &(dyn StdError + 'static)) -> Failed {
    let mut may_have_arrived = true;
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            may_have_arrived = false;
        }
        next = error.source();
    }
    Failed { cause: Cause::of(error), may_have_arrived }
}

fn answered(answer: &Answer) -> Trouble {
    Trouble::Answered { status: answer.status.as_u16(), message: Status::of(answer).message }
}

fn invalid_path(path: &str) -> Tried {
    Tried::Refused(StoreError::Invalid { problem: format!("{path:?} is not a path of the API") })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The server says so when it drops a field that the installed definition does not know.
fn log_warnings(headers: &HeaderMap) {
    for warning in headers.get_all(WARNING) {
        let text = String::from_utf8_lossy(warning.as_bytes());
        once::warn(format!("the API server accepted a record with a warning: {text}"));
    }
}
