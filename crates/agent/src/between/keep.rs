//! The loop: records change, the kernel is touched, time passes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use doctor::mended;
use host::{Host, HostError, Monitor};
use plan::address::Doubt;
use plan::between::{Between, BetweenDevices, BetweenNotice, Changed, Step, Trouble, changes_of};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::cache::{Cache, State};
use super::nat::Nat;
use super::steps::{self, Observation};
use super::{HeldBlocks, Rulings};
use crate::failpoint::{self, Point};
use crate::services::Agent;

/// The kernel announces changes; this is for announcements that were lost.
const OBSERVE_EVERY: Duration = Duration::from_secs(30);
/// Records and announcements come in bursts; one piece of work serves them all.
const BURST: Duration = Duration::from_millis(2);
/// Between two observations after announcements.
const OBSERVE_PAUSE: Duration = Duration::from_millis(100);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(250);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);
/// Steps in one piece of kernel work. Calls come in between.
const STEPS_AT_ONCE: usize = 512;
/// How long a tunnel stays that no pool requires any more: other nodes may still send through it.
const LINGER: Duration = Duration::from_secs(10);
/// How many fixes of one observation are recorded one by one. More of them have one cause, and are only counted.
const FIXES_RECORDED_MAX: usize = 64;
/// How many reasons are listed.
const REASONS_MAX: usize = 10;

/// Why everything is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Records have changed.
    Records,
    /// To find what another program has changed.
    Check,
}

