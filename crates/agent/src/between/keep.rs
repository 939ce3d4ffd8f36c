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

use super::known::{Known, State};
use super::nat::Nat;
use super::steps::{self, Looked};
use super::{HeldBlocks, Rulings};
use crate::cni::Services;
use crate::failpoint::{self, Point};

/// Changes are announced; this is for what was not.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Records and announcements come in bunches; one piece of work serves them all.
const BUNCH: Duration = Duration::from_millis(2);
/// Between two looks that announcements ask for.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(250);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);
/// Calls come in between.
const STEPS_AT_ONCE: usize = 512;
/// How long a tunnel that nobody wants any more stays: others may not have heard of it yet, and still send through it.
const LINGER: Duration = Duration::from_secs(10);
/// How many mends of one look are told one by one. More of them have one cause, and are only counted.
const MENDS_TOLD_MAX: usize = 64;
/// How many reasons are said in full.
const REASONS_MAX: usize = 10;

/// What a look is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Records have changed.
    Records,
    /// To find what somebody else has changed.
    Check,
}

pub(super) struct Keeper<'a> {
    services: &'a Arc<Services>,
    known: &'a Arc<Known>,
    monitor: Monitor<BetweenNotice>,
    nat: Nat,
    devices: BetweenDevices,
    /// A look at everything has been had.
    has_looked: bool,
    looked_at: Instant,
    look_at: Instant,
    retry_delay: Duration,
    /// When to remove tunnels that are out of service.
    remove_at: Option<Instant>,
    /// What could not be reached at the last look.
    troubles: BTreeSet<String>,
    /// Told which blocks stay routed although no pool holds them.
    held: &'a watch::Sender<HeldBlocks>,
    /// The version of what was told last of addresses that no pod may have.
    protected: AtomicU64,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(
        services: &'a Arc<Services>,
        known: &'a Arc<Known>,
        monitor: Monitor<BetweenNotice>,
        held: &'a watch::Sender<HeldBlocks>,
    ) -> Keeper<'a> {
        Keeper {
            services,
            known,
            monitor,
            nat: Nat::default(),
            devices: BetweenDevices::default(),
            has_looked: false,
            looked_at: Instant::now(),
            look_at: Instant::now() + LOOK_EVERY,
            retry_delay: RETRY_DELAY_MIN,
            remove_at: None,
            troubles: BTreeSet::new(),
            held,
            protected: AtomicU64::new(0),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), HostError> {
        loop {
            if self.known.lock().is_complete() {
                if !self.has_looked || self.look_at <= Instant::now() {
                    self.look(Why::Check).await?;
                }
                if self.nat.due() <= Instant::now() {
                    self.nat.keep(self.services, self.known).await;
                }
            }
            let next = if self.has_looked { self.look_at.min(self.nat.due()) } else { self.look_at };
            tokio::select! {
                () = self.known.changed.notified() => {
                    tokio::time::sleep(BUNCH).await;
                    self.take_in_changes().await?;
                }
                listened = Self::listen(&mut self.monitor, self.known, &self.devices) => {
                    if listened? && self.has_looked {
                        self.services.metrics().routes_disturbed.fetch_add(1, Ordering::Relaxed);
                        self.look_at = self.look_at.min((self.looked_at + LOOK_PAUSE).max(Instant::now()));
                    }
                }
                () = rules_touched(self.services) => self.nat.check_soon(),
                () = sleep_until(next) => {}
            }
        }
    }

    /// Whether something of ours was touched by somebody else.
    async fn listen(
        monitor: &mut Monitor<BetweenNotice>,
        known: &Known,
        devices: &BetweenDevices,
    ) -> Result<bool, HostError> {
        let mut is_disturbed = false;
        let each = |notice| {
            if !is_disturbed && known.lock().between.is_disturbed_by(&notice, devices) {
                debug!("looking at the routes to other nodes: {notice:?}");
                is_disturbed = true;
            }
        };
        monitor.next(each).await?;
        Ok(is_disturbed)
    }

    /// What depends on the records that changed.
    async fn take_in_changes(&mut self) -> Result<(), HostError> {
        if !self.has_looked {
            return Ok(());
        }
        let (changed, steps) = {
            let mut state = self.known.lock();
            let changed = state.between.settle();
            let steps = self.steps_of(&state.between, &changed);
            (changed, steps)
        };
        if changed.nat {
            self.nat.keep(self.services, self.known).await;
        }
        if changed.devices {
            // Tunnels come before routes or go after them: a look at everything has that order.
            return self.look(Why::Records).await;
        }
        let count = u64::try_from(steps.len()).unwrap_or_default();
        let failed = self.apply(steps).await?;
        self.services.metrics().routes_changed.fetch_add(count, Ordering::Relaxed);
        if failed.is_empty() {
            self.tell_state(Vec::new());
        } else {
            // Something else may be in the way, which only a look at everything shows.
            self.look_at = Instant::now();
        }
        Ok(())
    }

    fn steps_of(&self, between: &Between, changed: &Changed) -> Vec<Step> {
        changes_of(between, changed, |version, via| self.devices.index_of(version, via))
    }

    /// At everything: what the kernel holds is compared with what is wanted.
    async fn look(&mut self, why: Why) -> Result<(), HostError> {
        let kernel = self.services.kernel()?;
        let known = Arc::clone(self.known);
        let Looked { devices, steps, made, mut failed, nat } =
            kernel.run(move |host: &mut Host| steps::look(host, &known)).await??;
        self.devices = devices;
        let is_mending = self.has_looked && why == Why::Check;
        let count = steps.len();
        if !is_mending && count > 0 {
            info!("{count} routes and tunnel ends to set up, to change or to remove");
        }
        let unmended = self.apply(steps.clone()).await?;
        if is_mending {
            self.note_mends(
                &made,
                steps.iter().filter(|step| !unmended.iter().any(|(left, _)| left == *step)),
            );
        }
        failed.extend(unmended.into_iter().map(|(_, words)| words));
        failpoint::hit(Point::BetweenBeforeRetire);
        self.retire_tunnels().await?;
        failpoint::hit(Point::BetweenAfterRetire);
        let metrics = self.services.metrics();
        let counter = if is_mending { &metrics.routes_mended } else { &metrics.routes_changed };
        counter.fetch_add(u64::try_from(count).unwrap_or_default(), Ordering::Relaxed);
        self.has_looked = true;
        self.looked_at = Instant::now();
        self.look_at = self.looked_at + if failed.is_empty() { LOOK_EVERY } else { self.retry_delay };
        self.look_at = self.look_at.min(self.remove_at.unwrap_or(self.look_at));
        self.retry_delay =
            if failed.is_empty() { RETRY_DELAY_MIN } else { (self.retry_delay * 2).min(RETRY_DELAY_MAX) };
        self.say_troubles();
        self.tell_state(failed);
        if nat {
            // A node that has come meanwhile gets nothing into tunnels before that.
            self.nat.keep(self.services, self.known).await;
        }
        Ok(())
    }

    /// Each under the code that it would have been found under.
    fn note_mends<'s>(&self, made: &[&str], steps: impl Iterator<Item = &'s Step>) {
        let node = self.node();
        for device in made {
            let words = "the tunnel's device was not there, or not as wanted; made it anew";
            self.services.health().mended(&mended::tunnel(device, node), words);
        }
        let mut untold: usize = 0;
        for (number, step) in steps.enumerate() {
            let mended = mended::between(step, node);
            if number < MENDS_TOLD_MAX {
                self.services.health().mended(&mended, &step.to_string());
            } else {
                self.services.metrics().mends.count(mended.code);
                untold += 1;
            }
        }
        if untold > 0 {
            info!("put right {untold} more routes and tunnel ends");
        }
    }

    fn node(&self) -> &'a str {
        self.services.agent().map_or("", |agent| agent.node.as_str())
    }

    async fn retire_tunnels(&mut self) -> Result<(), HostError> {
        let removes = self.remove_at.is_some_and(|due| due <= Instant::now());
        let known = Arc::clone(self.known);
        let work = move |host: &mut Host| steps::retire_tunnels(host, &known, removes);
        let is_left = self.services.kernel()?.run(work).await??;
        self.remove_at = match (is_left, self.remove_at) {
            (true, due) => due.or_else(|| Some(Instant::now() + LINGER)),
            (false, _) => None,
        };
        Ok(())
    }

    /// What could not be done, and why.
    async fn apply(&self, steps: Vec<Step>) -> Result<Vec<(Step, String)>, HostError> {
        let kernel = self.services.kernel()?;
        let mut failed = Vec::new();
        failpoint::hit(Point::BetweenBeforeRoutes);
        let halves = steps.chunk_by(|one, next| one.is_removal() == next.is_removal());
        for part in halves.flat_map(|half| half.chunks(STEPS_AT_ONCE)) {
            if part.first().is_some_and(Step::is_removal) {
                // Everything new is there, and everything old still is.
                failpoint::hit(Point::BetweenRoutesHalf);
            }
            let (part, devices) = (part.to_vec(), self.devices);
            let left = kernel.run(move |host: &mut Host| host.apply_between(&part, &devices)).await??;
            failed.extend(left.into_iter().map(|(step, error)| (step, format!("{step}: {error}"))));
        }
        failpoint::hit(Point::BetweenAfterRoutes);
        Ok(failed)
    }

    /// Troubles that two looks in a row have seen: while a cluster comes up there are many that pass.
    fn say_troubles(&mut self) {
        let state = self.known.lock();
        let mut now: BTreeSet<String> = state
            .between
            .troubles()
            .map(|(cidr, node, trouble)| {
                format!("{cidr} at {node} cannot be reached as it should be: {trouble}")
            })
            .collect();
        now.extend(state.between.shared_addresses().map(|(address, nodes)| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            format!("the nodes {} claim the same address {address}", nodes.join(", "))
        }));
        if state.between.settings().is_contradictory() {
            now.insert(
                "programClusterRoutes of FelixConfiguration and BGPConfiguration contradict each other: \
                 both sides were told to write routes, or neither"
                    .to_owned(),
            );
        }
        drop(state);
        now.intersection(&self.troubles)
            .take(REASONS_MAX)
            .for_each(|trouble| self.services.say_once(trouble.clone()));
        self.troubles = now;
    }

    /// Tells those who give addresses which ones no pod may have.
    fn protect(&self, between: &Between) {
        let version = between.protected_version();
        if self.protected.swap(version, Ordering::Relaxed) != version
            && let Some(agent) = self.services.agent()
        {
            *agent.protected.write().unwrap_or_else(PoisonError::into_inner) = between.protected();
        }
    }

    fn tell_state(&self, failed: Vec<String>) {
        let state = self.known.lock();
        let metrics = self.services.metrics();
        let set = |gauge: &std::sync::atomic::AtomicI64, count: usize| {
            gauge.store(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
        };
        set(&metrics.routes_wanted, state.between.route_count());
        set(&metrics.routes_failed, failed.len());
        set(&metrics.blocks_unreachable, state.between.trouble_counts().map(|(_, count)| count).sum());
        set(&metrics.node_addresses_shared, state.between.shared_addresses().count());
        self.protect(&state.between);
        let own = own_reasons(&state);
        let wrong = wrong_records(&state.between);
        let refused = state.between.trouble_counts().filter(|(trouble, _)| trouble.is_of_record());
        set(&metrics.blocks_refused, refused.map(|(_, count)| count).sum());
        self.held.send_if_modified(|held| {
            let now =
                Rulings { held: state.between.held().collect(), refused: state.between.refused().collect() };
            let is_new = held.as_ref() != Some(&now);
            *held = Some(now);
            is_new
        });
        drop(state);
        wrong.iter().for_each(|reason| self.services.say_once(reason.clone()));
        self.services.health().set_records_wrong(wrong);
        let left = failed.len().saturating_sub(REASONS_MAX);
        let mut reasons: Vec<String> = failed.into_iter().take(REASONS_MAX).chain(own).collect();
        reasons.extend((left > 0).then(|| format!("and {left} more")));
        reasons.iter().for_each(|reason| debug!("{reason}"));
        self.services.health().set_routes_missing(reasons);
    }
}

