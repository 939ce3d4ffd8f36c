//! Keeps the kernel as the journal says: looks at everything at the start and now and then, and at single pods as
//! soon as the kernel announces that something of theirs was touched.
//!
//! ```text
//!   journal ──▶ desired ─┐
//!                        ├─▶ differences ─▶ mended, on the thread that does all kernel work
//!   kernel ──▶ observed ─┘
//! ```
//!
//! Calls and looks take turns on that thread, and a sandbox that a call is at work on is left to the call. What is a
//! stranger's is never touched; devices without an entry are for the collector to judge.

mod desired;
mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use doctor::mended::{self, Mended};
use host::{Host, HostError, Monitor};
use model::Sandbox;
use plan::{Affected, Difference, InsidePod, NodeDifference, NodeFacts, PodWiring, Side};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use desired::Desired;

use crate::cni::Services;
use crate::failpoint::{self, Point};

/// Some settings change in silence; they are noticed by looking.
const LOOK_EVERY: Duration = Duration::from_secs(8);
/// Looking into pods is dearer, and what is wrong in there is mostly the pod's own doing.
const LOOK_INSIDE_EVERY: Duration = Duration::from_secs(60);
/// Calls come in bunches; once it has been quiet for so long, one look serves them all.
const QUIET: Duration = Duration::from_millis(5);
/// However many calls come, what they have changed is taken in after so long.
const QUIET_WAIT_MAX: Duration = Duration::from_millis(30);
/// Pods that are looked into in one go. Calls come in between.
const INSIDE_AT_ONCE: usize = 16;
/// When to look again at a pod that a call was at work on.
const BUSY_RETRY: Duration = Duration::from_millis(20);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Never ends.
pub(crate) async fn run(services: &Arc<Services>) {
    loop {
        // Listening starts before the first look, so that nothing is missed in between.
        let outcome = match Monitor::open() {
            Ok(monitor) => Reconciler::new(services, monitor).run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            warn!("the kernel cannot be watched: {error}; trying again");
            services.health().set_reconciled(false);
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

struct Reconciler<'a> {
    services: &'a Arc<Services>,
    monitor: Monitor,
    desired: Desired,
    /// Of which state of the journal, and of the node, that was made.
    taken_in: Option<(u64, NodeFacts)>,
    /// Pods to look at, because something of theirs was touched.
    touched: BTreeSet<Sandbox>,
    look_at: Instant,
    look_inside_at: Instant,
    /// How many calls there had been when memory was last given back.
    calls_seen: u64,
}

/// Whether no call is at work on a pod, and none has changed what is wanted of it. Asked on the thread that does all
/// kernel work, so a call that comes later finds the look ended.
fn is_at_rest(services: &Services, facts: &NodeFacts, wiring: &PodWiring) -> bool {
    is_still_wanted(services, facts, wiring) && !services.fences().is_busy(&wiring.sandbox)
}

/// Whether the journal says so now. It may have changed since a look began.
fn is_still_wanted(services: &Services, facts: &NodeFacts, wiring: &PodWiring) -> bool {
    let entry = services.journal().and_then(|journal| journal.get(&wiring.sandbox));
    let wanted = entry.and_then(|entry| PodWiring::new(&entry.attachment, facts).ok());
    wanted.as_ref() == Some(wiring)
}

impl<'a> Reconciler<'a> {
    fn new(services: &'a Arc<Services>, monitor: Monitor) -> Reconciler<'a> {
        Reconciler {
            services,
            monitor,
            desired: Desired::default(),
            taken_in: None,
            touched: BTreeSet::new(),
            look_at: Instant::now(),
            look_inside_at: Instant::now() + LOOK_INSIDE_EVERY,
            calls_seen: 0,
        }
    }

    async fn run(mut self) -> Result<(), HostError> {
        let agent = self.services.agent().expect("only the agent reconciles");
        self.refresh().await?;
        loop {
            self.services.health().heard_of_reconcile();
            if self.look_at <= Instant::now() {
                self.look_at_node().await?;
            }
            if self.look_inside_at <= Instant::now() {
                self.look_inside().await;
            }
            let busy_again = Instant::now() + BUSY_RETRY;
            let next = if self.touched.is_empty() { self.look_at } else { self.look_at.min(busy_again) };
            tokio::select! {
                listened = Self::listen(&mut self.monitor, &mut self.desired, &mut self.touched) => {
                    if listened? {
                        self.look_at = Instant::now();
                    }
                }
                () = agent.journal.changed() => {
                    self.wait_for_quiet().await;
                    self.refresh().await?;
                }
                () = sleep_until(next) => {}
            }
            self.look_at_touched().await?;
        }
    }

    /// Whether everything must be looked at: announcements were lost, or the node's own settings touched.
    async fn listen(
        monitor: &mut Monitor,
        desired: &mut Desired,
        touched: &mut BTreeSet<Sandbox>,
    ) -> Result<bool, HostError> {
        let mut is_everything = false;
        let mut each = |notice| match desired.watched.affected(&notice) {
            Affected::Nobody => {}
            Affected::Pod(sandbox) => {
                touched.insert(sandbox);
            }
            Affected::Node => is_everything = true,
        };
        monitor.next(&mut each).await?;
        Ok(is_everything)
    }

    /// Calls that come in a burst have the kernel's thread to themselves.
    async fn wait_for_quiet(&self) {
        let deadline = Instant::now() + QUIET_WAIT_MAX;
        while Instant::now() < deadline {
            let before = self.services.calls_begun();
            tokio::time::sleep(QUIET).await;
            if self.services.calls_begun() == before {
                return;
            }
        }
    }

    /// Takes in what calls have changed.
    async fn refresh(&mut self) -> Result<(), HostError> {
        let agent = self.services.agent().expect("only the agent reconciles");
        let facts = self.services.kernel()?.run(|host| host.facts()).await??;
        let state = (agent.journal.changes(), facts);
        if self.taken_in == Some(state) {
            return Ok(());
        }
        let new = self.desired.update(agent.journal.all(), &facts);
        self.taken_in = Some(state);
        // Announcements of neighbours and settings name the device by its number only.
        let links = self.services.kernel()?.run(move |host| look::links_of(host, &new)).await??;
        for (index, sandbox) in &links {
            self.desired.watched.learn(*index, sandbox);
        }
        Ok(())
    }

    async fn look_at_node(&mut self) -> Result<(), HostError> {
        failpoint::hit(Point::StartBeforeReconcile);
        self.look_at = Instant::now() + LOOK_EVERY;
        self.refresh().await?;
        let (desired, services) = (self.desired.node.clone(), Arc::clone(self.services));
        let look = move |host: &mut Host| {
            let facts = host.facts()?;
            look::at_node(host, &desired, |wiring| is_at_rest(&services, &facts, wiring))
        };
        let looked = self.services.kernel()?.run(look).await??;
        for (index, sandbox) in &looked.links {
            self.desired.watched.learn(*index, sandbox);
        }
        let rivals = i64::try_from(looked.rivals.len()).unwrap_or(i64::MAX);
        self.services.metrics().rival_routes.store(rivals, Ordering::Relaxed);
        looked.rivals.into_iter().for_each(|rival| self.services.say_once(rival));
        let found = self.settle(looked.found, true).await;
        self.services.metrics().reconciles.fetch_add(1, Ordering::Relaxed);
        self.services.metrics().unmended.store(i64::try_from(found).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.services.health().set_reconciled(found == 0);
        failpoint::hit(Point::StartReconciled);
        self.give_back_memory();
        Ok(())
    }

    /// What a burst of calls needed, the agent does not need all day.
    fn give_back_memory(&mut self) {
        let calls = self.services.calls_begun();
        if calls != self.calls_seen {
            self.calls_seen = calls;
            host::give_back_memory();
        }
    }

    async fn look_at_touched(&mut self) -> Result<(), HostError> {
        if self.touched.is_empty() {
            return Ok(());
        }
        let (busy, free): (BTreeSet<Sandbox>, BTreeSet<Sandbox>) = std::mem::take(&mut self.touched)
            .into_iter()
            .partition(|sandbox| self.services.fences().is_busy(sandbox));
        self.touched = busy;
        // No call may change what is wanted of these while they are looked at, and what earlier calls have changed
        // must be known: a sandbox may have been removed and added again, with another address.
        let containers: BTreeMap<String, &Sandbox> =
            free.iter().map(|sandbox| (sandbox.handle(), sandbox)).collect();
        let mut fenced = Vec::new();
        for sandbox in containers.into_values() {
            fenced.push(self.services.fences().enter(sandbox).await);
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
        let found = self.services.kernel()?.run(move |host| look::at_pods(host, &wirings)).await??;
        drop(fenced);
        if self.settle(found, false).await > 0 {
            // Something else may be in the way, which only a look at everything shows.
            self.look_at = Instant::now();
        }
        Ok(())
    }

    /// Does about differences what takes more than the node's side. Says how many are left.
    async fn settle(&mut self, found: look::Found, is_final: bool) -> usize {
        for difference in &found.mended {
            self.note(&mended::on_node(difference, self.node()), &in_words(difference));
        }
        let mut left = 0;
        for sandbox in found.missing {
            let is_remade = self.remake(&sandbox).await;
            left += usize::from(!is_remade);
        }
        for problem in found.left {
            left += 1;
            if is_final {
                self.services.say_once(problem);
            } else {
                debug!("{problem}");
            }
        }
        left
    }

    /// Makes a pod's device anew, if the pod is still there. One that is gone is for the collector.
    async fn remake(&mut self, sandbox: &Sandbox) -> bool {
        let (Some(netns), Some(wiring)) =
            (self.desired.netns(sandbox), self.desired.node.get(sandbox).cloned())
        else {
            return true;
        };
        let _fenced = self.services.fences().enter(sandbox).await;
        let Ok(kernel) = self.services.kernel() else { return false };
        failpoint::hit(Point::StartBeforeRemake);
        let (services, device) = (Arc::clone(self.services), wiring.host.device.clone());
        let remake = move |host: &mut Host| {
            if !is_still_wanted(&services, &host.facts()?, &wiring) {
                return Ok(look::Remade::PodGone);
            }
            look::remake(host, &netns, &wiring)
        };
        match kernel.run(remake).await {
            Ok(Ok(look::Remade::Done)) => {
                failpoint::hit(Point::StartAfterRemake);
                let missing = Difference::Missing { side: Side::Host, device };
                let mended = mended::of_pod(&missing, sandbox, self.node());
                self.note(&mended, &format!("the device of {sandbox} was gone; made it anew"));
                true
            }
            Ok(Ok(look::Remade::PodGone)) => true,
            Ok(Err(error)) => {
                self.services
                    .say_once(format!("the device of {sandbox} is gone and cannot be made anew: {error}"));
                false
            }
            Err(_) => false,
        }
    }

    fn node(&self) -> &'a str {
        &self.services.agent().expect("only the agent reconciles").node
    }

    fn note(&self, mended: &Mended, words: &str) {
        self.services.metrics().mended.fetch_add(1, Ordering::Relaxed);
        self.services.health().mended(mended, words);
    }

    async fn look_inside(&mut self) {
        self.look_inside_at = Instant::now() + LOOK_INSIDE_EVERY;
        for pods in self.desired.pods().chunks(INSIDE_AT_ONCE) {
            let Ok(kernel) = self.services.kernel() else { return };
            let (services, pods) = (Arc::clone(self.services), pods.to_vec());
            let look = move |host: &mut Host| {
                let look = |(netns, wiring): (PathBuf, PodWiring)| {
                    let inside = look_into(host, &services, &netns, &wiring);
                    (wiring.sandbox, inside)
                };
                pods.into_iter().map(look).collect::<Vec<_>>()
            };
            match kernel.run(look).await {
                Ok(looked) => {
                    looked.into_iter().for_each(|(sandbox, inside)| self.tell_inside(&sandbox, inside))
                }
                Err(error) => debug!("pods cannot be looked into: {error}"),
            }
        }
    }

    fn tell_inside(&self, sandbox: &Sandbox, inside: Result<InsidePod, HostError>) {
        let InsidePod { restore, report } = match inside {
            Ok(inside) => inside,
            Err(error) => return debug!("inside {sandbox}: {error}"),
        };
        for difference in restore {
            let mended = mended::of_pod(&difference, sandbox, self.node());
            self.note(&mended, &format!("inside {sandbox}: {difference}"));
        }
        for difference in report {
            self.services.say_once(format!("inside {sandbox}: {difference}; left as the pod has it"));
        }
    }
}

fn in_words(difference: &NodeDifference) -> String {
    match difference {
        NodeDifference::OfPod { difference: Difference::RouteTaken { .. }, .. } => {
            format!("{difference}; ours was put in front of it, and it was left alone")
        }
        difference => difference.to_string(),
    }
}

/// On the thread that does all kernel work.
fn look_into(
    host: &mut Host,
    services: &Services,
    netns: &Path,
    wiring: &PodWiring,
) -> Result<InsidePod, HostError> {
    if !is_at_rest(services, &host.facts()?, wiring) {
        return Ok(InsidePod::default());
    }
    look::inside(host, netns, wiring)
}