pub(super) struct Keeper<'a> {
    agent: &'a Arc<Agent>,
    cache: &'a Arc<Cache>,
    monitor: Monitor<BetweenNotice>,
    nat: Nat,
    devices: BetweenDevices,
    /// Everything has been observed once.
    has_observed: bool,
    observed_at: Instant,
    observe_at: Instant,
    retry_delay: Duration,
    /// When to remove tunnels that are out of service.
    remove_at: Option<Instant>,
    /// What could not be reached at the last observation.
    troubles: BTreeSet<String>,
    /// Receives which blocks stay routed although no pool contains them.
    held: &'a watch::Sender<HeldBlocks>,
    /// The version of the protected addresses that the agent has.
    protected: AtomicU64,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(
        agent: &'a Arc<Agent>,
        cache: &'a Arc<Cache>,
        monitor: Monitor<BetweenNotice>,
        held: &'a watch::Sender<HeldBlocks>,
    ) -> Keeper<'a> {
        Keeper {
            agent,
            cache,
            monitor,
            nat: Nat::default(),
            devices: BetweenDevices::default(),
            has_observed: false,
            observed_at: Instant::now(),
            observe_at: Instant::now() + OBSERVE_EVERY,
            retry_delay: RETRY_DELAY_MIN,
            remove_at: None,
            troubles: BTreeSet::new(),
            held,
            protected: AtomicU64::new(0),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), HostError> {
        loop {
            if self.cache.lock().is_complete() {
                if !self.has_observed || self.observe_at <= Instant::now() {
                    self.observe(Why::Check).await?;
                }
                if self.nat.due() <= Instant::now() {
                    self.nat.keep(self.agent, self.cache).await;
                }
            }
            let next = if self.has_observed { self.observe_at.min(self.nat.due()) } else { self.observe_at };
            tokio::select! {
                () = self.cache.changed.notified() => {
                    tokio::time::sleep(BURST).await;
                    self.apply_record_changes().await?;
                }
                listened = Self::listen(&mut self.monitor, self.cache, &self.devices) => {
                    if listened? && self.has_observed {
                        self.agent.metrics().routes_disturbed.increment();
                        self.observe_at = self.observe_at.min((self.observed_at + OBSERVE_PAUSE).max(Instant::now()));
                    }
                }
                () = self.agent.rules_touched.notified() => self.nat.check_soon(),
                () = sleep_until(next) => {}
            }
        }
    }

    /// Whether another program touched something of ours.
    async fn listen(
        monitor: &mut Monitor<BetweenNotice>,
        cache: &Cache,
        devices: &BetweenDevices,
    ) -> Result<bool, HostError> {
        let mut is_disturbed = false;
        let each = |notice| {
            if !is_disturbed && cache.lock().between.is_disturbed_by(&notice, devices) {
                debug!(?notice, "another program may have changed routes to other nodes");
                is_disturbed = true;
            }
        };
        monitor.next(each).await?;
        Ok(is_disturbed)
    }

    /// Applies what depends on the records that changed.
    async fn apply_record_changes(&mut self) -> Result<(), HostError> {
        if !self.has_observed {
            return Ok(());
        }
        let (changed, steps) = {
            let mut state = self.cache.lock();
            let changed = state.between.settle();
            let steps = self.steps_of(&state.between, &changed);
            (changed, steps)
        };
        if changed.nat {
            self.nat.keep(self.agent, self.cache).await;
        }
        if changed.devices {
            // Tunnels come before routes and go after them: a full observation has that order.
            return self.observe(Why::Records).await;
        }
        let count = steps.len();
        let failed = self.apply(steps).await?;
        self.agent.metrics().routes_changed.add(count);
        if failed.is_empty() {
            self.publish(Vec::new());
        } else {
            // Only a full observation shows what is in the way.
            self.observe_at = Instant::now();
        }
        Ok(())
    }

    fn steps_of(&self, between: &Between, changed: &Changed) -> Vec<Step> {
        changes_of(between, changed, &self.devices)
    }

    /// Compares everything in the kernel with the desired state.
    async fn observe(&mut self, why: Why) -> Result<(), HostError> {
        let kernel = self.agent.kernel()?;
        let cache = Arc::clone(self.cache);
        let Observation { devices, steps, made, mut failed, nat } =
            kernel.run(move |host: &mut Host| steps::observe(host, &cache)).await??;
        self.devices = devices;
        let is_fix = self.has_observed && why == Why::Check;
        let count = steps.len();
        if !is_fix && count > 0 {
            info!(changes = count, "changing routes and tunnel entries");
        }
        let unapplied = self.apply(steps.clone()).await?;
        if is_fix {
            let is_applied = |step: &&Step| !unapplied.iter().any(|(left, _)| left == *step);
            self.record_fixes(&made, steps.iter().filter(is_applied));
        }
        failed.extend(unapplied.into_iter().map(|(_, words)| words));
        failpoint::hit(Point::BetweenBeforeRetire);
        self.retire_tunnels().await?;
        failpoint::hit(Point::BetweenAfterRetire);
        let metrics = self.agent.metrics();
        let counter = if is_fix { &metrics.routes_mended } else { &metrics.routes_changed };
        counter.add(count);
        self.has_observed = true;
        self.observed_at = Instant::now();
        self.observe_at = self.observed_at + if failed.is_empty() { OBSERVE_EVERY } else { self.retry_delay };
        self.observe_at = self.observe_at.min(self.remove_at.unwrap_or(self.observe_at));
        self.retry_delay =
            if failed.is_empty() { RETRY_DELAY_MIN } else { (self.retry_delay * 2).min(RETRY_DELAY_MAX) };
        self.warn_of_troubles();
        self.publish(failed);
        if nat {
            // The rules admit a new node's packets into tunnels.
            self.nat.keep(self.agent, self.cache).await;
        }
        Ok(())
    }

    /// Each under the code that it would have as a finding.
    fn record_fixes<'s>(&self, made: &[&str], steps: impl Iterator<Item = &'s Step>) {
        let node = self.agent.node.as_str();
        for device in made {
            let words = "recreated the tunnel device, which was missing or different";
            self.agent.health.record_fix(&mended::tunnel(device, node), words);
        }
        let mut unrecorded: usize = 0;
        for (number, step) in steps.enumerate() {
            let mended = mended::between(step, node);
            if number < FIXES_RECORDED_MAX {
                self.agent.health.record_fix(&mended, &step.to_string());
            } else {
                self.agent.metrics().mends.count(mended.code.as_str());
                unrecorded += 1;
            }
        }
        if unrecorded > 0 {
            info!(changes = unrecorded, "fixed more routes and tunnel entries");
        }
    }

    async fn retire_tunnels(&mut self) -> Result<(), HostError> {
        let removes = self.remove_at.is_some_and(|due| due <= Instant::now());
        let cache = Arc::clone(self.cache);
        let work = move |host: &mut Host| steps::retire_tunnels(host, &cache, removes);
        let is_left = self.agent.kernel()?.run(work).await??;
        self.remove_at = match (is_left, self.remove_at) {
            (true, due) => due.or_else(|| Some(Instant::now() + LINGER)),
            (false, _) => None,
        };
        Ok(())
    }

    /// Returns the steps that failed, and why.
    async fn apply(&self, steps: Vec<Step>) -> Result<Vec<(Step, String)>, HostError> {
        let kernel = self.agent.kernel()?;
        let mut failed = Vec::new();
        failpoint::hit(Point::BetweenBeforeRoutes);
        let halves = steps.chunk_by(|one, next| one.is_removal() == next.is_removal());
        for part in halves.flat_map(|half| half.chunks(STEPS_AT_ONCE)) {
            if part.first().is_some_and(Step::is_removal) {
                // Everything new is in place, and everything old still is.
                failpoint::hit(Point::BetweenRoutesHalf);
            }
            let (part, devices) = (part.to_vec(), self.devices);
            let left = kernel.run(move |host: &mut Host| host.apply_between(&part, &devices)).await??;
            failed.extend(left.into_iter().map(|(step, error)| (step, format!("{step}: {error}"))));
        }
        failpoint::hit(Point::BetweenAfterRoutes);
        Ok(failed)
    }

    /// Only what two observations in a row found: while a cluster starts, many troubles pass.
    fn warn_of_troubles(&mut self) {
        let state = self.cache.lock();
        let mut now: BTreeSet<String> = state
            .between
            .troubles()
            .map(|(cidr, node, trouble)| format!("cannot reach {cidr} on node {node} as desired: {trouble}"))
            .collect();
        now.extend(state.between.shared_addresses().map(|(address, nodes)| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            format!("nodes {} have the same address {address}", nodes.join(", "))
        }));
        if state.between.settings().is_contradictory() {
            now.insert(
                "programClusterRoutes in FelixConfiguration and BGPConfiguration contradict each other: both Felix and BIRD \
                 would write routes, or neither"
                    .to_owned(),
            );
        }
        drop(state);
        now.intersection(&self.troubles)
            .take(REASONS_MAX)
            .for_each(|trouble| self.agent.warn_once(trouble.clone()));
        self.troubles = now;
    }

    /// Publishes the addresses that no pod may have, for ADD.
    fn protect(&self, between: &Between) {
        let version = between.protected_version();
        if self.protected.swap(version, Ordering::Relaxed) != version {
            *self.agent.protected.write().unwrap_or_else(PoisonError::into_inner) = between.protected();
        }
    }

    /// To metrics, readiness and the BGP part.
    fn publish(&self, failed: Vec<String>) {
        let state = self.cache.lock();
        let metrics = self.agent.metrics();
        metrics.routes_wanted.set(state.between.route_count());
        metrics.routes_failed.set(failed.len());
        metrics.blocks_unreachable.set(state.between.trouble_counts().map(|(_, count)| count).sum());
        metrics.node_addresses_shared.set(state.between.shared_addresses().count());
        self.protect(&state.between);
        let own = own_reasons(&state);
        let invalid = invalid_records(&state.between);
        let refused = state.between.trouble_counts().filter(|(trouble, _)| trouble.is_of_record());
        metrics.blocks_refused.set(refused.map(|(_, count)| count).sum());
        self.held.send_if_modified(|held| {
            let now =
                Rulings { held: state.between.held().collect(), refused: state.between.refused().collect() };
            let is_new = held.as_ref() != Some(&now);
            *held = Some(now);
            is_new
        });
        drop(state);
        invalid.iter().for_each(|reason| self.agent.warn_once(reason.clone()));
        self.agent.health.set_invalid_records(invalid);
        let left = failed.len().saturating_sub(REASONS_MAX);
        let mut reasons: Vec<String> = failed.into_iter().take(REASONS_MAX).chain(own).collect();
        reasons.extend((left > 0).then(|| format!("and {left} more")));
        reasons.iter().for_each(|reason| debug!("{reason}"));
        self.agent.health.set_routes_missing(reasons);
    }
}

