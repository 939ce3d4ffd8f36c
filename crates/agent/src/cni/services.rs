//! What the verbs work with, and who provides it: a process of its own for one call, or the node's agent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use book::Book;
use doctor::evidence::node::AgentMode;
use host::cri::Sandboxes;
use host::{Host, HostError, Worker};
use model::Sandbox;
use plan::between::Protected;
use store::{OpenMode, StoreConfig};
use tokio::sync::Notify;
use tracing::warn;

use super::error::{CniError, code};
use super::netconf::NetConf;
use super::{node, records};
use crate::endpoints::Endpoints;
use crate::failpoint;
use crate::fence::Fences;
use crate::health::{Health, Metrics};
use crate::journal::{Entry, Journal};
use crate::queue::Queue;
use crate::runtime::Runtime;
use crate::state::{self, State};

const KERNEL_THREAD: &str = "kernel";
/// How long a call waits for a store that was not reached since the agent's start.
const BOOK_PATIENCE: Duration = Duration::from_secs(10);
/// How many sentences are remembered as said. Forgetting them costs no more than saying one again.
const SAID_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Services {
    records: Source,
    queue: Queue,
    fences: Fences,
    health: Arc<Health>,
    /// Started when it is first needed.
    kernel: OnceLock<Worker>,
    /// What was said already, and need not be said for each pod.
    said: Mutex<BTreeSet<String>>,
    own_user: u32,
    calls: AtomicU64,
    calls_under_way: AtomicUsize,
}

/// A call under way.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Services);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls_under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where the records are.
#[derive(Debug)]
enum Source {
    /// Where the call's configuration says.
    OfCall,
    /// Where the agent was told. Empty until they can be reached.
    OfAgent(Box<Agent>),
}

/// What only the agent has.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) node: String,
    pub(crate) mode: AgentMode,
    pub(crate) book: Records,
    pub(crate) runtime: Runtime,
    pub(crate) endpoints: Endpoints,
    /// Links wait for their removal.
    pub(crate) sweep: Notify,
    pub(crate) journal: Journal,
    /// Somebody changed our table of nftables, or the rules have just been loaded.
    pub(crate) rules_touched: Notify,
    pub(crate) state: State,
    /// Addresses that no pod may have, as far as the records are known.
    pub(crate) protected: RwLock<Protected>,
    /// BIRD's control socket, if there must be one.
    pub(crate) bird_socket: Option<PathBuf>,
}

/// The agent's address book, which is not there before the store was reached.
#[derive(Debug, Default)]
pub(crate) struct Records {
    book: OnceLock<Book>,
    opened: Notify,
}

impl Records {
    pub(crate) fn open(&self, book: Book) {
        let _ = self.book.set(book);
        self.opened.notify_waiters();
    }

    pub(crate) fn get(&self) -> Option<&Book> {
        self.book.get()
    }

    /// The same for a call: an agent that has just started is given time to reach the store.
    async fn in_time(&self) -> Option<&Book> {
        let opened = self.opened.notified();
        tokio::pin!(opened);
        // From here on nothing is missed.
        opened.as_mut().enable();
        if self.book.get().is_none() {
            let _ = tokio::time::timeout(BOOK_PATIENCE, opened).await;
        }
        self.book.get()
    }
}

impl Agent {
    /// The node's network is somebody else's.
    pub(crate) fn only_observes(&self) -> bool {
        self.mode != AgentMode::Acts
    }
}

impl Services {
    /// For one call without an agent: the store is the one that the network configuration names.
    pub(crate) fn one_shot(state_folder: &Path) -> Services {
        Services::new(Source::OfCall, state_folder, Arc::new(Health::new()))
    }

    pub(crate) fn of_agent(agent: Agent, state_folder: &Path, health: Arc<Health>) -> Services {
        Services::new(Source::OfAgent(Box::new(agent)), state_folder, health)
    }

    fn new(records: Source, state_folder: &Path, health: Arc<Health>) -> Services {
        Services {
            records,
            queue: Queue::at(state_folder),
            fences: Fences::default(),
            health,
            kernel: OnceLock::new(),
            said: Mutex::default(),
            own_user: own_user(),
            calls: AtomicU64::new(0),
            calls_under_way: AtomicUsize::new(0),
        }
    }

