//! What a single call and an agent both have: the queue, the locks, the kernel thread, the counters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use host::{Host, HostError, Worker};
use store::kube::{KubeConfig, KubeObjects};
use tracing::warn;

use crate::del_queue::DelQueue;
use crate::failpoint;
use crate::health::{Health, Metrics};
use crate::sandbox_locks::SandboxLocks;

const KERNEL_THREAD: &str = "kernel";
/// How many warnings are remembered. Forgetting them only means that one is logged again.
const WARNINGS_MAX: usize = 1000;
/// A node's networks are of one cluster, under its old and its new credentials at most.
const SERVERS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) queue: DelQueue,
    pub(crate) locks: SandboxLocks,
    pub(crate) health: Arc<Health>,
    /// Started when it is first needed.
    kernel: OnceLock<Worker>,
    /// Warnings that were logged and are not repeated for every pod.
    logged: Mutex<BTreeSet<String>>,
    /// Profiles of networks: whether they exist, as earlier calls found out.
    profiles: Mutex<BTreeMap<String, bool>>,
    /// API servers that network configurations name, the last ones used.
    kubernetes: Mutex<Vec<(KubeConfig, KubeObjects)>>,
    calls: AtomicU64,
    calls_in_progress: AtomicUsize,
}

/// Counts a call as in progress until it is dropped.
#[derive(Debug)]
pub(crate) struct CallInProgress<'a>(&'a Common);

impl Drop for CallInProgress<'_> {
    fn drop(&mut self) {
        self.0.calls_in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Common {
    pub(super) fn new(state_dir: &Path, health: Arc<Health>) -> Common {
        Common {
            queue: DelQueue::at(state_dir),
            locks: SandboxLocks::default(),
            health,
            kernel: OnceLock::new(),
            logged: Mutex::default(),
            profiles: Mutex::default(),
            kubernetes: Mutex::default(),
            calls: AtomicU64::new(0),
            calls_in_progress: AtomicUsize::new(0),
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.health.metrics
    }

    pub(crate) fn begin_call(&self) -> CallInProgress<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.calls_in_progress.fetch_add(1, Ordering::Relaxed);
        CallInProgress(self)
    }

    /// How many calls were begun so far.
    pub(crate) fn calls_begun(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Logs a warning once, however many calls it is true of.
    pub(crate) fn warn_once(&self, text: String) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.contains(&text) {
            return;
        }
        warn!("{text}");
        if logged.len() >= WARNINGS_MAX {
            logged.clear();
        }
        logged.insert(text);
    }

    /// Whether the profile exists, if an earlier call found out.
    pub(crate) fn profile_exists(&self, name: &str) -> Option<bool> {
        self.profiles.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    pub(crate) fn note_profile(&self, name: String, exists: bool) {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        if profiles.len() >= WARNINGS_MAX {
            profiles.clear();
        }
        profiles.insert(name, exists);
    }

    /// A connection to an API server that an earlier call used.
    pub(crate) fn known_kubernetes(&self, config: &KubeConfig) -> Option<KubeObjects> {
        let known = self.kubernetes.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(of, _)| of == config).map(|(_, objects)| objects.clone())
    }

    /// Keeps a connection for later calls.
    pub(crate) fn know_kubernetes(&self, config: KubeConfig, objects: KubeObjects) {
        let mut known = self.kubernetes.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _)| *of != config);
        if known.len() >= SERVERS_MAX {
            known.remove(0);
        }
        known.push((config, objects));
    }

    pub(crate) fn forget_kubernetes(&self, config: &KubeConfig) {
        let mut known = self.kubernetes.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _)| of != config);
    }

    /// The thread that does all kernel work.
    pub(crate) fn kernel(&self) -> Result<&Worker, HostError> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(kernel);
        }
        // Of two that are started at the same time, the second is not used and ends.
        let host = Host::here()?.telling(failpoint::hit_halfway);
        let started = Worker::start_with(KERNEL_THREAD, host)?;
        Ok(self.kernel.get_or_init(|| started))
    }

    /// Runs something on the kernel thread and waits for it.
    pub(crate) async fn in_kernel<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        self.kernel()?.run(work).await?
    }

    /// The same for a short step that a call needs before it can go on. The only call in progress runs it on its own thread, because waking
    /// another one takes longer. Several calls share the work between threads.
    pub(crate) async fn in_kernel_here<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> Result<T, HostError> {
        let is_only_call = self.calls_in_progress.load(Ordering::Relaxed) == 1;
        if is_only_call { self.kernel()?.run_here(work).await } else { self.kernel()?.run(work).await }
    }
}
