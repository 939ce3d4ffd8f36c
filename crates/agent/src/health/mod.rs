//! Whether the agent lives and is ready, and what it counts: three pages over HTTP, on this machine only.

mod http;
mod metrics;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use doctor::evidence::node::AddressChoice;

use doctor::evidence::node::Mend;
use doctor::mended::Mended;

use crate::mends::Mends;

pub(crate) use http::Pages;
pub(crate) use metrics::Metrics;

/// A loop that was not heard of for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// What the parts of the agent say about themselves.
#[derive(Debug)]
pub(crate) struct Health {
    started: Instant,
    pub(crate) metrics: Metrics,
    mends: Mends,
    /// Milliseconds after the start at which the reconcile loop was last heard of.
    reconcile_heard: AtomicU64,
    serving: AtomicBool,
    store_in_sync: AtomicBool,
    store_away: AtomicBool,
    /// Why the store cannot be used, as it was last asked.
    store_problem: Mutex<Option<String>>,
    reconciled: AtomicBool,
    /// Why routes to other nodes are not all there.
    routes_missing: Mutex<Vec<String>>,
    /// Why sessions of BGP are not all up. Without BGP there is nothing to miss.
    sessions_missing: Mutex<Vec<String>>,
    /// Why pods are not restricted to their own addresses; `None` if they are.
    rules_missing: Mutex<Option<String>>,
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
            serving: AtomicBool::new(false),
            store_in_sync: AtomicBool::new(false),
            store_away: AtomicBool::new(false),
            store_problem: Mutex::default(),
            reconciled: AtomicBool::new(false),
            routes_missing: Mutex::new(vec!["the routes to other nodes are not known yet".to_owned()]),
            sessions_missing: Mutex::default(),
            rules_missing: Mutex::default(),
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

    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Relaxed);
    }

    pub(crate) fn set_store_in_sync(&self, in_sync: bool) {
        self.store_in_sync.store(in_sync, Ordering::Relaxed);
        self.metrics.store_in_sync.store(i64::from(in_sync), Ordering::Relaxed);
    }

    /// Why the store cannot be used now; nothing if it can.
    pub(crate) fn set_store_problem(&self, problem: Option<String>) {
        self.set_store_away(problem.is_some());
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
        self.reconciled.store(reconciled, Ordering::Relaxed);
    }

    pub(crate) fn is_store_in_sync(&self) -> bool {
        self.store_in_sync.load(Ordering::Relaxed)
    }

    pub(crate) fn is_reconciled(&self) -> bool {
        self.reconciled.load(Ordering::Relaxed)
    }

    /// Why routes to other nodes are not all there; nothing if they are.
    pub(crate) fn set_routes_missing(&self, reasons: Vec<String>) {
        *self.routes_missing.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// The same for sessions of BGP.
    pub(crate) fn set_sessions_missing(&self, reasons: Vec<String>) {
        *self.sessions_missing.lock().unwrap_or_else(PoisonError::into_inner) = reasons;
    }

    /// Why pods are not restricted to their own addresses; `None` if they are.
    pub(crate) fn set_rules_missing(&self, reason: Option<String>) {
        *self.rules_missing.lock().unwrap_or_else(PoisonError::into_inner) = reason;
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
        let conditions = [
            (self.serving.load(Ordering::Relaxed), "the socket is not served"),
            (self.is_store_in_sync(), "the store's records are not known yet"),
            (self.is_reconciled(), "the kernel's state differs from what it should be"),
        ];
        let mut problems: Vec<String> =
            conditions.into_iter().filter(|(fine, _)| !fine).map(|(_, problem)| problem.to_owned()).collect();
        problems.extend(self.store_problem().map(|problem| format!("the store cannot be used: {problem}")));
        for missing in [&self.routes_missing, &self.sessions_missing] {
            problems.extend(missing.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        }
        problems.extend(self.rules_missing.lock().unwrap_or_else(PoisonError::into_inner).clone());
        problems
    }
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
        assert_eq!(health.not_ready(), ["the kernel's state differs from what it should be"]);
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
    }
}
