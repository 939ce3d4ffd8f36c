//! Carries out plans of repair, step by step, and takes them back.
//!
//! ```text
//!  Plan ─▶ agreed with a plan of right now ─▶ Repair ─▶ batches of records ─▶ one commit each, compare-and-swap
//!                                               │    └▶ work on nodes ─▶ their agents
//!                                               └─ History: what is begun (with its undo) before, what is done after
//! ```
//!
//! An edge crate. What is to be done was decided in `repair`; every edit states what it relies on. A process
//! that is killed leaves a history from which the next one goes on, or takes back.

mod history;
mod nodes;
mod pace;
mod records;
mod repair;
mod undo;

pub use history::{Ended, Failure, History, HistoryError, Summary, Told};
pub use nodes::{AgentNodes, Nodes};
pub use repair::{Happened, MendError, Outcome, Progress, Repair, StepOutcome};
