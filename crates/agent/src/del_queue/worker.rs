//! Retries queued DELs: a new one at once, one that failed after a growing delay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::failpoint::{self, Point};
use crate::services::{Agent, Services};
use crate::verbs::{self, CniError};

/// The plugin queues DELs without notifying the agent.
const POLL_EVERY: Duration = Duration::from_secs(5);
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// So many DELs in a row fail at the store before it counts as away: what it refuses for one pod, it may do for the next.
const STORE_FAILURES_MAX: u32 = 3;

/// How often each DEL failed, and when it is due again.
#[derive(Debug, Default)]
struct Attempts(HashMap<String, (u32, Instant)>);

/// One pass over the queue.
#[derive(Debug, Default)]
struct Round {
    store_failures: u32,
}

impl Round {
    /// Whether the next DEL is worth a try.
    fn goes_on_after(&mut self, error: Option<&CniError>) -> bool {
        match error {
            Some(error) if error.is_store_failure() => self.store_failures += 1,
            Some(_) => {}
            None => self.store_failures = 0,
        }
        self.store_failures < STORE_FAILURES_MAX
    }
}

/// Never ends.
pub(crate) async fn work(agent: &Agent) {
    let mut attempts = Attempts::default();
    loop {
        let next = retry_due(Services::Agent(agent), &mut attempts).await;
        let wait = next.map_or(POLL_EVERY, |next| next.duration_since(Instant::now()).min(POLL_EVERY));
        tokio::select! {
            () = agent.queue.added() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// For a process that serves one call: tries each DEL once.
pub(crate) async fn work_once(services: Services<'_>) {
    retry_due(services, &mut Attempts::default()).await;
}

/// Tries every DEL that is due. Returns when the next one is.
async fn retry_due(services: Services<'_>, attempts: &mut Attempts) -> Option<Instant> {
    let directory = services.queue.path().display();
    if let Err(error) = services.queue.remove_stale_temporaries() {
        debug!(%directory, %error, "cannot remove a temporary file");
    }
    let waiting = match services.queue.waiting() {
        Ok(waiting) => waiting,
        Err(error) => {
            warn!(%directory, %error, "cannot read the DEL queue");
            return None;
        }
    };
    services.metrics().dels_waiting.set(waiting.len());
    attempts.0.retain(|name, _| waiting.iter().any(|(known, _)| known == name));
    let mut round = Round::default();
    for (name, request) in attempts.in_order(waiting) {
        if !attempts.is_due(&name, Instant::now()) {
            continue;
        }
        failpoint::hit(Point::QueueBefore);
        let outcome = verbs::retry_queued_del(&name, &request, services).await;
        match &outcome {
            Ok(()) => {}
            Err(error) if error.is_permanent() => {
                services.queue.quarantine(&name, &error.message);
            }
            Err(error) => {
                debug!(queued = name, %error, "a queued DEL failed again");
                services.metrics().dels_retried.increment();
                attempts.failed(&name, Instant::now());
            }
        }
        if !round.goes_on_after(outcome.as_ref().err()) {
            // The next one needs the store as well.
            attempts.delay_all_until(Instant::now() + RETRY_DELAY_MIN);
            break;
        }
    }
    attempts.0.values().map(|(_, due)| *due).min()
}

impl Attempts {
    fn is_due(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_none_or(|(_, due)| *due <= now)
    }

    /// Those first that failed the least often: they must not wait for those that fail every time.
    fn in_order(&self, mut waiting: Vec<(String, wire::Call)>) -> Vec<(String, wire::Call)> {
        waiting.sort_by_key(|(name, _)| self.0.get(name).map_or(0, |(failures, _)| *failures));
        waiting
    }

    fn failed(&mut self, name: &str, now: Instant) {
        let (failures, due) = self.0.entry(name.to_owned()).or_insert((0, now));
        let delay = RETRY_DELAY_MIN.saturating_mul(1 << (*failures).min(10)).min(RETRY_DELAY_MAX);
        *failures += 1;
        *due = now + delay;
    }

    fn delay_all_until(&mut self, earliest: Instant) {
        for (_, due) in self.0.values_mut() {
            *due = (*due).max(earliest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::code;

    #[test]
    fn the_delay_grows_with_each_failure_up_to_a_bound() {
        let mut attempts = Attempts::default();
        let (mut now, mut waits) = (Instant::now(), Vec::new());
        assert!(attempts.is_due("a", now));
        for _ in 0..9 {
            attempts.failed("a", now);
            assert!(!attempts.is_due("a", now) && attempts.is_due("b", now));
            let wait = attempts.0["a"].1 - now;
            waits.push(wait.as_secs());
            now += wait;
            assert!(attempts.is_due("a", now));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        attempts.delay_all_until(now + RETRY_DELAY_MIN);
        assert!(!attempts.is_due("a", now));
    }

    #[test]
    fn one_pod_that_the_store_refuses_holds_up_no_other() {
        let refused = CniError::new(code::STORE, "a webhook fails for this pod");
        let mut round = Round::default();
        assert!(round.goes_on_after(Some(&refused)) && round.goes_on_after(None));
        assert!(round.goes_on_after(Some(&refused)) && round.goes_on_after(Some(&refused)));
        assert!(!round.goes_on_after(Some(&refused)), "three in a row: it is the store");
        let other = CniError::environment("no such namespace");
        assert!((0..9).all(|_| Round::default().goes_on_after(Some(&other))));
    }

    #[test]
    fn those_that_fail_every_time_come_last() {
        let mut attempts = Attempts::default();
        attempts.failed("bad", Instant::now());
        let call = wire::Call::new(wire::Role::Network, [], "");
        let waiting = ["bad", "old", "new"].map(|name| (name.to_owned(), call.clone())).to_vec();
        let order: Vec<String> = attempts.in_order(waiting).into_iter().map(|(name, _)| name).collect();
        assert_eq!(order, ["old", "new", "bad"]);
    }
}
