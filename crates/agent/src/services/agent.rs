//! The agent of a node: what it keeps for as long as it runs.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use book::Book;
use host::cri::Sandboxes;
use model::{AgentMode, Sandbox};
use plan::between::Protected;
use tokio::sync::Notify;
use tracing::warn;

use super::Common;
use crate::between;
use crate::endpoints::Endpoints;
use crate::enforce::Enforcement;
use crate::health::Health;
use crate::journal::{Entry, Journal};
use crate::namespaces::Namespaces;
use crate::runtime::Runtime;
use crate::state::{self, State};
use crate::verbs::{CniError, code};

/// How long a call waits for a store that was not reached since the agent's start.
const STORE_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Agent {
    common: Common,
    pub(crate) node: String,
    pub(crate) mode: AgentMode,
    pub(crate) book: AgentBook,
    pub(crate) runtime: Runtime,
    pub(crate) endpoints: Endpoints,
    pub(crate) namespaces: Namespaces,
    pub(crate) enforcement: Enforcement,
    /// There are links to remove.
    pub(crate) sweep: Notify,
    pub(crate) journal: Journal,
    /// Another program changed our nftables table, or our rules have just been loaded.
    pub(crate) rules_touched: Notify,
    pub(crate) state: State,
    /// Addresses that no pod may have, as far as the records are cached.
    pub(crate) protected: RwLock<Protected>,
    /// The records that decide about routes to other nodes, once they are followed.
    pub(crate) routes: OnceLock<Arc<between::Cache>>,
    /// BIRD's control socket, if there must be one.
    pub(crate) bird_socket: Option<PathBuf>,
}

impl Deref for Agent {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// What an agent is started with.
#[derive(Debug)]
pub(crate) struct AgentSetup<'a> {
    pub(crate) node: String,
    pub(crate) mode: AgentMode,
    pub(crate) runtime: Runtime,
    pub(crate) journal: Journal,
    pub(crate) state: State,
    pub(crate) state_dir: &'a Path,
    pub(crate) bird_socket: Option<PathBuf>,
}

impl Agent {
    pub(crate) fn new(setup: AgentSetup<'_>, health: Arc<Health>) -> Agent {
        let AgentSetup { node, mode, runtime, journal, state, state_dir, bird_socket } = setup;
        let agent = Agent {
            common: Common::new(state_dir, health),
            enforcement: Enforcement::new(&node),
            node,
            mode,
            book: AgentBook::default(),
            runtime,
            endpoints: Endpoints::default(),
            namespaces: Namespaces::default(),
            sweep: Notify::new(),
            journal,
            rules_touched: Notify::new(),
            state,
            protected: RwLock::default(),
            routes: OnceLock::new(),
            bird_socket,
        };
        agent.count_attachments();
        agent
    }

    /// Another program provides this node's network.
    pub(crate) fn only_observes(&self) -> bool {
        self.mode != AgentMode::Acts
    }

    /// The runtime's list; `None` if there is no runtime to ask, or it does not answer.
    pub(crate) async fn sandboxes(&self) -> Option<Sandboxes> {
        let runtime = self.runtime.client()?;
        let answer = runtime.sandboxes().await;
        self.metrics().runtime_answers.set_flag(answer.is_ok());
        answer.inspect_err(|error| warn!(%error, "the container runtime did not answer")).ok()
    }

    /// Adds an attachment to the journal. A state directory that was removed is recreated first; one that cannot be written is reported.
    pub(crate) fn remember(&self, entry: Entry) -> Result<(), CniError> {
        self.enforcement.attach(&entry);
        let mut written = self.journal.put(entry.clone());
        if written.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            written = self.state.restore(&self.journal).and_then(|()| self.journal.put(entry));
        }
        if let Err(error) = written {
            let failure = CniError::internal("cannot write the journal").because(&error);
            state::report(self, Some(error));
            return Err(failure);
        }
        self.count_attachments();
        Ok(())
    }

    /// Removes an attachment from the journal.
    pub(crate) fn forget(&self, sandbox: &Sandbox) -> Result<(), CniError> {
        if let Some(entry) = self.journal.get(sandbox) {
            self.enforcement.detach(entry.attachment.device.as_str());
        }
        self.journal
            .remove(sandbox)
            .map_err(|error| CniError::internal("cannot write the journal").because(&error))?;
        self.count_attachments();
        Ok(())
    }

    fn count_attachments(&self) {
        self.metrics().attachments.set(self.journal.len());
    }
}

/// The agent's address book, which is missing until the store was reached.
#[derive(Debug, Default)]
pub(crate) struct AgentBook {
    book: OnceLock<Book>,
    opened: Notify,
}

impl AgentBook {
    pub(crate) fn open(&self, book: Book) {
        let _ = self.book.set(book);
        self.opened.notify_waiters();
    }

    pub(crate) fn get(&self) -> Option<&Book> {
        self.book.get()
    }

    /// The same for background work, which tries again later.
    pub(crate) fn get_or_fail(&self) -> Result<&Book, CniError> {
        self.get().ok_or_else(|| CniError::new(code::TRY_LATER, "the agent has not reached the store yet"))
    }

    /// The same for a call: an agent that has just started is given time to reach the store.
    pub(super) async fn wait(&self) -> Result<Book, CniError> {
        let opened = self.opened.notified();
        tokio::pin!(opened);
        // From here on no notification is missed.
        opened.as_mut().enable();
        if self.book.get().is_none() {
            let _ = tokio::time::timeout(STORE_WAIT, opened).await;
        }
        self.get_or_fail().cloned()
    }
}
