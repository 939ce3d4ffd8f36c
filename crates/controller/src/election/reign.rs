//! For how long this process leads: known to everything that acts, and over by itself if it is not renewed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Until when this process may act. Shared by the election, which extends it, and by whatever acts.
#[derive(Debug)]
pub struct Reign {
    until: Mutex<Option<Instant>>,
    changes: watch::Sender<bool>,
}

impl Default for Reign {
    fn default() -> Reign {
        Reign { until: Mutex::default(), changes: watch::Sender::new(false) }
    }
}

impl Reign {
    /// How much time there is left to act; `None`: it does not lead.
    pub fn left(&self) -> Option<Duration> {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Leads until then, or longer.
    pub fn extend(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.changes.send_replace(true);
    }

    /// Does not lead any more.
    pub fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.changes.send_replace(false);
    }

    /// Returns as soon as this process leads.
    pub async fn begun(&self) {
        let mut changes = self.changes.subscribe();
        while self.left().is_none() {
            // The sender is ours, so it does not end.
            let _ = changes.changed().await;
        }
    }

    /// Returns as soon as it does not, also if nothing says so: what is not renewed ends.
    pub async fn ended(&self) {
        let mut changes = self.changes.subscribe();
        while let Some(left) = self.left() {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_ends_by_itself_and_when_it_is_ended() {
        let reign = Reign::default();
        assert_eq!(reign.left(), None);
        reign.extend(Instant::now() + Duration::from_millis(20));
        reign.begun().await;
        reign.ended().await;
        assert_eq!(reign.left(), None);
        reign.extend(Instant::now() + Duration::from_secs(1000));
        assert!(reign.left() > Some(Duration::from_secs(900)));
        reign.end();
        reign.ended().await;
    }
}
