//! Who asked, and whether anybody still waits for the answer.

use std::fmt;

/// Whoever waits for a call's answer. A runtime that loses patience kills its plugin: an ADD that is finished after
/// that would belong to nobody.
pub(crate) struct Caller {
    waits: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Caller {
    pub(crate) fn new(waits: impl Fn() -> bool + Send + Sync + 'static) -> Caller {
        Caller { waits: Box::new(waits) }
    }

    /// For a process of its own: when the plugin is killed, so is this.
    pub(crate) fn same_process() -> Caller {
        Caller::new(|| true)
    }

    pub(crate) fn waits(&self) -> bool {
        (self.waits)()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("waits", &self.waits()).finish()
    }
}
