//! Progress of long work, on stderr and only if that is a terminal.

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
