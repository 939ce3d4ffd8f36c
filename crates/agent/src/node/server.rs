//! The socket that plugins call: one request per connection, from root only, never more than a bounded number.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::protocol::{self, Asked};
use crate::cni::{self, Answer, CallRequest, Caller, Services};
use crate::failpoint::{self, Point};
use crate::{findings, repair};

/// Whoever comes when all of these are taken waits in the socket's backlog.
const CONNECTIONS_MAX: usize = 256;
/// Below this many free places, those who say nothing must go sooner.
const CONNECTIONS_CROWDED: usize = 64;
/// How long a connection may take to say what it wants.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const SILENCE_CROWDED_MAX: Duration = Duration::from_secs(1);
/// How long calls under way get to finish when the agent stops.
const FAREWELL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Server {
    path: PathBuf,
    listener: UnixListener,
    places: Arc<Semaphore>,
}

impl Server {
    /// Opens the socket. One that a killed agent left is replaced; one that is served is not.
    pub(super) fn bind(path: &Path) -> io::Result<Server> {
        if let Some(folder) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent serves there"));
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        failpoint::hit(Point::StartSocketRemoved);
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Server { path: path.to_owned(), listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) })
    }

    /// Serves until `stop` is ready, then lets the calls under way finish.
    pub(super) async fn run(self, services: Arc<Services>, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            let place = tokio::select! {
                () = &mut stop => break,
                place = self.places.clone().acquire_owned() => place.expect("never closed"),
            };
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (services, places) = (services.clone(), self.places.clone());
                    tokio::spawn(async move { converse(stream, &services, &places, place).await });
                }
                Err(error) => {
                    // Out of descriptors, most likely: those who are served give some back.
                    warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        self.close().await;
    }

    async fn close(self) {
        // From now on a plugin finds nobody here, and knows what to do.
        if let Err(error) = fs::remove_file(&self.path) {
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
    let (answer, stream) = match read {
        Ok(Some(Asked::Call(request))) => {
            let (answer, stream) = serve(request, stream, services).await;
            services.metrics().count_call(answer.success);
            (answer, stream)
        }
        Ok(Some(Asked::Evidence)) => (findings::answer(services).await, Arc::new(stream)),
        Ok(Some(Asked::Repair(works))) => (repair::answer(&works, services).await, Arc::new(stream)),
        Ok(Some(Asked::Probe(addresses))) => (findings::probe(services, &addresses).await, Arc::new(stream)),
        Ok(None) => return,
        Err(error) => {
            warn!("a request that cannot be served: {error}");
            services.metrics().count_call(false);
            (cni::refuse(&error), Arc::new(stream))
        }
    };
    let Ok(mut stream) = Arc::try_unwrap(stream) else { return };
    if let Err(error) = protocol::write_answer(&mut stream, &answer).await {
        debug!("the caller did not wait for its answer: {error}");
    }
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
