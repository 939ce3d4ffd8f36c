//! A look at what is alive: collect, analyse, and look a second time where something may just be coming or going.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use book::load::Progress;
use doctor::{Evidence, Options, Report, Settles, checks, diagnose_with};
use jiff::{SignedDuration, Timestamp};
use store::Store;

use super::{Examined, node};
use crate::cli::Global;
use crate::cli::doctor::{Doctor, ThisNode};
use crate::failure::Failure;
use crate::{connect, progress};

/// How long a store may take to answer at all. What it holds may take longer to read.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Whatever can be asked: the store, and nodes.
pub(in crate::commands) struct Sources {
    store: Result<Arc<dyn Store>, Failure>,
    nodes: Vec<node::Source>,
    /// Texts that somebody added. They are of one moment, and part of every look.
    texts: Evidence,
    /// Where the agents of nodes listen, by the node's name in lower case, as far as they have answered.
    agents: Mutex<BTreeMap<String, PathBuf>>,
    /// If nodes are to send packets: how to look at those who get them.
    probes: Option<Options>,
}

impl Sources {
    /// Fails if there is nothing at all to look at.
    pub(in crate::commands) async fn open(global: &Global, this_node: &ThisNode) -> Result<Sources, Failure> {
        let nodes = node::Source::find(this_node)?;
        match connect::open_for_reading(global).await {
            Err(failure) if nodes.is_empty() => Err(failure.hint(
                "name a store (ETCD_ENDPOINTS, SQLITE_PATH), or say which node this machine is (--node NAME)",
            )),
            store => {
                let (texts, agents) = (Evidence::default(), Mutex::default());
                Ok(Sources { store, nodes, texts, agents, probes: None })
            }
        }
    }

    /// Looks at these files and folders as well.
    pub(in crate::commands) fn with_texts(self, paths: &[PathBuf]) -> Result<Sources, Failure> {
        let begun_at = Timestamp::now();
        let mut texts = gather::of_files(paths).map_err(|error| Failure::of(&error))?;
        if texts.pods.is_some() {
            texts.pods_at = paths.iter().map(|path| made_at(path).unwrap_or(begun_at)).min();
        }
        Ok(Sources { texts, ..self })
    }

    /// Has nodes send packets, if that is wanted.
    pub(in crate::commands) fn with_probes(self, is_wanted: bool, options: Options) -> Sources {
        Sources { probes: is_wanted.then_some(options), ..self }
    }

    /// Everything as it is now.
    pub(super) async fn collect(&self) -> Result<Evidence, Failure> {
        let records = Progress::default();
        let of_store = async {
            match &self.store {
                Ok(store) => read_store(&**store, &records).await,
                Err(failure) => Ok(without_store(failure)),
            }
        };
        let of_nodes = self.of_nodes();
        let both = async { tokio::join!(of_store, of_nodes) };
        let (of_store, of_nodes) = progress::while_reading(&records, both).await;
        let mut evidence = match of_store {
            Ok(evidence) => evidence,
            Err(failure) if self.nodes.is_empty() => return Err(failure),
            // A node whose store is away is looked at all the same: it may be the reason.
            Err(failure) => without_store(&failure),
        };
        of_nodes.into_iter().for_each(|node| evidence.absorb(node));
        evidence.absorb(self.texts.clone());
        if let Some(options) = &self.probes {
            self.probe(&mut evidence, options).await;
        }
        // Pages and what was read out of them: a second look needs the room.
        host::give_back_memory();
        Ok(evidence)
    }

    /// The agents that have answered so far.
    pub(in crate::commands) fn agents(&self) -> BTreeMap<String, PathBuf> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(in crate::commands) fn store(&self) -> Result<&Arc<dyn Store>, &Failure> {
        self.store.as_ref()
    }

