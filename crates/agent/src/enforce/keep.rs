//! The wanted ruleset, kept in the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use host::nftables::Nftables;
use host::nftables::ruleset::ApplyError;
use host::survey::{Bounds, Survey};
use host::{HostError, Monitor, TableTouched};
use policy::ruleset::{Change, Ruleset};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, info, warn};

use super::counts::Denials;
use super::engine::{TABLE, Wanted};
use crate::failpoint::{self, Point};
use crate::health::Condition;
use crate::services::Agent;

/// Records come in bursts, and one transaction serves them all. A pod that is being added is hardly delayed by it.
const BURST: Duration = Duration::from_millis(1);
/// The kernel announces changes; this is for announcements that were lost.
const READ_EVERY: Duration = Duration::from_secs(300);
const COUNT_EVERY: Duration = Duration::from_secs(15);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);
/// How often rules are read again in a row because other programs change theirs.
const MOVED_MAX: usize = 10;
/// Of devices and addresses; nobody has as many.
const LIST_MAX: usize = 10_000;

struct Keeper<'a> {
    agent: &'a Agent,
    /// `None` while a thread has it.
    nftables: Option<Nftables>,
    monitor: Option<Monitor<TableTouched>>,
    /// The kernel holds what was wanted last, as far as is known.
    is_known: bool,
    /// Of the engine, when that was.
    round: u64,
    /// Another program may have changed our table.
    is_touched: bool,
    /// Rules of this agent are in the kernel.
    has_applied: bool,
    read_at: Instant,
    count_at: Instant,
    retry_at: Option<Instant>,
    retry_delay: Duration,
    denials: Denials,
}

/// Never ends.
pub(super) async fn run(agent: &Agent) {
    loop {
        match Keeper::new(agent) {
            Ok(mut keeper) => keeper.run().await,
            Err(error) => report(agent, &error.into()),
        }
        sleep(RETRY_DELAY_MAX).await;
    }
}

