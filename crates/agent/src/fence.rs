//! One call at a time for each container: two calls of one sandbox never undo each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::Sandbox;
use tokio::sync::OwnedMutexGuard;

/// More than a node has calls at once.
const GATES_MANY: usize = 1000;

type Gate = Arc<tokio::sync::Mutex<()>>;

/// All attachments of a container share its IPAM handle, so they share the fence, too.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    gates: Mutex<HashMap<String, Gate>>,
}

/// Dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Fenced<'a> {
    fences: &'a Fences,
    handle: String,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Fences {
    /// Waits until nobody else works on this container.
    pub(crate) async fn enter(&self, sandbox: &Sandbox) -> Fenced<'_> {
        let handle = sandbox.handle();
        let gate = {
            let mut gates = self.gates();
            if gates.len() >= GATES_MANY {
                // Left by those who stopped waiting.
                gates.retain(|_, gate| Arc::strong_count(gate) > 1);
            }
            gates.entry(handle.clone()).or_default().clone()
        };
        Fenced { fences: self, handle, guard: Some(gate.lock_owned().await) }
    }

    /// Whether somebody works on this container, or waits to.
    pub(crate) fn is_busy(&self, sandbox: &Sandbox) -> bool {
        self.gates().get(&sandbox.handle()).is_some_and(|gate| Arc::strong_count(gate) > 1)
    }

    /// Containers that somebody works on, or waits to, by their handles.
    pub(crate) fn busy(&self) -> Vec<String> {
        let gates = self.gates();
        let busy = gates.iter().filter(|(_, gate)| Arc::strong_count(gate) > 1);
        busy.map(|(handle, _)| handle.clone()).collect()
    }

    fn gates(&self) -> std::sync::MutexGuard<'_, HashMap<String, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fenced<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut gates = self.fences.gates();
        // Those who wait hold it as well; the last one takes it away.
        if gates.get(&self.handle).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            gates.remove(&self.handle);
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
    async fn one_container_at_a_time_and_nothing_is_kept() {
        let fences = Arc::new(Fences::default());
        let first = fences.enter(&sandbox("a", "eth0")).await;
        let other = fences.enter(&sandbox("b", "eth0")).await;
        let waiting = tokio::spawn({
            let fences = fences.clone();
            async move { drop(fences.enter(&sandbox("a", "net1")).await) }
        });
        while Arc::strong_count(&fences.gates()["net.a"]) < 3 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished() && fences.is_busy(&sandbox("a", "eth0")));
        assert_eq!(fences.busy().len(), 2);
        drop(first);
        waiting.await.unwrap();
        drop(other);
        assert!(fences.gates().is_empty());
        assert!(!fences.is_busy(&sandbox("a", "eth0")) && fences.busy().is_empty());
    }
}
