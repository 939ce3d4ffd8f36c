//! A look at what was collected: files and folders of whatever people paste.

use std::time::Instant;

use super::Examined;
use crate::cli::doctor::Doctor;
use crate::failure::Failure;

pub(super) fn examine(doctor: &Doctor) -> Result<Examined, Failure> {
    let start = Instant::now();
    let evidence = crate::texts::of_files(&doctor.from).map_err(|error| Failure::of(&error))?;
    if evidence.is_empty() {
        return Err(no_evidence(&evidence));
    }
    let loading = start.elapsed();
    let start = Instant::now();
    let report = doctor::diagnose_with(&evidence, doctor::checks::ALL, &super::live::options(doctor));
    if doctor.timings {
        eprintln!("timings: loading_ms={} analysis_ms={}", loading.as_millis(), start.elapsed().as_millis());
    }
    Ok(Examined { evidence, report })
}

/// A report that finds nothing would look like a clean bill.
fn no_evidence(evidence: &evidence::Evidence) -> Failure {
    const SHOWN: usize = 5;
    let mut message = "no usable evidence was found".to_owned();
    for unseen in evidence.unseen.iter().take(SHOWN) {
        message.push_str(&format!("\n  {unseen}"));
    }
    let more = evidence.unseen.len().saturating_sub(SHOWN);
    if more > 0 {
        message.push_str(&format!("\n  and {more} more"));
    }
    Failure::new(message).hint(
        "--from takes bundles of plumb collect, and the output of kubectl, calicoctl, ip and other tools as text",
    )
}
