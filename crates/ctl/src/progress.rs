//! Progress of long work, on stderr and only if that is a terminal.

use std::future::Future;
use std::time::Duration;

use book::load::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Fewer resources than this are done before anyone could read about it.
const WORTH_SHOWING: usize = 50;

pub(crate) fn bar(total: usize) -> ProgressBar {
    if total < WORTH_SHOWING {
        return ProgressBar::hidden();
    }
    // Draws on stderr, and nothing at all if that is no terminal.
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} resources, {eta} left");
    ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What takes less time is over before anyone could read about it.
const WORTH_WAITING: Duration = Duration::from_millis(500);
const REFRESH: Duration = Duration::from_millis(100);

/// Shows how many records have been read while something reads.
pub(crate) async fn while_reading<T>(progress: &Progress, reading: impl Future<Output = T>) -> T {
    let mut reading = std::pin::pin!(reading);
    if let Ok(read) = tokio::time::timeout(WORTH_WAITING, reading.as_mut()).await {
        return read;
    }
    // Draws on stderr, and nothing at all if that is no terminal.
    let style = ProgressStyle::with_template("{spinner} {pos} records read, {elapsed}");
    let bar =
        ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let mut ticks = tokio::time::interval(REFRESH);
    loop {
        tokio::select! {
            read = reading.as_mut() => {
                bar.finish_and_clear();
                return read;
            }
            _ = ticks.tick() => bar.set_position(progress.records() as u64),
        }
    }
}