    /// What the nodes tell now.
    pub(in crate::commands) async fn of_nodes(&self) -> Vec<Evidence> {
        let asked = self.of_each(|source: node::Source| async move { source.collect().await }).await;
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

    /// Whether packets arrive, from every node that can be asked.
    async fn probe(&self, evidence: &mut Evidence, options: &Options) {
        let (addresses, left_out) = doctor::evidence::probe::targets(evidence, options);
        if left_out > 0 {
            evidence
                .unread
                .push(format!("no packets were sent to {left_out} more nodes: there are too many"));
        }
        let addresses: Arc<[std::net::IpAddr]> = addresses.into();
        let answers = self.of_each(move |source: node::Source| {
            let addresses = Arc::clone(&addresses);
            async move { source.probe(&addresses).await }
        });
        answers.await.into_iter().for_each(|(_, node)| evidence.absorb(node));
    }

    /// Asks all nodes at once.
    async fn of_each<F>(&self, ask: impl Fn(node::Source) -> F) -> Vec<(&node::Source, Evidence)>
    where
        F: Future<Output = Evidence> + Send + 'static,
    {
        let asking: Vec<_> = self.nodes.iter().map(|source| tokio::spawn(ask(source.clone()))).collect();
        let mut answers = Vec::new();
        for (source, node) in self.nodes.iter().zip(asking) {
            // It fails only if it panicked, which has been said by then.
            answers.extend(node.await.ok().map(|evidence| (source, evidence)));
        }
        answers
    }
}

/// When a file was written, or the newest of a folder; of a pipe nobody knows.
fn made_at(path: &Path) -> Option<Timestamp> {
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_dir() {
        let files = std::fs::read_dir(path).ok()?.filter_map(|entry| made_at(&entry.ok()?.path()));
        return files.min();
    }
    if !metadata.is_file() {
        return None;
    }
    metadata.modified().ok()?.try_into().ok()
}

/// Everything in the store. One that does not answer is not waited for as long as one that has much to say.
async fn read_store(store: &dyn Store, records: &Progress) -> Result<Evidence, Failure> {
    match tokio::time::timeout(STORE_PATIENCE, store.probe()).await {
        Ok(answered) => answered?,
        Err(_) => {
            let seconds = STORE_PATIENCE.as_secs();
            return Err(Failure::new(format!("the store did not answer within {seconds} s")));
        }
    }
    Ok(gather::of_store(store, records).await?)
}

fn without_store(failure: &Failure) -> Evidence {
    Evidence { unread: vec![format!("{STORE_UNREAD}{}", failure.words())], ..Evidence::default() }
}

pub(super) async fn examine(global: &Global, doctor: &Doctor) -> Result<Examined, Failure> {
    let sources = Sources::open(global, &doctor.this_node).await?.with_texts(&doctor.from)?;
    let sources = sources.with_probes(doctor.probe, options(doctor));
    examine_from(&sources, doctor).await
}

pub(super) async fn examine_from(sources: &Sources, doctor: &Doctor) -> Result<Examined, Failure> {
    let (examined, [loading, analysis]) = look(sources, doctor.settle, &options(doctor)).await?;
    if doctor.timings {
        eprintln!("timings: loading_ms={} analysis_ms={}", loading.as_millis(), analysis.as_millis());
    }
    Ok(examined)
}

/// How a line of what was not seen begins if the store could not be read.
pub(super) const STORE_UNREAD: &str = "the store could not be read: ";

/// Whether the records, of which most checks are, could not be judged.
pub(super) fn is_store_unread(report: &Report) -> bool {
    report.unseen.iter().any(|line| line.starts_with(STORE_UNREAD))
}

/// Looks, and a second time where something may just be coming or going; and how long loading and analysing took.
pub(in crate::commands) async fn look(
    sources: &Sources,
    settle: f64,
    options: &Options,
) -> Result<(Examined, [Duration; 2]), Failure> {
    let start = Instant::now();
    let mut evidence = sources.collect().await?;
    let mut loading = start.elapsed();
    let start = Instant::now();
    let mut report = diagnose_with(&evidence, checks::ALL, options);
    let mut analysis = start.elapsed();
    if may_be_churn(&report) {
        tokio::time::sleep(Duration::from_secs_f64(settle)).await;
        let start = Instant::now();
        let earlier = std::mem::replace(&mut evidence, sources.collect().await?);
        evidence.earlier = Some(Box::new(earlier));
        loading += start.elapsed();
        let start = Instant::now();
        report = diagnose_with(&evidence, checks::ALL, options);
        analysis = analysis.max(start.elapsed());
    }
    Ok((Examined { evidence, report }, [loading, analysis]))
}

/// How the operator wants it looked at.
pub(super) fn options(doctor: &Doctor) -> Options {
    Options { grace: SignedDuration::try_from_secs_f64(doctor.grace).unwrap_or(doctor::GRACE) }
}

/// Some of it is believed only if it is still so at a second look.
fn may_be_churn(report: &Report) -> bool {
    let settles = |code: &str| checks::find(code).is_some_and(|check| check.settles == Settles::InTwoLooks);
    report
        .findings
        .iter()
        .any(|finding| settles(finding.code) || finding.symptoms.iter().any(|symptom| settles(symptom.code)))
}
