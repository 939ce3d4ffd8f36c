//! Liveness, readiness and metrics of the agent, served over HTTP on this machine only.

mod metrics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evidence::node::AddressChoice;

use doctor::mended::Mended;
use evidence::node::Mend;

use crate::fixes::Fixes;

pub(crate) use ::health::{HealthServer, Pages};
pub(crate) use metrics::Metrics;

/// A reconciler that shows no sign of life for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(90);

const NOT_SERVING: &str = "the agent does not serve its socket";
const NOT_IN_SYNC: &str = "the store's records are not cached yet";
const NOT_RECONCILED: &str = "the kernel's state differs from the desired state";
const NO_POLICY: &str = "the rules of network policy have not been loaded yet";
const NOT_OBSERVED: &str = "the kernel's state has not been observed yet";

/// What readiness depends on. A condition is met while it has no problems; each part of the agent sets its own with
/// [`Health::set_condition`]. The names are label values of the metric `plumb_not_ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// Plugins can call.
    Socket,
    /// The journal and the queue can be written.
    StateDirectory,
    /// The store can be read and written.
    Store,
    /// The store's records are cached.
    Records,
    /// The kernel is in the desired state.
    Kernel,
    /// All routes to other nodes are in place.
    Routes,
    /// All BGP sessions are established. Always met without BGP.
    Sessions,
    /// Pods are restricted to their own addresses.
    Rules,
    /// The other nftables rules are loaded: masquerading, and who may send into tunnels.
    ClusterRules,
    /// The rules of network policy are loaded.
    Policies,
}

impl Condition {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Condition::Socket => "socket",
            Condition::StateDirectory => "state-folder",
            Condition::Store => "store",
            Condition::Records => "records",
            Condition::Kernel => "kernel",
            Condition::Routes => "routes",
            Condition::Sessions => "bgp",
            Condition::Rules => "rules",
            Condition::ClusterRules => "cluster-rules",
            Condition::Policies => "policies",
        }
    }
}

/// Every condition with its problems.
pub(crate) type Conditions = BTreeMap<Condition, Vec<String>>;

/// What the parts of the agent report about themselves.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    pub(crate) metrics: Metrics,
    fixes: Fixes,
    /// Milliseconds from the start to the reconciler's last sign of life.
    reconciler_alive: AtomicU64,
    store_away: AtomicBool,
    /// The error of the last probe of the store.
    store_problem: Mutex<Option<String>>,
    conditions: Mutex<Conditions>,
    /// Invalid records, which this node skips. They do not make it unready.
    invalid_records: Mutex<Vec<String>>,
    invalid_bgp_records: Mutex<Vec<String>>,
    /// This node's address of each IP version, and why. Empty until it has been checked.
    address_choices: Mutex<Vec<AddressChoice>>,
}

impl Health {
    pub(crate) fn new() -> Health {
        Health {
            started: Instant::now(),
            metrics: Metrics::default(),
            fixes: Fixes::default(),
            reconciler_alive: AtomicU64::new(0),
            store_away: AtomicBool::new(false),
            store_problem: Mutex::default(),
            conditions: Mutex::new(at_start()),
            invalid_records: Mutex::default(),
            invalid_bgp_records: Mutex::default(),
            address_choices: Mutex::default(),
        }
    }

    /// Logs, counts and keeps an automatic fix. `words` say what was wrong or what was done.
    pub(crate) fn record_fix(&self, mended: &Mended, words: &str) {
        self.fixes.record(mended, words, &self.metrics);
    }

    /// The last fixes, oldest first.
    pub(crate) fn fixes(&self) -> Vec<Mend> {
        self.fixes.all()
    }

    pub(crate) fn reconciler_is_alive(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.reconciler_alive.store(now, Ordering::Relaxed);
    }

    /// Sets the problems of a condition; none if it is met.
    pub(crate) fn set_condition(&self, condition: Condition, problems: Vec<String>) {
        self.conditions().insert(condition, problems);
    }

