//! Our whole nftables table: packets that leave the cluster get this node's address, only nodes send into tunnels, and pods send only from their
//! own addresses.

use std::time::Duration;

use doctor::mended;
use host::HostError;
use host::between::nft;
use tokio::time::Instant;
use tracing::info;

use super::cache::Cache;
use crate::failpoint::{self, Point};
use crate::services::Agent;

/// How often to check for changes that were not announced. A check starts a process, so it is rare.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Between two checks after announcements.
const CHECK_PAUSE: Duration = Duration::from_millis(100);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What was loaded.
#[derive(Debug, Default)]
pub(super) struct Nat {
    loaded: Option<Loaded>,
    checked_at: Option<Instant>,
    check_at: Option<Instant>,
}

#[derive(Debug)]
struct Loaded {
    rules: String,
    /// As nft lists them.
    listed: String,
}

impl Nat {
    /// When to call `keep` again.
    pub(super) fn due(&self) -> Instant {
        self.check_at.unwrap_or_else(Instant::now)
    }

    /// The rules changed, perhaps by ourselves.
    pub(super) fn check_soon(&mut self) {
        let now = Instant::now();
        let soon = self.checked_at.map_or(now, |checked| (checked + CHECK_PAUSE).max(now));
        self.check_at = self.check_at.map(|due| due.min(soon));
    }

    /// Loads the desired rules if they are missing.
    pub(super) async fn keep(&mut self, agent: &Agent, cache: &Cache) {
        let Some(wanted) = cache.lock().between.nat().map(str::to_owned) else { return };
        let is_reload = self.is_loaded(&wanted);
        let outcome = match self.is_in_place(&wanted).await {
            Ok(true) => Ok(()),
            Ok(false) => self.load(wanted).await.inspect(|()| record_fix(agent, is_reload)),
            Err(error) => Err(error),
        };
        let pause = if outcome.is_ok() { CHECK_EVERY } else { RETRY_DELAY };
        let now = Instant::now();
        (self.checked_at, self.check_at) = (Some(now), Some(now + pause));
        let problem = outcome.err().map(|error| {
            format!(
                "cannot load the nftables rules of the cluster: {}. Until then packets that leave the cluster may keep their pods' \
                 addresses, and hosts that are not nodes may send into tunnels",
                model::text::on_one_line(&error)
            )
        });
        if let Some(problem) = &problem {
            agent.warn_once(problem.clone());
        }
        agent.health.set_cluster_rules_missing(problem);
    }

    async fn is_in_place(&self, wanted: &str) -> Result<bool, HostError> {
        match &self.loaded {
            Some(loaded) if loaded.rules == wanted => {
                Ok(blocking(nft::list).await?.as_ref() == Some(&loaded.listed))
            }
            _ => Ok(false),
        }
    }

    /// Whether these are the rules that were loaded last. Another program may have removed them since.
    fn is_loaded(&self, wanted: &str) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.rules == wanted)
    }

    async fn load(&mut self, rules: String) -> Result<(), HostError> {
        let text = rules.clone();
        failpoint::hit(Point::BetweenBeforeRules);
        let listed = blocking(move || nft::load(&text)).await?;
        failpoint::hit(Point::BetweenAfterRules);
        // Logged once, because each node that comes or goes changes them.
        if self.loaded.is_none() {
            info!("loaded our nftables rules");
        }
        self.loaded = Some(Loaded { rules, listed });
        Ok(())
    }
}

/// Rules that had to be loaded again were removed or changed by another program.
fn record_fix(agent: &Agent, is_reload: bool) {
    if is_reload {
        let words = "another program changed our nftables rules; loaded them again";
        agent.health.record_fix(&mended::rules(&agent.node), words);
    }
}

/// Not on the kernel thread: this waits for a process, and calls need that thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(HostError::Worker { source: None }))
}
