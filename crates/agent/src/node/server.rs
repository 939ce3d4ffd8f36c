//! The socket that plugins call: one request per connection, from root only, never more than a bounded number.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tracing::{debug, warn};

use wire::Reply;

use super::protocol::{self, Request};
use crate::failpoint::{self, Point};
use crate::health::Condition;
use crate::services::{Agent, Services};
use crate::verbs::{self, Caller};
use crate::{findings, repair};

/// More clients than this wait in the socket's backlog.
const CONNECTIONS_MAX: usize = 256;
/// With fewer free places than this, idle connections are closed sooner.
const CONNECTIONS_CROWDED: usize = 64;
/// How long a connection may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT_CROWDED: Duration = Duration::from_secs(1);
/// How long calls in progress may take when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to read its reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// How many requests other than calls are served at the same time; the other places are for plugins.
const QUESTIONS_MAX: usize = 32;
/// How many requests for evidence are served at the same time: the reply is long, and stays in memory until it is read.
const EVIDENCE_MAX: usize = 2;
/// How long further requests for evidence wait.
const EVIDENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// How often to check that the socket still exists.
const CHECK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket that this agent made.
    identity: (u64, u64),
    places: Arc<Semaphore>,
    questions: Arc<Questions>,
    /// Clients must be root, or run as the same user as the agent.
    own_user: u32,
}

/// Places for requests other than calls.
#[derive(Debug)]
struct Questions {
    all: Semaphore,
    evidence: Semaphore,
}

impl Server {
    /// Opens the socket. Replaces one that a killed agent left, but not one that is served.
    pub(super) fn bind(path: &Path) -> io::Result<Server> {
        create_directory_of(path)?;
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent serves this socket"));
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        failpoint::hit(Point::StartSocketRemoved);
        let (listener, identity) = listen(path)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (all, evidence) = (Semaphore::new(QUESTIONS_MAX), Semaphore::new(EVIDENCE_MAX));
        let questions = Arc::new(Questions { all, evidence });
        let own_user = fs::metadata("/proc/self").map_or(0, |status| status.uid());
        Ok(Server { path: path.to_owned(), listener, identity, places, questions, own_user })
    }

