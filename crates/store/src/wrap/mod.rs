//! Stores around a store, for proofs and measurements: one that writes step by step, one that counts, one that fails, one that
//! translates values.
//!
//! They can be put around one another. Round trips are counted where the [`CountingStore`] stands: inside a
//! [`StepwiseStore`] each change of a commit is one, outside the whole commit is.

mod counting;
mod failing;
mod stepwise;
mod translating;

pub use counting::{CountingStore, Counts};
pub use failing::{FailingStore, Failure};
pub use stepwise::StepwiseStore;
pub use translating::{TranslatingStore, Translation};