impl<'a> Keeper<'a> {
    fn new(agent: &'a Agent) -> Result<Keeper<'a>, HostError> {
        let nftables = Nftables::open()?;
        // It listens before anything is read.
        let monitor = Monitor::open_tables(nftables.port()?)
            .inspect_err(|error| warn!(%error, "cannot listen to nftables changes; checking now and then"))
            .ok();
        Ok(Keeper {
            agent,
            nftables: Some(nftables),
            monitor,
            is_known: false,
            round: 0,
            is_touched: false,
            has_applied: false,
            read_at: Instant::now() + READ_EVERY,
            count_at: Instant::now(),
            retry_at: None,
            retry_delay: RETRY_DELAY_MIN,
            denials: Denials::default(),
        })
    }

    /// Ends when its socket is lost.
    async fn run(&mut self) {
        while self.nftables.is_some() {
            let is_due = self.retry_at.is_none_or(|at| at <= Instant::now());
            if is_due && self.agent.enforcement.engine().is_complete() {
                if !self.has_applied {
                    self.look_at_devices().await;
                }
                self.settle().await;
            }
            if self.has_applied && self.count_at <= Instant::now() {
                self.count().await;
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        let enforcement = &self.agent.enforcement;
        let until = self.due();
        tokio::select! {
            () = enforcement.changed.notified() => sleep(BURST).await,
            touched = touched(&mut self.monitor) => match touched {
                Ok(is_ours) => self.is_touched |= is_ours,
                Err(error) => {
                    warn!(%error, "cannot listen to nftables changes any more; checking now and then");
                    self.monitor = None;
                }
            },
            () = sleep_until(until) => {}
        }
        if self.read_at <= Instant::now() {
            (self.is_touched, self.read_at) = (true, Instant::now() + READ_EVERY);
        }
    }

    /// When there is something to do without an event.
    fn due(&self) -> Instant {
        let mut due = self.read_at;
        if self.has_applied {
            due = due.min(self.count_at);
        }
        match self.retry_at {
            // Before all records are cached nothing is tried.
            Some(at) if self.agent.enforcement.engine().is_complete() => due.min(at),
            _ => due,
        }
    }

    /// Makes the kernel hold what is wanted.
    async fn settle(&mut self) {
        match self.try_settle().await {
            Ok(()) => {
                (self.retry_at, self.retry_delay) = (None, RETRY_DELAY_MIN);
                self.agent.health.set_condition(Condition::Policies, Vec::new());
            }
            Err(error) => {
                // What the kernel holds now is to be read.
                self.is_known = false;
                report(self.agent, &error);
                self.retry_at = Some(Instant::now() + self.retry_delay);
                self.retry_delay = (self.retry_delay * 2).min(RETRY_DELAY_MAX);
            }
        }
    }

    async fn try_settle(&mut self) -> Result<(), ApplyError> {
        for _ in 0..MOVED_MAX {
            match self.settle_once().await {
                // Decided by what is not so any more.
                Err(ApplyError::Moved) => self.is_known = false,
                outcome => return outcome,
            }
        }
        Err(ApplyError::Moved)
    }

    async fn settle_once(&mut self) -> Result<(), ApplyError> {
        let was_touched = std::mem::take(&mut self.is_touched);
        let round = self.agent.enforcement.engine().round();
        let is_same_round = std::mem::replace(&mut self.round, round) == round;
        let is_known = std::mem::take(&mut self.is_known) && !was_touched && is_same_round;
        let held = if is_known { None } else { Some(self.read_back().await?) };
        let (wanted, changes) = {
            let mut engine = self.agent.enforcement.engine();
            // It may have started over while the kernel was read.
            if !engine.is_complete() || engine.round() != round {
                (self.is_known, self.is_touched) = (is_known, was_touched);
                return Ok(());
            }
            let mut wanted = engine.wanted();
            let changes = match &held {
                None => std::mem::take(&mut wanted.changes),
                Some(held) => held.changes_to(&engine.ruleset()),
            };
            (wanted, changes)
        };
        match &held {
            None => self.denials.follow(&changes),
            Some(_) => self.denials.follow(&wanted.changes),
        }
        let (count, generation) = (changes.len(), held.map(|held| held.generation));
        if count > 0 {
            failpoint::hit(Point::PolicyBeforeRules);
            self.change(changes, generation).await?;
            failpoint::hit(Point::PolicyAfterRules);
            self.agent.metrics().policy_changes.increment();
        }
        if count > 0 && was_touched && self.has_applied {
            self.agent.metrics().policy_repairs.increment();
            warn!(
                changes = count,
                "another program changed the nftables rules of network policy; restored them"
            );
        }
        self.is_settled(wanted);
        Ok(())
    }

    async fn change(&mut self, changes: Vec<Change>, generation: Option<u32>) -> Result<(), ApplyError> {
        let changes = Arc::new(changes);
        let applied = Arc::clone(&changes);
        let outcome = self.in_kernel(move |nftables| nftables.change(&applied, generation)).await;
        let Err(ApplyError::Refused(refused)) = &outcome else { return outcome };
        if generation.is_none() {
            // The kernel may hold something else than is known, because of another program.
            return Err(ApplyError::Moved);
        }
        // The first refusal is the cause, and others may follow from it.
        let Some(first) = refused.first() else { return outcome };
        let Some(change) = first.position.and_then(|position| changes.get(position)) else { return outcome };
        let why = format!("the kernel refuses to {first}");
        let set_aside = self.agent.enforcement.engine().set_aside(change, &why);
        if set_aside.is_empty() {
            return outcome;
        }
        error!(
            policies = set_aside.join(", "),
            "set aside what the kernel refuses; pods that it selects are shut: {why}"
        );
        // The rest is tried again, without it.
        Err(ApplyError::Moved)
    }

    /// The kernel holds it.
    fn is_settled(&mut self, wanted: Wanted) {
        if !self.has_applied {
            info!(
                policies = wanted.policies,
                endpoints = wanted.in_force.len(),
                "network policy is in force"
            );
        }
        (self.has_applied, self.is_known) = (true, true);
        self.agent.metrics().policies_in_force.set(wanted.policies);
        self.agent.enforcement.in_force.send_replace(Some(wanted.in_force));
    }

    async fn read_back(&mut self) -> Result<Held, ApplyError> {
        self.read_at = Instant::now() + READ_EVERY;
        let read = |nftables: &mut Nftables| nftables.read_back(&[TABLE.into()]).map_err(ApplyError::from);
        let found = self.in_kernel(read).await?;
        if !found.strange.is_empty() {
            warn!(found = found.strange.join("; "), "recreating the table of network policy as a whole");
        }
        let is_strange = !found.strange.is_empty();
        Ok(Held { ruleset: found.ruleset, generation: found.generation, is_strange })
    }

    /// On a thread that may block: a large transaction takes a while.
    async fn in_kernel<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Nftables) -> Result<T, ApplyError> + Send + 'static,
    ) -> Result<T, ApplyError> {
        let lost = || ApplyError::from(HostError::Worker { source: None });
        let mut nftables = self.nftables.take().ok_or_else(lost)?;
        let working = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut nftables);
            (nftables, outcome)
        });
        let (nftables, outcome) = working.await.map_err(|_| lost())?;
        self.nftables = Some(nftables);
        outcome
    }

    /// Addresses of this node's devices, where policy of hosts may ask for them.
    async fn look_at_devices(&mut self) {
        if !self.agent.enforcement.engine().has_hosts() {
            return;
        }
        match self.in_kernel(|_| devices().map_err(ApplyError::from)).await {
            Ok(devices) => {
                if self.agent.enforcement.engine().set_devices(devices) {
                    self.agent.enforcement.changed.notify_one();
                }
            }
            Err(error) => {
                warn!(%error, "cannot read the addresses of this node, by which host endpoints are found")
            }
        }
    }

    /// What the rules counted, for the metrics.
    async fn count(&mut self) {
        self.count_at = Instant::now() + COUNT_EVERY;
        self.look_at_devices().await;
        let problems = self.agent.enforcement.engine().problems();
        problems.into_iter().for_each(|problem| self.agent.warn_once(format!("network policy: {problem}")));
        let counters = |nftables: &mut Nftables| nftables.counters(TABLE).map_err(ApplyError::from);
        match self.in_kernel(counters).await {
            Ok(counters) => self.agent.metrics().policy_denied.set(self.denials.totals(&counters)),
            Err(error) => debug!(%error, "cannot read the counters of network policy"),
        }
    }
}