    /// Recreates a socket that was removed: without it no plugin can call, although everything else works.
    fn check_socket(&mut self, agent: &Agent) {
        let problem = match identity(&self.path) {
            Ok(found) if found == self.identity => None,
            Ok(_) => Some("another file is in its place".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match create_directory_of(&self.path).and_then(|()| listen(&self.path)) {
                    Ok(again) => {
                        warn!(socket = %self.path.display(), "recreated the socket, which was removed");
                        (self.listener, self.identity) = again;
                        None
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        let problems =
            problem.map(|problem| format!("cannot serve the socket {}: {problem}", self.path.display()));
        agent.health.set_condition(Condition::Socket, problems.into_iter().collect());
    }

    /// Serves until `stop` is ready, then lets the calls in progress end.
    pub(super) async fn run(mut self, agent: Arc<Agent>, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut check = tokio::time::interval(CHECK_EVERY);
        loop {
            let place = tokio::select! {
                () = &mut stop => break,
                place = self.places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
            };
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
                _ = check.tick() => {
                    self.check_socket(&agent);
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let (agent, places) = (agent.clone(), self.places.clone());
                    let (questions, own_user) = (self.questions.clone(), self.own_user);
                    tokio::spawn(async move {
                        if is_allowed(&stream, own_user) {
                            serve_connection(stream, &agent, &places, &questions, place).await;
                        }
                    });
                }
                Err(error) => {
                    // Most likely out of file descriptors: connections that end free some.
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        agent.health.set_serving(false);
        self.close().await;
    }

    async fn close(self) {
        // From now on a plugin finds no agent, and queues its DELs itself.
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
        drop(self.listener);
        let all = u32::try_from(CONNECTIONS_MAX).expect("a small number");
        if timeout(STOP_TIMEOUT, self.places.acquire_many(all)).await.is_err() {
            warn!("stopped while calls were in progress; the next start completes or removes what they left");
        }
    }
}

fn is_allowed(stream: &UnixStream, own_user: u32) -> bool {
    let is_allowed = stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own_user);
    if !is_allowed {
        warn!("refused a client that is not root");
    }
    is_allowed
}

async fn serve_connection(
    mut stream: UnixStream,
    agent: &Agent,
    places: &Semaphore,
    questions: &Questions,
    _place: OwnedSemaphorePermit,
) {
    let read = tokio::select! {
        read = protocol::read_request(&mut stream) => read,
        () = request_timeout(places) => {
            debug!("closed a connection that sent no request");
            return;
        }
    };
    // Held until the reply is written.
    let mut held = None;
    let (reply, stream) = match read {
        Ok(Some(Request::Call(request))) => {
            let (reply, stream) = serve_call(request, stream, agent).await;
            agent.metrics().count_call(reply.is_success());
            (reply, stream)
        }
        Ok(Some(question)) => {
            let (reply, place) = answer(question, agent, questions).await;
            held = place;
            (reply, Arc::new(stream))
        }
        Ok(None) => return,
        Err(error) => {
            warn!(%error, "refused a request");
            agent.metrics().count_call(false);
            (verbs::refuse(&error), Arc::new(stream))
        }
    };
    let Ok(mut stream) = Arc::try_unwrap(stream) else { return };
    match timeout(REPLY_TIMEOUT, protocol::write_reply(&mut stream, reply)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a client closed the connection before its reply"),
        Err(_) => warn!("a client did not read its reply within {} s", REPLY_TIMEOUT.as_secs()),
    }
    if held.is_some() {
        // Evidence is large, and stays in the heap otherwise.
        let _ = tokio::task::spawn_blocking(host::give_back_memory).await;
    }
}

/// The places that a request takes.
type Held<'a> = (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>);

/// Answers a request other than a call, unless there are too many.
async fn answer<'a>(question: Request, agent: &Agent, questions: &'a Questions) -> (Reply, Option<Held<'a>>) {
    let busy = || Reply::failure("the agent has too many requests; try again".to_owned());
    let Ok(place) = questions.all.try_acquire() else { return (busy(), None) };
    match question {
        Request::Call(_) => unreachable!("serve_call serves calls"),
        Request::Identity => (findings::who_am_i(agent), Some((place, None))),
        Request::Evidence => match timeout(EVIDENCE_TIMEOUT, questions.evidence.acquire()).await {
            Ok(Ok(evidence)) => (findings::answer(agent).await, Some((place, Some(evidence)))),
            _ => (busy(), None),
        },
        Request::Repair(works) => (repair::answer(&works, agent).await, Some((place, None))),
        Request::Probe(addresses) => (findings::probe(agent, &addresses).await, Some((place, None))),
    }
}

fn create_directory_of(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn listen(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, identity(path)?))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

async fn serve_call(request: wire::Call, stream: UnixStream, agent: &Agent) -> (Reply, Arc<UnixStream>) {
    let stream = Arc::new(stream);
    let caller = {
        let stream = stream.clone();
        Caller::new(move || is_open(&stream))
    };
    let reply = verbs::serve(&request, &caller, Services::Agent(agent)).await;
    drop(caller);
    (reply, stream)
}

/// A plugin sends nothing after its request, so only the end of the connection can be read.
fn is_open(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match stream.try_read(&mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Ends when a connection has sent no request for too long: sooner while places are scarce.
async fn request_timeout(places: &Semaphore) {
    let mut waited = Duration::ZERO;
    while waited < REQUEST_TIMEOUT {
        tokio::time::sleep(REQUEST_TIMEOUT_CROWDED).await;
        waited += REQUEST_TIMEOUT_CROWDED;
        if places.available_permits() < CONNECTIONS_CROWDED {
            return;
        }
    }
}
