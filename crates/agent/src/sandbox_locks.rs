//! Per-sandbox locks: one call at a time for each container, so that two calls of one sandbox never undo each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::{HandleId, Sandbox};
use tokio::sync::OwnedMutexGuard;

/// More than a node has calls at the same time.
const LOCKS_MANY: usize = 1000;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// All attachments of a container share its IPAM handle, so they share the lock, too.
#[derive(Debug, Default)]
pub(crate) struct SandboxLocks {
    locks: Mutex<HashMap<HandleId, Lock>>,
}

/// A lock that is held. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct SandboxLock<'a> {
    locks: &'a SandboxLocks,
    handle: HandleId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl SandboxLocks {
    /// Waits until no other call holds the lock of this container.
    pub(crate) async fn acquire(&self, sandbox: &Sandbox) -> SandboxLock<'_> {
        let handle = sandbox.handle();
        let lock = {
            let mut locks = self.locks();
            if locks.len() >= LOCKS_MANY {
                // Left over from waiters that were cancelled.
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            locks.entry(handle.clone()).or_default().clone()
        };
        SandboxLock { locks: self, handle, guard: Some(lock.lock_owned().await) }
    }

    /// Whether a call holds this container's lock, or waits for it.
    pub(crate) fn is_busy(&self, sandbox: &Sandbox) -> bool {
        self.locks().get(&sandbox.handle()).is_some_and(|lock| Arc::strong_count(lock) > 1)
    }

    /// The handles of all containers whose lock is held or waited for.
    pub(crate) fn busy(&self) -> Vec<HandleId> {
        let locks = self.locks();
        let busy = locks.iter().filter(|(_, lock)| Arc::strong_count(lock) > 1);
        busy.map(|(handle, _)| handle.clone()).collect()
    }

    fn locks(&self) -> std::sync::MutexGuard<'_, HashMap<HandleId, Lock>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SandboxLock<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut locks = self.locks.locks();
        // Waiters count as well, so the last one removes it.
        if locks.get(&self.handle).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(container: &str, interface: &str) -> Sandbox {
        Sandbox::new("net", container, interface).unwrap()
    }

    #[tokio::test]
    async fn one_call_per_container_and_no_lock_is_left_over() {
        let locks = Arc::new(SandboxLocks::default());
        let first = locks.acquire(&sandbox("a", "eth0")).await;
        let other = locks.acquire(&sandbox("b", "eth0")).await;
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { drop(locks.acquire(&sandbox("a", "net1")).await) }
        });
        while Arc::strong_count(&locks.locks()["net.a"]) < 3 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished() && locks.is_busy(&sandbox("a", "eth0")));
        assert_eq!(locks.busy().len(), 2);
        drop(first);
        waiting.await.unwrap();
        drop(other);
        assert!(locks.locks().is_empty());
        assert!(!locks.is_busy(&sandbox("a", "eth0")) && locks.busy().is_empty());
    }
}
