//! A look at what is alive: collect, analyse, and look a second time where something may just be coming or going.

use std::sync::Arc;
use std::time::{Duration, Instant};

use book::load::Progress;
use doctor::{Evidence, Report, Settles, checks, diagnose};
use store::Store;

use super::Examined;
use crate::cli::Global;
use crate::cli::doctor::Doctor;
use crate::failure::Failure;
use crate::{connect, progress};

/// Whatever can be asked.
pub(super) struct Sources {
    store: Arc<dyn Store>,
}

impl Sources {
    pub(super) async fn open(global: &Global) -> Result<Sources, Failure> {
        Ok(Sources { store: connect::open_for_reading(global).await? })
    }

    /// Everything as it is now.
    pub(super) async fn collect(&self) -> Result<Evidence, Failure> {
        let records = Progress::default();
        Ok(progress::while_reading(&records, gather::of_store(&*self.store, &records)).await?)
    }
}

pub(super) async fn examine(global: &Global, doctor: &Doctor) -> Result<Examined, Failure> {
    examine_from(&Sources::open(global).await?, doctor).await
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
