//! Everything that can be observed live: the store, and nodes through their agents or directly.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use book::load::Progress;
use evidence::{Evidence, Unseen};
use host::cri::RuntimeClient;
use model::NodeName;
use model::text::on_one_line;
use store::kube::KubeObjects;
use store::{Store, StoreError};

use crate::{NodeSources, agent, kubernetes};

/// How long a store may take to answer at all. What it holds may take longer to read.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Which addresses nodes are to send packets to, and how many nodes are not among them.
pub type ProbeTargets = dyn Fn(&Evidence) -> (Vec<IpAddr>, usize) + Send + Sync;

/// Who reports about a node.
#[derive(Clone, Debug)]
pub enum NodeSource {
    /// Its agent, at this socket.
    Agent(PathBuf),
    /// This machine is the node.
    Machine { name: NodeName, runtime: Option<RuntimeClient> },
}

/// The store, and nodes.
pub struct LiveSources {
    /// Or why it cannot be opened.
    store: Result<Arc<dyn Store>, String>,
    nodes: Vec<NodeSource>,
    /// Kubernetes, if another store keeps the records.
    kubernetes: Option<KubeObjects>,
    /// Texts that were added. They are of one moment, and part of every observation.
    texts: Evidence,
    /// Where the agents of nodes listen, by the node's name, as far as they have answered.
    agents: Mutex<BTreeMap<NodeName, PathBuf>>,
    probes: Option<Box<ProbeTargets>>,
}

/// Why nothing could be collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("{0}")]
    NoStore(String),
    #[error("the store did not answer within {} s", STORE_TIMEOUT.as_secs())]
    SilentStore,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LiveSources {
    pub fn new(store: Result<Arc<dyn Store>, String>, nodes: Vec<NodeSource>) -> LiveSources {
        let (texts, agents) = (Evidence::default(), Mutex::default());
        LiveSources { store, nodes, kubernetes: None, texts, agents, probes: None }
    }

    /// Asks this cluster for its pods and nodes, too. Not needed where it keeps the store.
    #[must_use]
    pub fn with_kubernetes(self, kubernetes: Option<KubeObjects>) -> LiveSources {
        LiveSources { kubernetes, ..self }
    }

    /// Adds these texts to every observation.
    #[must_use]
    pub fn with_texts(self, texts: Evidence) -> LiveSources {
        LiveSources { texts, ..self }
    }

    /// Has nodes send packets to these targets.
    #[must_use]
    pub fn with_probes(self, targets: Option<Box<ProbeTargets>>) -> LiveSources {
        LiveSources { probes: targets, ..self }
    }

    /// Everything as it is now.
    pub async fn collect(&self, records: &Progress) -> Result<Evidence, CollectError> {
        let (of_store, of_nodes, of_kubernetes) =
            tokio::join!(self.of_store(records), self.of_nodes(), self.of_kubernetes(records));
        let mut evidence = match of_store {
            Ok(evidence) => evidence,
            Err(error) if self.nodes.is_empty() => return Err(error),
            // A node whose store is away is observed all the same: it may be the reason.
            Err(error) => {
                let unseen = vec![Unseen::Store { why: error.words() }];
                Evidence { unseen, ..Evidence::default() }
            }
        };
        of_nodes.into_iter().for_each(|node| evidence.absorb(node));
        let of_kubernetes = kubernetes::of_this_cluster(of_kubernetes, &evidence);
        evidence.absorb(of_kubernetes);
        let texts = self.texts_beside(&evidence);
        evidence.absorb(texts);
        if let Some(targets) = &self.probes {
            self.probe(&mut evidence, targets).await;
        }
        // Pages and what was read out of them: another observation needs the room.
        host::give_back_memory();
        Ok(evidence)
    }

    /// The agents that have answered so far.
    pub fn agents(&self) -> BTreeMap<NodeName, PathBuf> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store, or why there is none.
    pub fn store(&self) -> Result<&Arc<dyn Store>, &str> {
        self.store.as_ref().map_err(String::as_str)
    }

    /// What the nodes report now.
    pub async fn of_nodes(&self) -> Vec<Evidence> {
        let asked = self.of_each(|source: NodeSource| async move { source.collect().await }).await;
        let mut collected = Vec::new();
        for (source, evidence) in asked {
            if let Some(socket) = source.socket() {
                let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
                agents.extend(evidence.nodes.keys().map(|name| (name.clone(), socket.to_owned())));
            }
            collected.push(evidence);
        }
        collected
    }

    /// Pods and nodes, whether Kubernetes keeps the store or is asked beside it. For a bundle, where the records are as they are.
    pub async fn witnesses(&self, progress: &Progress) -> Evidence {
        match self.store.as_ref().ok().and_then(|store| store.objects()) {
            Some(objects) => kubernetes::witnesses(&objects, progress).await,
            None => self.of_kubernetes(progress).await,
        }
    }

    /// Pods and nodes of a cluster that is asked beside the store.
    async fn of_kubernetes(&self, progress: &Progress) -> Evidence {
        match &self.kubernetes {
            None => Evidence::default(),
            Some(objects) => kubernetes::witnesses(objects, progress).await,
        }
    }

    /// The texts, without lists that were read live: those are newer, and whole. When it is now, no text says: its times may be any.
    fn texts_beside(&self, live: &Evidence) -> Evidence {
        let mut texts = Evidence { taken_at: None, ..self.texts.clone() };
        if live.pods.is_some() {
            (texts.pods, texts.pods_at, texts.partial.pods) = (None, None, false);
        }
        if live.kube_nodes.is_some() {
            (texts.kube_nodes, texts.partial.kube_nodes) = (None, false);
        }
        texts
    }

    /// Everything in the store. One that does not answer is not waited for as long as one that holds much.
    async fn of_store(&self, records: &Progress) -> Result<Evidence, CollectError> {
        let store = self.store.as_ref().map_err(|why| CollectError::NoStore(why.clone()))?;
        let answered = tokio::time::timeout(STORE_TIMEOUT, store.probe()).await;
        answered.map_err(|_| CollectError::SilentStore)??;
        Ok(crate::of_store(&**store, records).await?)
    }

    /// Whether packets arrive, from every node that can be asked.
    async fn probe(&self, evidence: &mut Evidence, targets: &ProbeTargets) {
        let (addresses, skipped) = targets(evidence);
        if skipped > 0 {
            evidence.unseen.push(Unseen::NodesWithoutPackets(skipped));
        }
        let addresses: Arc<[IpAddr]> = addresses.into();
        let answers = self.of_each(move |source: NodeSource| {
            let addresses = Arc::clone(&addresses);
            async move { source.probe(&addresses).await }
        });
        answers.await.into_iter().for_each(|(_, node)| evidence.absorb(node));
    }

    /// Asks all nodes at once.
    async fn of_each<F>(&self, ask: impl Fn(NodeSource) -> F) -> Vec<(&NodeSource, Evidence)>
    where
        F: Future<Output = Evidence> + Send + 'static,
    {
        let asking: Vec<_> = self.nodes.iter().map(|source| tokio::spawn(ask(source.clone()))).collect();
        let mut answers = Vec::new();
        for (source, node) in self.nodes.iter().zip(asking) {
            // It fails only if it panicked, which has been reported by then.
            answers.extend(node.await.ok().map(|evidence| (source, evidence)));
        }
        answers
    }
}

