//! A look at what is alive: collect, analyse, and look a second time where something may just be coming or going.

use std::sync::Arc;
use std::time::{Duration, Instant};

use book::load::Progress;
use doctor::{Evidence, Report, Settles, checks, diagnose};
use store::Store;

use super::{Examined, node};
use crate::cli::Global;
use crate::cli::doctor::{Doctor, ThisNode};
use crate::failure::Failure;
use crate::{connect, progress};

/// Whatever can be asked: the store, and this node.
pub(super) struct Sources {
    store: Result<Arc<dyn Store>, Failure>,
    node: Option<node::Source>,
}

impl Sources {
    /// Fails if there is nothing at all to look at.
    pub(super) async fn open(global: &Global, this_node: &ThisNode) -> Result<Sources, Failure> {
        let node = node::Source::find(this_node)?;
        let store = connect::open_for_reading(global).await;
        match (store, &node) {
            (Err(failure), None) => Err(failure),
            (store, _) => Ok(Sources { store, node }),
        }
    }

    /// Everything as it is now.
    pub(super) async fn collect(&self) -> Result<Evidence, Failure> {
        let records = Progress::default();
        let of_store = async {
            match &self.store {
                Ok(store) => gather::of_store(&**store, &records).await.map_err(Failure::from),
                Err(failure) => Ok(without_store(failure)),
            }
        };
        let of_node = async {
            match &self.node {
                Some(node) => node.collect().await,
                None => Evidence::default(),
            }
        };
        let both = async { tokio::join!(of_store, of_node) };
        let (of_store, of_node) = progress::while_reading(&records, both).await;
        let mut evidence = match (of_store, &self.node) {
            (Ok(evidence), _) => evidence,
            (Err(failure), None) => return Err(failure),
            // A node whose store is away is looked at all the same: it may be the reason.
            (Err(failure), Some(_)) => without_store(&failure),
        };
        evidence.absorb(of_node);
        Ok(evidence)
    }

    pub(super) fn store(&self) -> Result<&Arc<dyn Store>, &Failure> {
        self.store.as_ref()
    }

    pub(super) fn node(&self) -> Option<&node::Source> {
        self.node.as_ref()
    }
}

fn without_store(failure: &Failure) -> Evidence {
    Evidence {
        unread: vec![format!("the store was not looked at: {}", failure.words())],
        ..Evidence::default()
    }
}

pub(super) async fn examine(global: &Global, doctor: &Doctor) -> Result<Examined, Failure> {
    examine_from(&Sources::open(global, &doctor.this_node).await?, doctor).await
}

pub(super) async fn examine_from(sources: &Sources, doctor: &Doctor) -> Result<Examined, Failure> {
    let start = Instant::now();
    let mut evidence = sources.collect().await?;
    let mut loading = start.elapsed();
    let start = Instant::now();
    let mut report = diagnose(&evidence);
    let mut analysis = start.elapsed();
    if may_be_churn(&report) {
        tokio::time::sleep(Duration::from_secs_f64(doctor.settle)).await;
        let start = Instant::now();
        let earlier = std::mem::replace(&mut evidence, sources.collect().await?);
        evidence.earlier = Some(Box::new(earlier));
        loading += start.elapsed();
        let start = Instant::now();
        report = diagnose(&evidence);
        analysis = analysis.max(start.elapsed());
    }
    if doctor.timings {
        eprintln!("timings: loading_ms={} analysis_ms={}", loading.as_millis(), analysis.as_millis());
    }
    Ok(Examined { evidence, report })
}

/// Some of it is believed only if it is still so at a second look.
fn may_be_churn(report: &Report) -> bool {
    let settles = |code: &str| checks::find(code).is_some_and(|check| check.settles == Settles::InTwoLooks);
    report
        .findings
        .iter()
        .any(|finding| settles(finding.code) || finding.symptoms.iter().any(|symptom| settles(symptom.code)))
}
