//! Simulated processes on a simulated store: many interleavings, crashes, and a proof that nothing was lost.
//!
//! There is no clock and no thread. A run is a number of steps; in each step the scheduler picks one process by
//! the seed and lets it go on to its next pause, or crashes it there. The same seed on the same store gives the
//! same run, which the trace's hash shows.
//!
//! * `processes`: what runs: writers, watchers, auditors.
//! * `observed`: their only way to the store. Every answer is held against the ledger.
//! * `ledger`: what the store has said it did, and so what it must show from then on.
//! * `scheduler`: who runs when, and who crashes.
//!
//! Beside that, [`cluster`] and [`kubernetes`] make up the records of whole clusters, for measurements.
//!
//! The store must answer within the call, as [`store::MemoryStore`] does: an answer that another process could
//! overtake would be judged against the wrong moment.

pub mod cluster;
pub mod kubernetes;
mod ledger;
mod observed;
mod processes;
mod rng;
mod scheduler;
mod trace;

use std::sync::Arc;

use store::Store;

pub use ledger::{Rule, Violation};
pub use scheduler::Failure;

/// What to simulate. Everything that happens follows from this and from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub seed: u64,
    /// How often a process is picked before the calm at the end.
    pub steps: u64,
    pub writers: usize,
    pub watchers: usize,
    pub auditors: usize,
    /// How many records of each kind the writers fight over. Few make many conflicts.
    pub counters: usize,
    /// Of a thousand steps, how many crash the process that was picked.
    pub crashes_per_mille: u64,
    /// Whether the store may forget history while somebody reads it. If not, saying so is a fault.
    pub history_may_go: bool,
}

impl Options {
    pub fn new(seed: u64, steps: u64) -> Options {
        Options {
            seed,
            steps,
            writers: 4,
            watchers: 3,
            auditors: 1,
            counters: 3,
            crashes_per_mille: 20,
            history_may_go: false,
        }
    }
}

/// A run in which every rule was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub accepted: u64,
    pub refused: u64,
    pub events: u64,
    pub lists: u64,
    pub crashes: u64,
    pub histories_gone: u64,
    /// Equal for equal runs.
    pub trace_hash: u64,
}

/// Runs the simulation: first trouble, then calm, in which every watcher must arrive at what the store lists.
pub fn run(store: Arc<dyn Store>, options: &Options) -> Result<Outcome, Box<Failure>> {
    scheduler::Scheduler::new(store, options)?.run()
}