/// The first few blocks with invalid records: they are not routed, or only because they were before.
fn invalid_records(between: &Between) -> Vec<String> {
    let of_records = || between.trouble_counts().filter(|(trouble, _)| trouble.is_of_record());
    let all: usize = of_records().map(|(_, count)| count).sum();
    if all == 0 {
        return Vec::new();
    }
    let invalid = between.troubles().filter(|(_, _, trouble)| trouble.is_of_record());
    let mut words: Vec<String> = invalid
        .take(REASONS_MAX)
        .map(|(cidr, node, trouble)| {
            let of_node = if node.is_empty() { String::new() } else { format!(" of node {node}") };
            format!("block {cidr}{of_node}: {trouble}")
        })
        .collect();
    words.extend((all > REASONS_MAX).then(|| format!("and {} more blocks", all - REASONS_MAX)));
    words
}

/// What this node itself lacks to reach other nodes.
fn own_reasons(state: &State) -> BTreeSet<String> {
    let troubles = || state.between.trouble_counts().map(|(trouble, _)| trouble);
    let own = troubles().filter(|trouble| trouble.is_own());
    let mut reasons: BTreeSet<String> =
        own.map(|trouble| format!("cannot reach other nodes: {trouble}")).collect();
    // The only node on another network, and cut off by that: its address is wrong.
    if troubles().any(|trouble| trouble == Trouble::Apart) {
        let elsewhere = state.doubts.iter().filter(|doubt| matches!(doubt, Doubt::OtherNetwork { .. }));
        reasons.extend(elsewhere.map(|doubt| format!("cannot reach other nodes: {doubt}")));
    }
    // Packets have shown it, whatever the records say.
    let unanswered = state.doubts.iter().filter(|doubt| matches!(doubt, Doubt::Unanswered { .. }));
    reasons
        .extend(unanswered.map(|doubt| format!("other nodes cannot reach this node at its address {doubt}")));
    reasons
}