async fn rules_touched(services: &Services) {
    match services.agent() {
        Some(agent) => agent.rules_touched.notified().await,
        None => std::future::pending().await,
    }
}

/// Blocks that are not routed, or only because they were before, because their records are wrong. The first few.
fn wrong_records(between: &Between) -> Vec<String> {
    let of_records = || between.trouble_counts().filter(|(trouble, _)| trouble.is_of_record());
    let all: usize = of_records().map(|(_, count)| count).sum();
    if all == 0 {
        return Vec::new();
    }
    let wrong = between.troubles().filter(|(_, _, trouble)| trouble.is_of_record());
    let mut words: Vec<String> = wrong
        .take(REASONS_MAX)
        .map(|(cidr, node, trouble)| {
            let of_node = if node.is_empty() { String::new() } else { format!(" of node {node}") };
            format!("block {cidr}{of_node}: {trouble}")
        })
        .collect();
    words.extend((all > REASONS_MAX).then(|| format!("and {} more blocks", all - REASONS_MAX)));
    words
}

/// What this node itself lacks to reach others.
fn own_reasons(state: &State) -> BTreeSet<String> {
    let troubles = || state.between.trouble_counts().map(|(trouble, _)| trouble);
    let own = troubles().filter(|trouble| trouble.is_own());
    let mut reasons: BTreeSet<String> =
        own.map(|trouble| format!("other nodes cannot be reached: {trouble}")).collect();
    // Alone on another network than everybody else, and cut off by that: the address is the wrong one.
    if troubles().any(|trouble| trouble == Trouble::Apart) {
        let elsewhere = state.doubts.iter().filter(|doubt| matches!(doubt, Doubt::OtherNetwork { .. }));
        reasons.extend(elsewhere.map(|doubt| format!("other nodes cannot be reached: {doubt}")));
    }
    // Whatever the records say: packets have shown it.
    let unanswered = state.doubts.iter().filter(|doubt| matches!(doubt, Doubt::Unanswered { .. }));
    reasons
        .extend(unanswered.map(|doubt| format!("other nodes do not reach this one at its address {doubt}")));
    reasons
}
