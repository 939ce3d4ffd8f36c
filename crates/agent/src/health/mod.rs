//! Whether the agent lives and is ready, and what it counts: three pages over HTTP, on this machine only.

mod http;
mod metrics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doctor::evidence::node::AddressChoice;

use doctor::evidence::node::Mend;
use doctor::mended::Mended;

use crate::mends::Mends;

pub(crate) use http::Pages;
pub(crate) use metrics::Metrics;

/// A loop that was not heard of for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(90);

const NOT_SERVING: &str = "the socket is not served";
const NOT_IN_SYNC: &str = "the store's records are not known yet";
const NOT_RECONCILED: &str = "the kernel's state differs from what it should be";
const NOT_CHECKED: &str = "the kernel's state has not been checked yet";

/// What readiness depends on. Each condition is met while it has no problem; a part of the agent sets its own with
/// [`Health::set_condition`]. The names are labels of the metric `plumb_not_ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// Plugins can call.
    Socket,
    /// The journal and the queue can be written.
    StateFolder,
    /// The store can be read and written.
    Store,
    /// The store's records are known.
    Records,
    /// The kernel holds what it should.
    Kernel,
    /// Routes to other nodes are all there.
    Routes,
    /// Sessions of BGP are all up. Without BGP there is nothing to miss.
    Sessions,
    /// Pods are restricted to their own addresses.
    Rules,
}

impl Condition {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Condition::Socket => "socket",
            Condition::StateFolder => "state-folder",
            Condition::Store => "store",
            Condition::Records => "records",
            Condition::Kernel => "kernel",
            Condition::Routes => "routes",
            Condition::Sessions => "bgp",
            Condition::Rules => "rules",
        }
    }
}

/// Every condition with its problems.
pub(crate) type Conditions = BTreeMap<Condition, Vec<String>>;

/// What the parts of the agent say about themselves.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    pub(crate) metrics: Metrics,
    mends: Mends,
    /// Milliseconds after the start at which the reconcile loop was last heard of.
    reconcile_heard: AtomicU64,
    store_away: AtomicBool,
    /// Why the store cannot be used, as it was last asked.
    store_problem: Mutex<Option<String>>,
    conditions: Mutex<Conditions>,
    /// Records that are wrong, and that this node does not follow. It works without: they make it no less ready.
    records_wrong: Mutex<Vec<String>>,
    bgp_records_wrong: Mutex<Vec<String>>,
    /// What this node goes by, and why. Empty until that has been looked at.
    address_choices: Mutex<Vec<AddressChoice>>,
}

impl Health {
    pub(crate) fn new() -> Health {
        Health {
            started: Instant::now(),
            metrics: Metrics::default(),
            mends: Mends::default(),
            reconcile_heard: AtomicU64::new(0),
            store_away: AtomicBool::new(false),
            store_problem: Mutex::default(),
            conditions: Mutex::new(at_start()),
            records_wrong: Mutex::default(),
            bgp_records_wrong: Mutex::default(),
            address_choices: Mutex::default(),
        }
    }

    /// Something was put right without anybody asking for it. `words` say what was wrong.
    pub(crate) fn mended(&self, mended: &Mended, words: &str) {
        self.mends.note(mended, words, &self.metrics);
    }

    /// What was put right of late, oldest first.
    pub(crate) fn mends(&self) -> Vec<Mend> {
        self.mends.all()
    }

    pub(crate) fn heard_of_reconcile(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.reconcile_heard.store(now, Ordering::Relaxed);
    }

    /// Says what keeps a condition from being met; nothing if it is met.
    pub(crate) fn set_condition(&self, condition: Condition, problems: Vec<String>) {
        self.conditions().insert(condition, problems);
    }

    /// What keeps a condition from being met.
    pub(crate) fn problems_of(&self, condition: Condition) -> Vec<String> {
        self.conditions().get(&condition).cloned().unwrap_or_default()
    }

    fn is_met(&self, condition: Condition) -> bool {
        self.conditions().get(&condition).is_none_or(Vec::is_empty)
    }

    fn set_met(&self, condition: Condition, is_met: bool, problem: &str) {
        self.set_condition(condition, if is_met { Vec::new() } else { vec![problem.to_owned()] });
    }