    pub(crate) fn agent(&self) -> Option<&Agent> {
        match &self.records {
            Source::OfCall => None,
            Source::OfAgent(agent) => Some(agent),
        }
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.agent().map(|agent| &agent.journal)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn fences(&self) -> &Fences {
        &self.fences
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.health.metrics
    }

    pub(super) fn begin_call(&self) -> UnderWay<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.calls_under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// How many calls there were so far.
    pub(crate) fn calls_begun(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Besides root, whoever runs this program may call it.
    pub(crate) fn own_user(&self) -> u32 {
        self.own_user
    }

    /// Says something once, however many calls it is true of.
    pub(crate) fn say_once(&self, text: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.contains(&text) {
            return;
        }
        warn!("{text}");
        if said.len() >= SAID_MAX {
            said.clear();
        }
        said.insert(text);
    }

    /// The thread that does all kernel work.
    pub(crate) fn kernel(&self) -> Result<&Worker, HostError> {
        if self.kernel.get().is_none() {
            // Two that start one at the same time: the second is not used, and ends.
            let host = Host::here()?.telling(failpoint::hit_halfway);
            let _ = self.kernel.set(Worker::start_with(KERNEL_THREAD, host)?);
        }
        Ok(self.kernel.get().expect("it was set just now"))
    }

    /// Does something in the kernel, and waits for it.
    pub(crate) async fn in_kernel<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        self.kernel()?.run(work).await?
    }

    /// The same for a short step that a call cannot go on without. A call that is the only one does it on its own thread:
    /// to wake another up would take longer. Several share the work between threads.
    pub(super) async fn in_kernel_here<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        if self.is_lone_call() { self.kernel()?.run_here(work).await } else { self.kernel()?.run(work).await }
    }

    fn is_lone_call(&self) -> bool {
        self.calls_under_way.load(Ordering::Relaxed) == 1
    }

    /// The address book for a verb that may have to make a store.
    pub(super) async fn book(&self, netconf: &NetConf) -> Result<Book, CniError> {
        match &self.records {
            Source::OfCall => {
                records::open(&records::store_config(netconf)?, OpenMode::CreateIfMissing).await
            }
            Source::OfAgent(agent) => agent.book.in_time().await.cloned().ok_or_else(unreachable),
        }
    }

    /// The address book for a verb that has nothing to do without a store.
    pub(super) async fn existing_book(&self, netconf: &NetConf) -> Result<Found, CniError> {
        if let Source::OfAgent(_) = &self.records {
            return self.book(netconf).await.map(Found::Book);
        }
        let config = records::store_config(netconf)?;
        if let StoreConfig::Sqlite { path } = &config
            && !path.exists()
        {
            return Ok(Found::NoStore(format!("there is no store at {}", path.display())));
        }
        Ok(Found::Book(records::open(&config, OpenMode::Existing).await?))
    }

    /// The agent knows its node's name; otherwise the configuration says it.
    pub(crate) fn node_name(&self, netconf: &NetConf) -> Result<String, CniError> {
        match &self.records {
            Source::OfCall => node::name(netconf),
            Source::OfAgent(agent) => Ok(agent.node.clone()),
        }
    }

    /// The same where it does not matter why there is none.
    pub(crate) async fn existing_book_if_any(&self, netconf: &NetConf) -> Result<Option<Book>, CniError> {
        match self.existing_book(netconf).await? {
            Found::Book(book) => Ok(Some(book)),
            Found::NoStore(_) => Ok(None),
        }
    }

    /// What the runtime lists; `None` if it cannot be asked.
    pub(crate) async fn sandboxes(&self) -> Option<Sandboxes> {
        let runtime = self.agent()?.runtime.client()?;
        let answer = runtime.sandboxes().await;
        self.metrics().runtime_answers.store(i64::from(answer.is_ok()), Ordering::Relaxed);
        match answer {
            Ok(sandboxes) => Some(sandboxes),
            Err(error) => {
                warn!("the runtime says nothing: {error}");
                None
            }
        }
    }

    /// Removes links that were taken out of service: at once without an agent, behind the call with one.
    pub(super) async fn sweep(&self) {
        match self.agent() {
            Some(agent) => agent.sweep.notify_one(),
            None => {
                if let Err(error) = self.in_kernel(Host::sweep).await {
                    warn!("devices that are out of service stay behind: {error}");
                }
            }
        }
    }

    /// Notes an attachment. A state folder that was removed is made anew first; one that cannot be written is reported.
    pub(crate) fn remember(&self, entry: Entry) -> Result<(), CniError> {
        let Some(agent) = self.agent() else { return Ok(()) };
        let mut noted = agent.journal.put(entry.clone());
        if noted.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            noted = agent.state.restore(&agent.journal).and_then(|()| agent.journal.put(entry));
        }
        if let Err(error) = noted {
            let failure = CniError::broken("the journal cannot be written").because(&error);
            state::tell(self, Some(error));
            return Err(failure);
        }
        self.count_attachments();
        Ok(())
    }

    /// Forgets an attachment that is no more.
    pub(crate) fn forget(&self, sandbox: &Sandbox) -> Result<(), CniError> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal
            .remove(sandbox)
            .map_err(|error| CniError::broken("the journal cannot be written").because(&error))?;
        self.count_attachments();
        Ok(())
    }

    pub(crate) fn count_attachments(&self) {
        let count = self.journal().map_or(0, Journal::len);
        self.metrics().attachments.store(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(super) fn count_queued(&self) {
        self.metrics().dels_queued.fetch_add(1, Ordering::Relaxed);
    }
}

/// An address book, or why there is none.
#[derive(Debug)]
pub(super) enum Found {
    Book(Book),
    NoStore(String),
}

fn unreachable() -> CniError {
    CniError::new(code::TRY_LATER, "the agent has not reached the store yet")
}

fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").map_or(0, |status| status.uid())
}
