//! `plumb doctor --watch`: the whole report first, then only what changes.

use std::io::Write as _;
use std::time::Duration;

use doctor::{Report, checks, diagnose_with};
use jiff::Timestamp;
use render::Changes;

use super::live::Sources;
use super::{Examined, tell};
use crate::cli::Global;
use crate::cli::doctor::{Doctor, Format};
use crate::failure::{Failure, Failures};

/// Looks until it is interrupted, or as often as was asked for.
pub(super) async fn run(global: &Global, doctor: &Doctor) -> Result<Report, Failures> {
    if doctor.output.output == Format::Html || doctor.output.out.is_some() {
        return Err(
            Failure::usage("--watch tells what changes line by line, as text or json on stdout").into()
        );
    }
    let sources = Sources::open(global, &doctor.this_node).await?;
    let sources = sources.with_probes(doctor.probe, super::live::options(doctor));
    let mut examined = super::live::examine_from(&sources, doctor).await?;
    match doctor.output.output {
        Format::Json => tell_changes(doctor, &Report::default(), &examined)?,
        _ => tell::tell(&doctor.output, &examined)?,
    }
    let mut looks = 1;
    while doctor.looks.is_none_or(|most| looks < most) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(doctor.every)) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
        examined = look_again(&sources, doctor, examined).await?;
        looks += 1;
    }
    Ok(examined.report)
}

/// The look before is the earlier one of this: what lasts for two of them is told.
async fn look_again(sources: &Sources, doctor: &Doctor, before: Examined) -> Result<Examined, Failure> {
    let mut evidence = sources.collect().await?;
    let mut earlier = before.evidence;
    earlier.earlier = None;
    evidence.earlier = Some(Box::new(earlier));
    let report = diagnose_with(&evidence, checks::ALL, &super::live::options(doctor));
    let examined = Examined { evidence, report };
    tell_changes(doctor, &before.report, &examined)?;
    Ok(examined)
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
