//! Outages of the past, replayed with the real programs: what happened, what was found, in numbers. A replay
//! fails if anything is not as it should be.

mod leaked_endpoints;
mod pinger;
mod stale_delete;
mod state;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

pub use leaked_endpoints::replay as leaked_endpoints;
pub use stale_delete::replay as stale_delete;

/// Generous: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Looks again and again until it is so.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("waited {} s in vain for {what}", PATIENCE.as_secs()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
