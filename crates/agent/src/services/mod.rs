//! What the verbs work with, and who provides it.
//!
//! A single call without an agent ([`OneShot`]) finds its store in the network configuration. An agent ([`Agent`]) has a store, a journal
//! and a runtime of its own. Both have what is in [`Common`].

mod agent;
mod common;
mod one_shot;

use std::ops::Deref;

use book::Book;
use host::Host;
use host::cri::Sandboxes;
use model::Sandbox;
use tracing::warn;

pub(crate) use agent::{Agent, AgentSetup};
pub(crate) use common::Common;
pub(crate) use one_shot::OneShot;

use crate::journal::{Entry, Journal};
use crate::verbs::{CniError, NetConf};

/// Who serves a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Services<'a> {
    OneShot(&'a OneShot),
    Agent(&'a Agent),
}

/// An address book, or why there is none.
#[derive(Debug)]
pub(crate) enum FoundBook {
    Book(Book),
    NoStore(String),
}

impl Deref for Services<'_> {
    type Target = Common;

    fn deref(&self) -> &Common {
        match self {
            Services::OneShot(one_shot) => one_shot,
            Services::Agent(agent) => agent,
        }
    }
}

impl<'a> Services<'a> {
    pub(crate) fn agent(self) -> Option<&'a Agent> {
        match self {
            Services::OneShot(_) => None,
            Services::Agent(agent) => Some(agent),
        }
    }

    pub(crate) fn journal(self) -> Option<&'a Journal> {
        self.agent().map(|agent| &agent.journal)
    }

    /// The address book for a verb that may have to create the store.
    pub(crate) async fn book(self, netconf: &NetConf) -> Result<Book, CniError> {
        match self {
            Services::OneShot(one_shot) => one_shot.book(netconf).await,
            Services::Agent(agent) => agent.book.wait().await,
        }
    }

    /// The address book for a verb that has nothing to do without a store.
    pub(crate) async fn existing_book(self, netconf: &NetConf) -> Result<FoundBook, CniError> {
        match self {
            Services::OneShot(one_shot) => one_shot.existing_book(netconf).await,
            Services::Agent(agent) => agent.book.wait().await.map(FoundBook::Book),
        }
    }

    /// The same where the reason does not matter.
    pub(crate) async fn existing_book_if_any(self, netconf: &NetConf) -> Result<Option<Book>, CniError> {
        match self.existing_book(netconf).await? {
            FoundBook::Book(book) => Ok(Some(book)),
            FoundBook::NoStore(_) => Ok(None),
        }
    }

    pub(crate) fn node_name(self, netconf: &NetConf) -> Result<String, CniError> {
        match self {
            Services::OneShot(one_shot) => one_shot.node_name(netconf),
            Services::Agent(agent) => Ok(agent.node.clone()),
        }
    }

    /// The runtime's list; `None` if there is no runtime to ask, or it does not answer.
    pub(crate) async fn sandboxes(self) -> Option<Sandboxes> {
        self.agent()?.sandboxes().await
    }

    /// Removes links that were taken out of service: at once without an agent, after the call with one.
    pub(crate) async fn sweep(self) {
        match self {
            Services::Agent(agent) => agent.sweep.notify_one(),
            Services::OneShot(one_shot) => {
                if let Err(error) = one_shot.in_kernel(Host::sweep).await {
                    warn!(%error, "cannot remove the devices that are out of service");
                }
            }
        }
    }

    /// Adds an attachment to the journal, if there is one.
    pub(crate) fn remember(self, entry: Entry) -> Result<(), CniError> {
        self.agent().map_or(Ok(()), |agent| agent.remember(entry))
    }

    /// Removes an attachment from the journal, if there is one.
    pub(crate) fn forget(self, sandbox: &Sandbox) -> Result<(), CniError> {
        self.agent().map_or(Ok(()), |agent| agent.forget(sandbox))
    }
}
