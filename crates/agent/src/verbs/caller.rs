//! Whether the runtime still waits for the answer to a call.

use std::fmt;

/// The other end of a call. A runtime that loses patience kills its plugin, and an ADD that completes after that would have no owner.
pub(crate) struct Caller {
    is_waiting: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Caller {
    pub(crate) fn new(is_waiting: impl Fn() -> bool + Send + Sync + 'static) -> Caller {
        Caller { is_waiting: Box::new(is_waiting) }
    }

    /// For a process of its own: killing the plugin kills the call.
    pub(crate) fn same_process() -> Caller {
        Caller::new(|| true)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        (self.is_waiting)()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("is_waiting", &self.is_waiting()).finish()
    }
}
