//! `plumb doctor logs`: what happened to sandboxes, from the logs of kubelets, runtimes and plugins.

use doctor::Report;
use doctor::timeline::Timeline;

use super::{tell, verdict};
use crate::cli::doctor::{Format, Logs};
use crate::failure::{Failure, Failures};

pub(super) fn run(logs: &Logs) -> Result<(), Failures> {
    let report = show(logs).map_err(|failure| Failures::from(failure).unable())?;
    verdict(&report, logs.output.fail_on)
}

fn show(logs: &Logs) -> Result<Report, Failure> {
    let evidence = crate::texts::of_files(&logs.files).map_err(|error| Failure::of(&error))?;
    let Some(log) = &evidence.log else {
        return Err(Failure::usage("these files contain no log lines"));
    };
    let report = doctor::diagnose_logs(&evidence);
    let text = match logs.output.output {
        Format::Text => render::history_text(&report, &Timeline::of(log), &tell::style(&logs.output)),
        Format::Json => render::history_json(&report, &Timeline::of(log)),
        Format::Html => render::html(&report, &evidence),
    };
    tell::write(&logs.output, &text)?;
    Ok(report)
}
