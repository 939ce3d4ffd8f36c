//! `plumb doctor --watch`: the whole report first, then only what changes.

use std::io::Write as _;
use std::time::Duration;

use doctor::Report;
use jiff::Timestamp;
use render::Changes;

use super::live::{self, Examiner};
use super::{Examined, tell};
use crate::cli::Global;
use crate::cli::doctor::{Doctor, Format};
use crate::failure::{Failure, Failures};

/// Observes until it is interrupted, or as often as was asked for.
pub(super) async fn run(global: &Global, doctor: &Doctor) -> Result<Report, Failures> {
    if doctor.output.output == Format::Html || doctor.output.out.is_some() {
        return Err(Failure::usage("--watch writes only text or json, and only to stdout").into());
    }
    let sources = live::open_for(global, doctor).await?;
    let mut examiner = Examiner::new(&sources, live::rule(doctor.settle), live::options(doctor));
    let mut examined = examiner.run().await?;
    live::note_timings(doctor, &examiner);
    match doctor.output.output {
        Format::Json => tell_changes(doctor, &Report::default(), &examined)?,
        _ => tell::tell(&doctor.output, &examined)?,
    }
    let mut reports = 1;
    while doctor.looks.is_none_or(|most| reports < most) {
        examiner.next_round(Duration::from_secs_f64(doctor.every));
        let next = tokio::select! {
            next = examiner.run() => next?,
            _ = tokio::signal::ctrl_c() => break,
        };
        tell_changes(doctor, &examined.report, &next)?;
        examined = next;
        reports += 1;
    }
    Ok(examined.report)
}

fn tell_changes(doctor: &Doctor, before: &Report, now: &Examined) -> Result<(), Failure> {
    let changes = Changes::between(before, &now.report);
    let at = now.evidence.taken_at.unwrap_or_else(Timestamp::now);
    let text = match doctor.output.output {
        Format::Json => changes.json(at),
        _ => changes.text(at, &tell::style_of_stdout(doctor.output.all)),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