fn devices() -> Result<BTreeMap<Arc<str>, BTreeSet<IpAddr>>, HostError> {
    let survey = Survey::within(Bounds { links: LIST_MAX, others: LIST_MAX })?;
    let names: BTreeMap<u32, Arc<str>> =
        survey.links.iter().map(|link| (link.index, link.name.as_str().into())).collect();
    let mut devices: BTreeMap<Arc<str>, BTreeSet<IpAddr>> = BTreeMap::new();
    for found in survey.addresses {
        if let Some(name) = names.get(&found.index) {
            devices.entry(Arc::clone(name)).or_default().insert(found.net.addr());
        }
    }
    Ok(devices)
}

/// What the kernel holds.
struct Held {
    ruleset: Ruleset,
    generation: u32,
    /// There is more in the table than a ruleset can say.
    is_strange: bool,
}

impl Held {
    fn changes_to(&self, wanted: &Ruleset) -> Vec<Change> {
        if !self.is_strange {
            return self.ruleset.changes_to(wanted);
        }
        // What cannot be seen cannot be changed singly.
        let delete = self.ruleset.tables.keys().map(|table| Change::DeleteTable { table: table.clone() });
        delete.chain(Ruleset::default().changes_to(wanted)).collect()
    }
}

fn report(agent: &Agent, error: &ApplyError) {
    let problem = format!(
        "cannot load the nftables rules of network policy: {}. The rules that were loaded before stay in force",
        model::text::on_one_line(error)
    );
    agent.warn_once(problem.clone());
    agent.health.set_condition(Condition::Policies, vec![problem]);
}

async fn touched(monitor: &mut Option<Monitor<TableTouched>>) -> Result<bool, HostError> {
    let Some(monitor) = monitor else { return std::future::pending().await };
    let mut is_ours = false;
    monitor
        .next(|touched| {
            is_ours |= match touched {
                TableTouched::Table(name) => name == TABLE,
                TableTouched::Any => true,
            }
        })
        .await?;
    Ok(is_ours)
}
