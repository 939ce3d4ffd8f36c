//! `plumb doctor logs`: what happened to sandboxes, from the logs of kubelets, runtimes and plugins.

use doctor::timeline::Timeline;

use super::tell;
use crate::cli::doctor::{Format, Logs};
use crate::failure::{Failure, Failures};

pub(super) fn run(logs: &Logs) -> Result<(), Failures> {
    let has_episodes = show(logs).map_err(|failure| Failures::from(failure).unable())?;
    if has_episodes { Err(Failure::found().into()) } else { Ok(()) }
}

/// Whether anything went wrong.
fn show(logs: &Logs) -> Result<bool, Failure> {
    let evidence = gather::of_files(&logs.files).map_err(|error| Failure::of(&error))?;
    let Some(log) = &evidence.log else {
        return Err(Failure::usage("there is no line of a log in these files"));
    };
    let timeline = Timeline::of(log);
    let text = match logs.output.output {
        Format::Text => render::history_text(&timeline, &evidence.unread, &tell::style(&logs.output)),
        Format::Json => render::history_json(&timeline, &evidence.unread),
        Format::Html => render::html(&doctor::diagnose(&evidence), &evidence),
    };
    tell::write(&logs.output, &text)?;
    Ok(!timeline.episodes().is_empty())
}
