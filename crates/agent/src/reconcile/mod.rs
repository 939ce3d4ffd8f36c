//! The reconciler: keeps the kernel in line with the journal. It observes the whole node at the start and regularly, and single pods as soon as
//! the kernel announces a change of theirs.
//!
//! ```text
//!   journal ──▶ desired ─┐
//!                        ├─▶ differences ─▶ fixed, on the kernel thread
//!   kernel ──▶ observed ─┘
//! ```
//!
//! Calls and observations take turns on that thread, and a locked sandbox is left to its call. What another program made is never touched;
//! devices without a journal entry are left to the collector.

mod desired;
mod kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doctor::mended::{self, Mended};
use host::{Host, HostError, Monitor};
use model::{HandleId, Sandbox};
use plan::{Affected, Difference, DifferenceKind, InsidePod, NodeDifference, NodeFacts, PodWiring, Side};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use desired::Desired;

use crate::failpoint::{self, Point};
use crate::services::Agent;

/// The kernel does not announce changes of some settings.
const OBSERVE_EVERY: Duration = Duration::from_secs(8);
/// Entering pods costs more, and most changes in there are the pod's own.
const OBSERVE_INSIDE_EVERY: Duration = Duration::from_secs(60);
/// Calls come in bursts; after this long without one, a single observation serves them all.
const QUIET: Duration = Duration::from_millis(5);
/// The longest wait for that.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(30);
/// Pods that are observed inside in one piece of kernel work. Calls come in between.
const INSIDE_AT_ONCE: usize = 16;
/// When to observe a pod again that was locked.
const BUSY_RETRY: Duration = Duration::from_millis(20);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Never ends.
pub(crate) async fn run(agent: &Arc<Agent>) {
    loop {
        // Listening starts before the first observation, so that nothing is missed in between.
        let outcome = match Monitor::open() {
            Ok(monitor) => Reconciler::new(agent, monitor).run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            warn!(%error, "cannot reconcile the kernel; retrying");
            agent.health.set_reconciled(false);
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

struct Reconciler<'a> {
    agent: &'a Arc<Agent>,
    monitor: Monitor,
    desired: Desired,
    /// The journal's version and the node's facts that `desired` was computed from.
    computed_from: Option<(u64, NodeFacts)>,
    /// Pods to observe, because something of theirs was touched.
    touched: BTreeSet<Sandbox>,
    observe_at: Instant,
    observe_inside_at: Instant,
    /// How many calls there had been when memory was last released.
    calls_seen: u64,
}

/// Whether no call holds the pod's lock, and none has changed its desired state. Asked on the kernel thread, so a later call finds the
/// observation ended.
fn is_at_rest(agent: &Agent, facts: &NodeFacts, wiring: &PodWiring) -> bool {
    is_still_desired(agent, facts, wiring) && !agent.locks.is_busy(&wiring.sandbox)
}

/// Whether the journal still has this attachment. It may have changed since the observation began.
fn is_still_desired(agent: &Agent, facts: &NodeFacts, wiring: &PodWiring) -> bool {
    let entry = agent.journal.get(&wiring.sandbox);
    let desired = entry.and_then(|entry| PodWiring::new(&entry.attachment, facts).ok());
    desired.as_ref() == Some(wiring)
}

impl<'a> Reconciler<'a> {
    fn new(agent: &'a Arc<Agent>, monitor: Monitor) -> Reconciler<'a> {
        Reconciler {
            agent,
            monitor,
            desired: Desired::default(),
            computed_from: None,
            touched: BTreeSet::new(),
            observe_at: Instant::now(),
            observe_inside_at: Instant::now() + OBSERVE_INSIDE_EVERY,
            calls_seen: 0,
        }
    }

    async fn run(mut self) -> Result<(), HostError> {
        self.refresh().await?;
        loop {
            self.agent.health.reconciler_is_alive();
            if self.observe_at <= Instant::now() {
                self.reconcile_node().await?;
            }
            if self.observe_inside_at <= Instant::now() {
                self.reconcile_inside_pods().await;
            }
            let busy_again = Instant::now() + BUSY_RETRY;
            let next =
                if self.touched.is_empty() { self.observe_at } else { self.observe_at.min(busy_again) };
            tokio::select! {
                listened = Self::listen(&mut self.monitor, &mut self.desired, &mut self.touched) => {
                    if listened? {
                        self.observe_at = Instant::now();
                    }
                }
                () = self.agent.journal.changed() => {
                    self.wait_for_quiet().await;
                    self.refresh().await?;
                }
                () = sleep_until(next) => {}
            }
            self.reconcile_touched().await?;
        }
    }

    /// Whether the whole node must be observed: announcements were lost, or the node's own settings touched.
    async fn listen(
        monitor: &mut Monitor,
        desired: &mut Desired,
        touched: &mut BTreeSet<Sandbox>,
    ) -> Result<bool, HostError> {
        let mut is_whole_node = false;
        let mut each = |notice| match desired.watched.affected(&notice) {
            Affected::Nobody => {}
            Affected::Pod(sandbox) => {
                touched.insert(sandbox);
            }
            Affected::Node => is_whole_node = true,
        };
        monitor.next(&mut each).await?;
        Ok(is_whole_node)
    }

    /// A burst of calls has the kernel thread to itself.
    async fn wait_for_quiet(&self) {
        let deadline = Instant::now() + QUIET_WAIT_MAX;
        while Instant::now() < deadline {
            let before = self.agent.calls_begun();
            tokio::time::sleep(QUIET).await;
            if self.agent.calls_begun() == before {
                return;
            }
        }
    }

    /// Computes the desired state again, if the journal or the node's facts changed.
    async fn refresh(&mut self) -> Result<(), HostError> {
        let facts = self.agent.kernel()?.run(|host| host.facts()).await??;
        let state = (self.agent.journal.changes(), facts);
        if self.computed_from == Some(state) {
            return Ok(());
        }
        let new = self.desired.update(self.agent.journal.all(), &facts);
        self.computed_from = Some(state);
        // Announcements of neighbours and settings name the device by its index only.
        let links = self.agent.kernel()?.run(move |host| kernel::links_of(host, &new)).await??;
        for (index, sandbox) in &links {
            self.desired.watched.learn(*index, sandbox);
        }
        Ok(())
    }

    async fn reconcile_node(&mut self) -> Result<(), HostError> {
        failpoint::hit(Point::StartBeforeReconcile);
        self.observe_at = Instant::now() + OBSERVE_EVERY;
        self.refresh().await?;
        let (desired, agent) = (self.desired.node.clone(), Arc::clone(self.agent));
        let reconcile = move |host: &mut Host| {
            let facts = host.facts()?;
            kernel::reconcile_node(host, &desired, |wiring| is_at_rest(&agent, &facts, wiring))
        };
        let node = self.agent.kernel()?.run(reconcile).await??;
        for (index, sandbox) in &node.links {
            self.desired.watched.learn(*index, sandbox);
        }
        self.agent.metrics().rival_routes.set(node.rivals.len());
        node.rivals.into_iter().for_each(|rival| self.agent.warn_once(rival));
        let unfixed = self.settle(node.outcome, true).await;
        self.agent.metrics().reconciles.increment();
        self.agent.metrics().unmended.set(unfixed);
        self.agent.health.set_reconciled(unfixed == 0);
        failpoint::hit(Point::StartReconciled);
        self.release_memory();
        Ok(())
    }

    /// Returns to the kernel the memory that a burst of calls needed.
    fn release_memory(&mut self) {
        let calls = self.agent.calls_begun();
        if calls != self.calls_seen {
            self.calls_seen = calls;
            host::give_back_memory();
        }
    }

    async fn reconcile_touched(&mut self) -> Result<(), HostError> {
        let agent = self.agent;
        if self.touched.is_empty() {
            return Ok(());
        }
        let (busy, free): (BTreeSet<Sandbox>, BTreeSet<Sandbox>) = std::mem::take(&mut self.touched)
            .into_iter()
            .partition(|sandbox| self.agent.locks.is_busy(sandbox));
        self.touched = busy;
        // Locked, so that no call changes their desired state during the observation. And refreshed, because an earlier call may have
        // removed a sandbox and added it again with another address.
        let containers: BTreeMap<HandleId, &Sandbox> =
            free.iter().map(|sandbox| (sandbox.handle(), sandbox)).collect();
        let mut locked = Vec::new();
        for sandbox in containers.into_values() {
            locked.push(agent.locks.acquire(sandbox).await);
        }
        self.refresh().await?;
        let mut wirings = Vec::new();
        for sandbox in free {
            let Some(wiring) = self.desired.node.get(&sandbox).cloned() else { continue };
            wirings.push((self.desired.watched.index_of(&sandbox), wiring));
        }
        if wirings.is_empty() {
            return Ok(());
        }
        let outcome = agent.kernel()?.run(move |host| kernel::reconcile_pods(host, &wirings)).await??;
        drop(locked);
        if self.settle(outcome, false).await > 0 {
            // Only an observation of the whole node shows what is in the way.
            self.observe_at = Instant::now();
        }
        Ok(())
    }

    /// Records fixes, recreates missing devices and reports what is left. Returns how many differences are left.
    async fn settle(&mut self, outcome: kernel::Outcome, is_final: bool) -> usize {
        for difference in &outcome.fixed {
            self.record_fix(&mended::on_node(difference, &self.agent.node), &in_words(difference));
        }
        let mut left = 0;
        for sandbox in outcome.missing {
            let is_recreated = self.recreate(&sandbox).await;
            left += usize::from(!is_recreated);
        }
        for problem in outcome.left {
            left += 1;
            if is_final {
                self.agent.warn_once(problem);
            } else {
                debug!("{problem}");
            }
        }
        left
    }

    /// Recreates a pod's device, if the pod still exists. One that is gone is left to the collector.
    async fn recreate(&mut self, sandbox: &Sandbox) -> bool {
        let (Some(netns), Some(wiring)) =
            (self.desired.netns(sandbox), self.desired.node.get(sandbox).cloned())
        else {
            return true;
        };
        let _locked = self.agent.locks.acquire(sandbox).await;
        let Ok(kernel) = self.agent.kernel() else { return false };
        failpoint::hit(Point::StartBeforeRemake);
        let (agent, device) = (Arc::clone(self.agent), wiring.host.device.clone());
        let recreate = move |host: &mut Host| {
            if !is_still_desired(&agent, &host.facts()?, &wiring) {
                return Ok(kernel::Recreated::PodGone);
            }
            kernel::recreate(host, &netns, &wiring)
        };
        match kernel.run(recreate).await {
            Ok(Ok(kernel::Recreated::Done)) => {
                failpoint::hit(Point::StartAfterRemake);
                let missing = Difference { side: Side::Host, device, kind: DifferenceKind::Missing };
                let mended = mended::of_pod(&missing, sandbox, &self.agent.node);
                self.record_fix(&mended, &format!("recreated the device of {sandbox}, which was missing"));
                true
            }
            Ok(Ok(kernel::Recreated::PodGone)) => true,
            Ok(Err(error)) => {
                self.agent.warn_once(format!("cannot recreate the missing device of {sandbox}: {error}"));
                false
            }
            Err(_) => false,
        }
    }

    fn record_fix(&self, mended: &Mended, words: &str) {
        self.agent.metrics().mended.increment();
        self.agent.health.record_fix(mended, words);
    }

    async fn reconcile_inside_pods(&mut self) {
        self.observe_inside_at = Instant::now() + OBSERVE_INSIDE_EVERY;
        for pods in self.desired.pods().chunks(INSIDE_AT_ONCE) {
            let Ok(kernel) = self.agent.kernel() else { return };
            let (agent, pods) = (Arc::clone(self.agent), pods.to_vec());
            let reconcile = move |host: &mut Host| {
                let reconcile_one = |(netns, wiring): (PathBuf, PodWiring)| {
                    let inside = reconcile_inside(host, &agent, &netns, &wiring);
                    (wiring.sandbox, inside)
                };
                pods.into_iter().map(reconcile_one).collect::<Vec<_>>()
            };
            match kernel.run(reconcile).await {
                Ok(pods) => {
                    pods.into_iter().for_each(|(sandbox, inside)| self.report_inside(&sandbox, inside));
                }
                Err(error) => debug!(%error, "cannot observe the insides of pods"),
            }
        }
    }

    fn report_inside(&self, sandbox: &Sandbox, inside: Result<InsidePod, HostError>) {
        let InsidePod { restore, report } = match inside {
            Ok(inside) => inside,
            Err(error) => return debug!(%sandbox, %error, "cannot observe the inside of a pod"),
        };
        for difference in restore {
            let mended = mended::of_pod(&difference, sandbox, &self.agent.node);
            self.record_fix(&mended, &format!("inside {sandbox}: {difference}"));
        }
        for difference in report {
            self.agent.warn_once(format!(
                "inside {sandbox}: {difference}; left alone, because the pod may have changed it"
            ));
        }
    }
}

fn in_words(difference: &NodeDifference) -> String {
    match difference {
        NodeDifference::OfPod {
            difference: Difference { kind: DifferenceKind::RouteTaken { .. }, .. },
            ..
        } => {
            format!("{difference}; placed ours in front of it and left it alone")
        }
        difference => difference.to_string(),
    }
}

/// On the kernel thread.
fn reconcile_inside(
    host: &mut Host,
    agent: &Agent,
    netns: &Path,
    wiring: &PodWiring,
) -> Result<InsidePod, HostError> {
    if !is_at_rest(agent, &host.facts()?, wiring) {
        return Ok(InsidePod::default());
    }
    kernel::reconcile_inside(host, netns, wiring)
}