    /// The problems of a condition.
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
        self.metrics.store_in_sync.set_flag(in_sync);
    }

    /// Why the store cannot be used now; `None` if it can.
    pub(crate) fn set_store_problem(&self, problem: Option<String>) {
        self.set_store_away(problem.is_some());
        let words = problem.as_ref().map(|problem| format!("cannot use the store: {problem}"));
        self.set_condition(Condition::Store, words.into_iter().collect());
        *self.store_problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(crate) fn store_problem(&self) -> Option<String> {
        self.store_problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the store did not answer, and has not answered since.
    pub(crate) fn set_store_away(&self, away: bool) {
        self.store_away.store(away, Ordering::Relaxed);
        self.metrics.store_away.set_flag(away);
    }

    pub(crate) fn is_store_away(&self) -> bool {
        self.store_away.load(Ordering::Relaxed)
    }

    /// Whether the last observation left no difference in the kernel.
    pub(crate) fn set_reconciled(&self, reconciled: bool) {
        self.set_met(Condition::Kernel, reconciled, NOT_RECONCILED);
    }

    pub(crate) fn is_store_in_sync(&self) -> bool {
        self.is_met(Condition::Records)
    }

    pub(crate) fn is_reconciled(&self) -> bool {
        self.is_met(Condition::Kernel)
    }

    /// Why routes to other nodes are missing; none if they are all in place.
    pub(crate) fn set_routes_missing(&self, reasons: Vec<String>) {
        self.set_condition(Condition::Routes, reasons);
    }

    /// The same for BGP sessions.
    pub(crate) fn set_sessions_missing(&self, reasons: Vec<String>) {
        self.set_condition(Condition::Sessions, reasons);
    }

    /// Why pods are not restricted to their own addresses; `None` if they are.
    pub(crate) fn set_rules_missing(&self, reason: Option<String>) {
        self.set_condition(Condition::Rules, reason.into_iter().collect());
    }

    /// Why the cluster's nftables rules cannot be loaded; `None` if they are.
    pub(crate) fn set_cluster_rules_missing(&self, reason: Option<String>) {
        self.metrics.nat_failed.set_flag(reason.is_some());
        self.set_condition(Condition::ClusterRules, reason.into_iter().collect());
    }

    /// Invalid records that this node skips, each with the reason.
    pub(crate) fn set_invalid_records(&self, reasons: Vec<String>) {
        *self.invalid_records.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// The same for BGP records.
    pub(crate) fn set_invalid_bgp_records(&self, reasons: Vec<String>) {
        *self.invalid_bgp_records.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    pub(crate) fn set_address_choices(&self, choices: Vec<AddressChoice>) {
        *self.address_choices.lock().unwrap_or_else(PoisonError::into_inner) = choices;
    }

    pub(crate) fn address_choices(&self) -> Vec<AddressChoice> {
        self.address_choices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Pages for Health {
    fn not_alive(&self) -> Option<String> {
        let alive = Duration::from_millis(self.reconciler_alive.load(Ordering::Relaxed));
        let silent = self.started.elapsed().saturating_sub(alive);
        (silent > SILENCE_MAX).then(|| format!("the reconciler has hung for {} s", silent.as_secs()))
    }

    /// The problems of all conditions. Pods can be added if there are none.
    fn not_ready(&self) -> Vec<String> {
        self.conditions().values().flatten().cloned().collect()
    }

    fn invalid_records(&self) -> Vec<String> {
        let mut all = self.invalid_records.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.extend_from_slice(&self.invalid_bgp_records.lock().unwrap_or_else(PoisonError::into_inner));
        all
    }

    fn metrics_page(&self) -> String {
        let unmet = |(condition, problems): (&Condition, &Vec<String>)| {
            ([condition.as_str()], u64::from(!problems.is_empty()))
        };
        self.metrics.not_ready.set(self.conditions().iter().map(unmet));
        self.metrics.page()
    }
}

/// Nothing has been checked yet, except that the state directory could be opened.
fn at_start() -> Conditions {
    let problem = |text: &str| vec![text.to_owned()];
    BTreeMap::from([
        (Condition::Socket, problem(NOT_SERVING)),
        (Condition::StateDirectory, Vec::new()),
        (Condition::Store, Vec::new()),
        (Condition::Records, problem(NOT_IN_SYNC)),
        (Condition::Kernel, problem(NOT_OBSERVED)),
        (Condition::Routes, problem("the routes to other nodes have not been computed yet")),
        (Condition::Sessions, Vec::new()),
        (Condition::Rules, Vec::new()),
        (Condition::ClusterRules, Vec::new()),
        (Condition::Policies, problem(NO_POLICY)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_all_of_it() {
        let health = Health::new();
        assert_eq!(health.not_ready().len(), 5);
        health.set_condition(Condition::Policies, Vec::new());
        health.set_routes_missing(Vec::new());
        health.set_serving(true);
        health.set_store_in_sync(true);
        assert_eq!(health.not_ready(), ["the kernel's state has not been observed yet"]);
        health.set_reconciled(true);
        assert_eq!(health.not_ready(), [] as [&str; 0]);
        health.set_store_in_sync(false);
        assert_eq!(health.not_ready(), ["the store's records are not cached yet"]);
        health.set_store_in_sync(true);
        health.set_store_problem(Some("no answer".to_owned()));
        assert_eq!(health.not_ready(), ["cannot use the store: no answer"]);
        health.set_store_problem(None);
        assert_eq!(health.not_ready(), [] as [&str; 0]);
        health.set_rules_missing(Some("no nft".to_owned()));
        assert_eq!(health.not_ready(), ["no nft"]);
        health.set_cluster_rules_missing(Some("nft fails".to_owned()));
        assert_eq!(health.not_ready(), ["no nft", "nft fails"]);
        health.set_cluster_rules_missing(None);
        assert_eq!(health.not_alive(), None);
        health.set_condition(Condition::StateDirectory, vec!["it is full".to_owned()]);
        assert_eq!(health.not_ready(), ["it is full", "no nft"]);
        let page = health.metrics_page();
        for line in ["state-folder\"} 1\n", "store\"} 0\n", "socket\"} 0\n"] {
            assert!(page.contains(&format!("plumb_not_ready{{condition=\"{line}")), "{page}");
        }
    }
}
