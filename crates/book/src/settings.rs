//! How a book is to behave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// Settings of a [`crate::Book`].
#[derive(Clone)]
pub struct Settings {
    /// How long an operation goes on when others keep winning the races for the same records.
    pub patience: Duration,
    /// Refuse to assign, release, claim and repair while an operator has locked the store for a migration, and notice
    /// a lock that comes in between. Tools that work on a locked store turn this off.
    pub heeds_lock: bool,
    /// Of a book that follows a node on a store without transactions: how long a claim or release of one of the node's blocks
    /// must stand half done before it is put right, and how often to look.
    pub tend_every: Duration,
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            patience: Duration::from_secs(30),
            heeds_lock: true,
            tend_every: Duration::from_secs(60),
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("patience", &self.patience)
            .field("heeds_lock", &self.heeds_lock)
            .field("tend_every", &self.tend_every)
            .finish_non_exhaustive()
    }
}
