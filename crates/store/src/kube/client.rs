//! Requests to the API server: which may be repeated, how long they may take, and what a broken one amounts to.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy;
use kube_client::client::Body;
use tokio::time::{Instant, sleep, timeout_at};

use super::config::KubeConfig;
use super::connection::Connection;
use super::dial::CREDENTIALS;
use super::failure::{DENIED, Status, Trouble};
use super::token::TokenFile;
use super::{once, plugin};
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

/// The longest pause that a server is granted.
const PAUSE_MAX: Duration = Duration::from_secs(30);

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

#[derive(Debug)]
pub(super) struct Client {
    connection: Connection,
    /// For messages.
    address: String,
    token: Option<TokenFile>,
}

impl Client {
    /// Prepares connections; the first request makes one.
    pub(super) async fn connect(config: &KubeConfig) -> Result<Client, StoreError> {
        let source = config.source()?;
        let mut loaded = source.load().await?;
        let address = loaded.cluster_url.to_string().trim_end_matches('/').to_owned();
        let token = TokenFile::take_from(&mut loaded.auth_info);
        let connection = Connection::new(source, loaded).await?;
        Ok(Client { connection, address, token })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request, again where that is safe, until there is an answer that trying again would not better.
    pub(super) async fn send(&self, request: &Request) -> Result<Answer, StoreError> {
        let started = Instant::now();
        let patience = if request.effect == Effect::Lists { PATIENCE_FOR_LISTS } else { PATIENCE };
        let deadline = started + patience;
        let mut backoff = if request.effect == Effect::Lists { Backoff::for_lists() } else { Backoff::new() };
        loop {
            let pause = match timeout_at(deadline, self.exchange(request)).await {
                Err(_) => return Err(self.gave_up(request, Trouble::TimedOut, true)),
                Ok(Err(Tried::Refused(error))) => return Err(error),
                Ok(Err(Tried::Failed(failed))) => {
                    let is_denial = failed.cause.is_denial();
                    let has_changed =
                        is_about_certificates(&failed.cause) && self.connection.has_changed().await;
                    let is_final = is_denial && !has_changed
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
                        Some(_) => return self.last_word(request, answer, &headers),
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
            // Admission comes before the server stores anything.
            Effect::Writes if Status::of(answer).is_of_admission() => Ok(None),
            Effect::Writes => Err(self.gave_up(request, answered(answer, retry_after(headers)), true)),
            Effect::Reads | Effect::Lists => {
                Ok(Some(retry_after(headers).unwrap_or_default().max(backoff.pause())))
            }
        }
    }

    /// There is no time left to wait for a better answer.
    fn last_word(
        &self,
        request: &Request,
        answer: Answer,
        headers: &HeaderMap,
    ) -> Result<Answer, StoreError> {
        let busy = answer.status == StatusCode::TOO_MANY_REQUESTS;
        let retry_after = retry_after(headers);
        let trouble = if busy { Trouble::Busy { retry_after } } else { answered(&answer, retry_after) };
        Err(self.gave_up(request, trouble, !busy))
    }

    fn broken(&self, request: &Request, failed: Failed) -> StoreError {
        if failed.cause.is_denial() {
            let reason = failed.cause.to_string();
            let hint = Some(DENIED.to_owned());
            return StoreError::AccessDenied { address: self.address.clone(), reason, hint };
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

    /// One request, and a second one if its token or certificate was replaced: a request that is refused for those was not looked at.
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
            let client = self.connection.client().await;
            let response = client.send(message).await.map_err(|error| tried(&error))?;
            log_warnings(response.headers());
            if response.status() != StatusCode::UNAUTHORIZED || !self.has_other_credentials(token).await {
                return Ok(response);
            }
        }
    }

    /// Whether there are others now than those that were refused.
    async fn has_other_credentials(&self, refused: Option<HeaderValue>) -> bool {
        let mut files = self.token.iter().zip(refused);
        files.any(|(file, token)| file.has_changed_since(&token)) || self.connection.has_changed().await
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

fn tried(error: &(dyn StdError + 'static)) -> Tried {
    match plugin::problem_in(error) {
        Some(problem) => Tried::Refused(StoreError::BadSetting { setting: CREDENTIALS.to_owned(), problem }),
        None => Tried::Failed(failed(error)),
    }
}

/// Files with other certificates may better it.
fn is_about_certificates(cause: &Cause) -> bool {
    use Cause::{ServerCertificate, ServerExpired, ServerNameMismatch, ServerNotYetValid, UntrustedServer};
    cause.is_denial()
        || matches!(
            cause,
            UntrustedServer | ServerCertificate(_) | ServerExpired | ServerNotYetValid | ServerNameMismatch
        )
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

fn answered(answer: &Answer, retry_after: Option<Duration>) -> Trouble {
    let message = Status::of(answer).message;
    Trouble::Answered { status: answer.status.as_u16(), message, retry_after }
}

fn invalid_path(path: &str) -> Tried {
    Tried::Refused(StoreError::Invalid { problem: format!("{path:?} is not a path of the API") })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    // More than any number holds is long, too.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| pause_of(text.parse().unwrap_or(u64::MAX)))
}

/// A pause that a server asks for, as long as anybody should have to wait who cannot ask why.
pub(super) fn pause_of(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(PAUSE_MAX)
}

/// The server says so when it drops a field that the installed definition does not know.
fn log_warnings(headers: &HeaderMap) {
    for warning in headers.get_all(WARNING) {
        let text = String::from_utf8_lossy(warning.as_bytes());
        once::warn(format!("the API server accepted a record with a warning: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_bounded_whatever_the_server_asks_for() {
        let asked = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]))
        };
        assert_eq!(asked(" 7 "), Some(Duration::from_secs(7)));
        for long in ["31", "18446744073709551615", "99999999999999999999999"] {
            assert_eq!(asked(long), Some(PAUSE_MAX), "{long}");
        }
        for none in ["", "-1", "1.5", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(asked(none), None, "{none:?}");
        }
    }
}
