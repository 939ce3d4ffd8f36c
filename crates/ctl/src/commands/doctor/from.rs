//! A look at what was collected: files and folders of whatever people paste.

use std::time::Instant;

use super::Examined;
use crate::cli::doctor::Doctor;
use crate::failure::Failure;

pub(super) fn examine(doctor: &Doctor) -> Result<Examined, Failure> {
    let start = Instant::now();
    let evidence = gather::of_files(&doctor.from).map_err(|error| Failure::of(&error))?;
    let loading = start.elapsed();
    let start = Instant::now();
    let report = doctor::diagnose_with(&evidence, doctor::checks::ALL, &super::live::options(doctor));
    if doctor.timings {
        eprintln!("timings: loading_ms={} analysis_ms={}", loading.as_millis(), start.elapsed().as_millis());
    }
    Ok(Examined { evidence, report })
}
