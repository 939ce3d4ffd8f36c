//! The rules by which packets leave the cluster with this node's address, by which only nodes get packets into tunnels, and by which pods
//! send only from their own addresses: our whole table of nftables.

use std::sync::atomic::Ordering;
use std::time::Duration;

use doctor::mended;
use host::HostError;
use host::between::nft;
use tokio::time::Instant;
use tracing::info;

use super::known::Known;
use crate::cni::Services;
use crate::failpoint::{self, Point};

/// How often to look whether somebody changed them without an announcement. It takes a process, so not often.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Between two looks that announcements ask for.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What was loaded.
#[derive(Debug, Default)]
pub(super) struct Nat {
    loaded: Option<Loaded>,
    looked_at: Option<Instant>,
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Loaded {
    rules: String,
    /// How nft lists them.
    listed: String,
}

impl Nat {
    /// When it wants to be asked again.
    pub(super) fn due(&self) -> Instant {
        self.look_at.unwrap_or_else(Instant::now)
    }

    /// Somebody touched them, perhaps we ourselves.
    pub(super) fn check_soon(&mut self) {
        let now = Instant::now();
        let soon = self.looked_at.map_or(now, |looked| (looked + LOOK_PAUSE).max(now));
        self.look_at = self.look_at.map(|due| due.min(soon));
    }

    /// Loads the rules that are wanted if they are not there.
    pub(super) async fn keep(&mut self, services: &Services, known: &Known) {
        let Some(wanted) = known.lock().between.nat().map(str::to_owned) else { return };
        let is_known = self.is_loaded(&wanted);
        let outcome = match self.is_there(&wanted).await {
            Ok(true) => Ok(()),
            Ok(false) => self.load(wanted).await.inspect(|()| note_mend(services, is_known)),
            Err(error) => Err(error),
        };
        services.metrics().nat_failed.store(i64::from(outcome.is_err()), Ordering::Relaxed);
        let pause = if outcome.is_ok() { LOOK_EVERY } else { RETRY_DELAY };
        let now = Instant::now();
        (self.looked_at, self.look_at) = (Some(now), Some(now + pause));
        if let Err(error) = outcome {
            services.say_once(format!(
                "the nftables rules of the cluster cannot be loaded: packets that leave it may keep their pods' addresses, \
                 and hosts that are no nodes may send into tunnels: {error}"
            ));
        }
    }

    async fn is_there(&self, wanted: &str) -> Result<bool, HostError> {
        match &self.loaded {
            Some(loaded) if loaded.rules == wanted => {
                Ok(blocking(nft::list).await?.as_ref() == Some(&loaded.listed))
            }
            _ => Ok(false),
        }
    }

    /// Whether these are the rules that were loaded last. They may be gone since.
    fn is_loaded(&self, wanted: &str) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.rules == wanted)
    }

    async fn load(&mut self, rules: String) -> Result<(), HostError> {
        let text = rules.clone();
        failpoint::hit(Point::BetweenBeforeRules);
        let listed = blocking(move || nft::load(&text)).await?;
        failpoint::hit(Point::BetweenAfterRules);
        // Each node that comes or goes changes them.
        if self.loaded.is_none() {
            info!("our rules of nftables are loaded");
        }
        self.loaded = Some(Loaded { rules, listed });
        Ok(())
    }
}

/// What was loaded before and had to be loaded again, somebody took away or changed.
fn note_mend(services: &Services, is_loaded_again: bool) {
    if is_loaded_again && let Some(agent) = services.agent() {
        let words = "somebody changed our rules of nftables; loaded them again";
        services.health().mended(&mended::rules(&agent.node), words);
    }
}

/// A process is waited for, and calls need the kernel's thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(HostError::Worker { source: None }))
}