    fn conditions(&self) -> MutexGuard<'_, Conditions> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_serving(&self, serving: bool) {
        self.set_met(Condition::Socket, serving, NOT_SERVING);
    }

    pub(crate) fn set_store_in_sync(&self, in_sync: bool) {
        self.set_met(Condition::Records, in_sync, NOT_IN_SYNC);
        self.metrics.store_in_sync.store(i64::from(in_sync), Ordering::Relaxed);
    }

    /// Why the store cannot be used now; nothing if it can.
    pub(crate) fn set_store_problem(&self, problem: Option<String>) {
        self.set_store_away(problem.is_some());
        let words = problem.as_ref().map(|problem| format!("the store cannot be used: {problem}"));
        self.set_condition(Condition::Store, words.into_iter().collect());
        *self.store_problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(crate) fn store_problem(&self) -> Option<String> {
        self.store_problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether somebody waited for the store in vain, and nobody has had an answer since.
    pub(crate) fn set_store_away(&self, away: bool) {
        self.store_away.store(away, Ordering::Relaxed);
        self.metrics.store_away.store(i64::from(away), Ordering::Relaxed);
    }

    pub(crate) fn is_store_away(&self) -> bool {
        self.store_away.load(Ordering::Relaxed)
    }

    /// Whether the last look at the kernel left nothing wrong.
    pub(crate) fn set_reconciled(&self, reconciled: bool) {
        self.set_met(Condition::Kernel, reconciled, NOT_RECONCILED);
    }

    pub(crate) fn is_store_in_sync(&self) -> bool {
        self.is_met(Condition::Records)
    }

    pub(crate) fn is_reconciled(&self) -> bool {
        self.is_met(Condition::Kernel)
    }

    /// Why routes to other nodes are not all there; nothing if they are.
    pub(crate) fn set_routes_missing(&self, reasons: Vec<String>) {
        self.set_condition(Condition::Routes, reasons);
    }

    /// The same for sessions of BGP.
    pub(crate) fn set_sessions_missing(&self, reasons: Vec<String>) {
        self.set_condition(Condition::Sessions, reasons);
    }

    /// Why pods are not restricted to their own addresses; `None` if they are.
    pub(crate) fn set_rules_missing(&self, reason: Option<String>) {
        self.set_condition(Condition::Rules, reason.into_iter().collect());
    }

    /// Records that are wrong and are not followed, each with the reason.
    pub(crate) fn set_records_wrong(&self, reasons: Vec<String>) {
        *self.records_wrong.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// The same for records of BGP.
    pub(crate) fn set_bgp_records_wrong(&self, reasons: Vec<String>) {
        *self.bgp_records_wrong.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    pub(crate) fn records_wrong(&self) -> Vec<String> {
        let mut all = self.records_wrong.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend_from_slice(&self.bgp_records_wrong.lock().unwrap_or_else(PoisonError::into_inner));
        all
    }

    pub(crate) fn set_address_choices(&self, choices: Vec<AddressChoice>) {
        *self.address_choices.lock().unwrap_or_else(PoisonError::into_inner) = choices;
    }

    pub(crate) fn address_choices(&self) -> Vec<AddressChoice> {
        self.address_choices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the agent should be started anew; nothing if it lives.
    pub(crate) fn not_alive(&self) -> Option<String> {
        let heard = Duration::from_millis(self.reconcile_heard.load(Ordering::Relaxed));
        let silent = self.started.elapsed().saturating_sub(heard);
        (silent > SILENCE_MAX)
            .then(|| format!("the reconcile loop was not heard of for {} s", silent.as_secs()))
    }

    /// What is missing before pods can be added.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        self.conditions().values().flatten().cloned().collect()
    }

    /// The text of the page for Prometheus.
    pub(crate) fn metrics_page(&self) -> String {
        let mut text = self.metrics.text();
        text.push_str("# HELP plumb_not_ready 1 for each condition of readiness that is not met\n");
        text.push_str("# TYPE plumb_not_ready gauge\n");
        for (condition, problems) in self.conditions().iter() {
            let value = i32::from(!problems.is_empty());
            text.push_str(&format!("plumb_not_ready{{condition=\"{}\"}} {value}\n", condition.as_str()));
        }
        text
    }
}

/// Nothing is known yet, except that the state folder could be opened.
fn at_start() -> Conditions {
    let problem = |text: &str| vec![text.to_owned()];
    BTreeMap::from([
        (Condition::Socket, problem(NOT_SERVING)),
        (Condition::StateFolder, Vec::new()),
        (Condition::Store, Vec::new()),
        (Condition::Records, problem(NOT_IN_SYNC)),
        (Condition::Kernel, problem(NOT_CHECKED)),
        (Condition::Routes, problem("the routes to other nodes are not known yet")),
        (Condition::Sessions, Vec::new()),
        (Condition::Rules, Vec::new()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_all_of_it() {
        let health = Health::new();
        assert_eq!(health.not_ready().len(), 4);
        health.set_routes_missing(Vec::new());
        health.set_serving(true);
        health.set_store_in_sync(true);
        assert_eq!(health.not_ready(), ["the kernel's state has not been checked yet"]);
        health.set_reconciled(true);
        assert_eq!(health.not_ready(), [] as [&str; 0]);
        health.set_store_in_sync(false);
        assert_eq!(health.not_ready(), ["the store's records are not known yet"]);
        health.set_store_in_sync(true);
        health.set_store_problem(Some("no answer".to_owned()));
        assert_eq!(health.not_ready(), ["the store cannot be used: no answer"]);
        health.set_store_problem(None);
        assert_eq!(health.not_ready(), [] as [&str; 0]);
        health.set_rules_missing(Some("no nft".to_owned()));
        assert_eq!(health.not_ready(), ["no nft"]);
        assert_eq!(health.not_alive(), None);
        health.set_condition(Condition::StateFolder, vec!["it is full".to_owned()]);
        assert_eq!(health.not_ready(), ["it is full", "no nft"]);
        let page = health.metrics_page();
        for line in ["state-folder\"} 1\n", "store\"} 0\n", "socket\"} 0\n"] {
            assert!(page.contains(&format!("plumb_not_ready{{condition=\"{line}")), "{page}");
        }
    }
}
