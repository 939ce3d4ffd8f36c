//! Works off the queue: at once when something comes in, later again what failed.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::cni::{self, Services};
use crate::failpoint::{self, Point};

/// The plugin writes into the folder without telling.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// When something that failed is tried again.
#[derive(Debug, Default)]
struct Attempts(HashMap<String, (u32, Instant)>);

/// Never ends.
pub(crate) async fn work(services: &Services) {
    let mut attempts = Attempts::default();
    loop {
        let next = round(services, &mut attempts).await;
        let wait = next.map_or(LOOK_EVERY, |next| next.duration_since(Instant::now()).min(LOOK_EVERY));
        tokio::select! {
            () = services.queue().news() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// For a process that serves one call: tries each once.
pub(crate) async fn work_once(services: &Services) {
    round(services, &mut Attempts::default()).await;
}

/// Tries everything that is due. Says when the next is.
async fn round(services: &Services, attempts: &mut Attempts) -> Option<Instant> {
    if let Err(error) = services.queue().remove_unfinished() {
        debug!("something unfinished stays in {}: {error}", services.queue().path().display());
    }
    let waiting = match services.queue().waiting() {
        Ok(waiting) => waiting,
        Err(error) => {
            warn!("{} cannot be read: {error}", services.queue().path().display());
            return None;
        }
    };
    services
        .metrics()
        .dels_waiting
        .store(i64::try_from(waiting.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
    attempts.0.retain(|name, _| waiting.iter().any(|(known, _)| known == name));
    for (name, request) in waiting {
        if !attempts.is_due(&name, Instant::now()) {
            continue;
        }
        failpoint::hit(Point::QueueBefore);
        match cni::finish_del(&request, services).await {
            Ok(()) => {
                failpoint::hit(Point::QueueFinished);
                if let Err(error) = services.queue().done(&name) {
                    warn!(queued = name, "it is done but stays in the queue: {error}");
                }
                failpoint::hit(Point::QueueAfter);
            }
            Err(error) if error.is_of_request() => {
                services.queue().set_aside(&name, &error.message);
            }
            Err(error) => {
                debug!(queued = name, "not done yet: {} ({})", error.message, error.details);
                services.metrics().dels_retried.fetch_add(1, Ordering::Relaxed);
                attempts.failed(&name, Instant::now());
                if error.is_of_store() {
                    // The next one needs the store as well.
                    attempts.put_off_all(Instant::now() + RETRY_DELAY_MIN);
                    break;
                }
            }
        }
    }
    attempts.0.values().map(|(_, due)| *due).min()
}

impl Attempts {
    fn is_due(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_none_or(|(_, due)| *due <= now)
    }

    fn failed(&mut self, name: &str, now: Instant) {
        let (failures, due) = self.0.entry(name.to_owned()).or_insert((0, now));
        let delay = RETRY_DELAY_MIN.saturating_mul(1 << (*failures).min(10)).min(RETRY_DELAY_MAX);
        *failures += 1;
        *due = now + delay;
    }

    fn put_off_all(&mut self, earliest: Instant) {
        for (_, due) in self.0.values_mut() {
            *due = (*due).max(earliest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_ever_later_up_to_a_bound() {
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
        attempts.put_off_all(now + RETRY_DELAY_MIN);
        assert!(!attempts.is_due("a", now));
    }
}