impl CollectError {
    /// What failed and why, with what to do about it.
    fn words(&self) -> String {
        match self {
            CollectError::Store(error) => kubernetes::with_hint(error),
            other => on_one_line(other),
        }
    }
}

impl fmt::Debug for LiveSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSources").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl NodeSource {
    fn socket(&self) -> Option<&Path> {
        match self {
            NodeSource::Agent(socket) => Some(socket),
            NodeSource::Machine { .. } => None,
        }
    }

    /// What it reports now. That it could not be asked is evidence, too.
    async fn collect(&self) -> Evidence {
        match self {
            NodeSource::Agent(socket) => agent::ask(socket).await.unwrap_or_else(|error| {
                let unseen = vec![Unseen::UnknownNode { why: on_one_line(&error) }];
                Evidence { unseen, ..Evidence::default() }
            }),
            NodeSource::Machine { name, runtime } => {
                let (name, runtime) = (name.clone(), runtime.clone());
                crate::of_node(NodeSources { name, runtime, ..NodeSources::default() }).await
            }
        }
    }

    /// Sends packets from there, and reports what came back.
    async fn probe(&self, addresses: &[IpAddr]) -> Evidence {
        match self {
            NodeSource::Agent(socket) => agent::probe(socket, addresses).await.unwrap_or_else(|error| {
                let unseen = vec![Unseen::NoPackets { why: on_one_line(&error) }];
                Evidence { unseen, ..Evidence::default() }
            }),
            NodeSource::Machine { name, .. } => crate::probe::of_node(name.as_str(), addresses).await,
        }
    }
}
