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

use super::protocol::{self, Asked};
use crate::cni::{self, Answer, CallRequest, Caller, Services};
use crate::failpoint::{self, Point};
use crate::health::Condition;
use crate::{findings, repair};

/// Whoever comes when all of these are taken waits in the socket's backlog.
const CONNECTIONS_MAX: usize = 256;
/// Below this many free places, those who say nothing must go sooner.
const CONNECTIONS_CROWDED: usize = 64;
/// How long a connection may take to say what it wants.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const SILENCE_CROWDED_MAX: Duration = Duration::from_secs(1);
/// How long calls under way get to finish when the agent stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a caller may take to read its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How many may ask for something else than a call: the other places are for plugins.
const QUESTIONS_MAX: usize = 32;
/// How many may be told what the agent sees at the same time: that is long, and is kept until it is read.
const EVIDENCE_MAX: usize = 2;
/// How long others wait for that.
const EVIDENCE_PATIENCE: Duration = Duration::from_secs(20);
/// How often to look whether somebody removed the socket.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    path: PathBuf,
    listener: UnixListener,
    /// Which file is ours.
    identity: (u64, u64),
    places: Arc<Semaphore>,
    questions: Arc<Questions>,
}

/// Places for those who ask something that no plugin asks.
#[derive(Debug)]
struct Questions {
    all: Semaphore,
    evidence: Semaphore,
}

impl Server {
    /// Opens the socket. One that a killed agent left is replaced; one that is served is not.
    pub(super) fn bind(path: &Path) -> io::Result<Server> {
        make_folder_of(path)?;
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent serves there"));
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
        Ok(Server { path: path.to_owned(), listener, identity, places, questions })
    }

    /// Somebody may have removed the socket: then nobody can call, although everything else works.
    fn look_after_socket(&mut self, services: &Services) {
        let problem = match identity(&self.path) {
            Ok(found) if found == self.identity => None,
            Ok(_) => Some("somebody put another file in its place".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match make_folder_of(&self.path).and_then(|()| listen(&self.path)) {
                    Ok(again) => {
                        warn!("{} was removed; made it anew", self.path.display());
                        (self.listener, self.identity) = again;
                        None
                    }
                    Err(error) => Some(error.to_string()),
                }
            }
            Err(error) => Some(error.to_string()),
        };
        let problems = problem.map(|problem| format!("{} is not served: {problem}", self.path.display()));
        services.health().set_condition(Condition::Socket, problems.into_iter().collect());
    }

    /// Serves until `stop` is ready, then lets the calls under way finish.
    pub(super) async fn run(mut self, services: Arc<Services>, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let place = tokio::select! {
                () = &mut stop => break,
                place = self.places.clone().acquire_owned() => place.expect("never closed"),
            };
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
                _ = look.tick() => {
                    self.look_after_socket(&services);
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    let (services, places) = (services.clone(), self.places.clone());
                    let questions = self.questions.clone();
                    tokio::spawn(
                        async move { converse(stream, &services, &places, &questions, place).await },
                    );
                }
                Err(error) => {
                    // Out of descriptors, most likely: those who are served give some back.
                    warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        services.health().set_serving(false);
        self.close().await;
    }

    async fn close(self) {
        // From now on a plugin finds nobody here, and knows what to do.
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!("{} stays behind: {error}", self.path.display());
        }
        drop(self.listener);
        let everyone = u32::try_from(CONNECTIONS_MAX).expect("a small number");
        if timeout(FAREWELL, self.places.acquire_many(everyone)).await.is_err() {
            warn!("some calls are still under way; what they leave is found at the next start");
        }
    }
}

async fn converse(
    mut stream: UnixStream,
    services: &Services,
    places: &Semaphore,
    questions: &Questions,
    _place: OwnedSemaphorePermit,
) {
    let is_allowed =
        stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == services.own_user());
    if !is_allowed {
        warn!("somebody who is not root called; hanging up");
        return;
    }
    let read = tokio::select! {
        read = protocol::read_request(&mut stream) => read,
        () = silence(places) => {
            debug!("a connection said nothing for too long");
            return;
        }
    };
    // Held until the answer is read, or is not.
    let mut held = None;
    let (answer, stream) = match read {
        Ok(Some(Asked::Call(request))) => {
            let (answer, stream) = serve(request, stream, services).await;
            services.metrics().count_call(answer.success);
            (answer, stream)
        }
        Ok(Some(question)) => {
            let (answer, place) = reply(question, services, questions).await;
            held = place;
            (answer, Arc::new(stream))
        }
        Ok(None) => return,
        Err(error) => {
            warn!("a request that cannot be served: {error}");
            services.metrics().count_call(false);
            (cni::refuse(&error), Arc::new(stream))
        }
    };
    let Ok(mut stream) = Arc::try_unwrap(stream) else { return };
    match timeout(ANSWER_PATIENCE, protocol::write_answer(&mut stream, answer)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("the caller did not wait for its answer: {error}"),
        Err(_) => warn!("a caller did not read its answer within {} s", ANSWER_PATIENCE.as_secs()),
    }
    if held.is_some() {
        // Something large was in memory for a moment.
        let _ = tokio::task::spawn_blocking(host::give_back_memory).await;
    }
}

/// The places that a question takes.
type Held<'a> = (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>);

/// Answers what is no call of a plugin, unless too many ask.
async fn reply<'a>(
    question: Asked,
    services: &Services,
    questions: &'a Questions,
) -> (Answer, Option<Held<'a>>) {
    let busy = || Answer { success: false, text: "too many ask the agent just now; try again".to_owned() };
    let Ok(place) = questions.all.try_acquire() else { return (busy(), None) };
    match question {
        Asked::Call(_) => unreachable!("calls are served, not replied to"),
        Asked::Evidence => match timeout(EVIDENCE_PATIENCE, questions.evidence.acquire()).await {
            Ok(Ok(evidence)) => (findings::answer(services).await, Some((place, Some(evidence)))),
            _ => (busy(), None),
        },
        Asked::Repair(works) => (repair::answer(&works, services).await, Some((place, None))),
        Asked::Probe(addresses) => (findings::probe(services, &addresses).await, Some((place, None))),
    }
}

fn make_folder_of(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
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

async fn serve(request: CallRequest, stream: UnixStream, services: &Services) -> (Answer, Arc<UnixStream>) {
    let stream = Arc::new(stream);
    let caller = {
        let stream = stream.clone();
        Caller::new(move || still_there(&stream))
    };
    let answer = cni::serve(&request, &caller, services).await;
    drop(caller);
    (answer, stream)
}

/// A plugin says nothing after its request; only its end can be read.
fn still_there(stream: &UnixStream) -> bool {
    let mut byte = [0];
    match stream.try_read(&mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Ends when a connection has been silent for too long: sooner when others wait for its place.
async fn silence(places: &Semaphore) {
    let mut waited = Duration::ZERO;
    while waited < SILENCE_MAX {
        tokio::time::sleep(SILENCE_CROWDED_MAX).await;
        waited += SILENCE_CROWDED_MAX;
        if places.available_permits() < CONNECTIONS_CROWDED {
            return;
        }
    }
}
