//! `plumb status`: one screen that answers whether the network works.

mod agents;
mod summary;
mod text;

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::doctor::{Examiner, open, rule};
use crate::cli::Global;
use crate::cli::status::{Format, Status};
use crate::connect;
use crate::failure::{Failure, Failures};

use summary::Summary;

/// Between two observations while it waits. Each reads all records, so not less.
const EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn run(global: &Global, status: &Status) -> Result<(), Failures> {
    let summary = match status.wait {
        None => observe(global, status).await,
        Some(seconds) => wait(global, status, Duration::from_secs_f64(seconds)).await,
    };
    let summary = summary.map_err(|failure| Failures::from(failure).unable())?;
    let text = match status.output {
        Format::Text => text::text(&summary),
        Format::Json => format!("{:#}\n", summary.json()),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    match summary.works() {
        true => Ok(()),
        false => Err(Failure::found().into()),
    }
}

async fn observe(global: &Global, status: &Status) -> Result<Summary, Failure> {
    let store = connect::select(global)?.config.to_string();
    let sources = open(global, &status.this_node, &[]).await?;
    let mut examiner = Examiner::new(&sources, rule(status.settle), doctor::Options { grace: doctor::GRACE });
    Ok(Summary::new(store, &examiner.run().await?))
}

/// The last observation, or why there is none.
async fn wait(global: &Global, status: &Status, patience: Duration) -> Result<Summary, Failure> {
    let deadline = Instant::now() + patience;
    let mut told = String::new();
    loop {
        let observed = observe(global, status).await;
        let left = deadline.saturating_duration_since(Instant::now());
        let why = match &observed {
            Ok(summary) if summary.works() => return observed,
            Ok(summary) => summary.problems.first().cloned().unwrap_or_default(),
            Err(failure) => failure.words(),
        };
        if left.is_zero() {
            return observed;
        }
        if why != told {
            eprintln!("waiting: {}", render::harmless(&why));
            told = why;
        }
        tokio::time::sleep(EVERY.min(left)).await;
    }
}
