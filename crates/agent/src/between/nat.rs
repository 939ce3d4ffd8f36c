//! The rules by which packets leave the cluster with this node's address, and by which only nodes get packets into tunnels.

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

/// How often to look whether somebody changed them. It takes a process, so not often.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// What was loaded, and how nft lists it.
#[derive(Debug, Default)]
pub(super) struct Nat {
    loaded: Option<Option<(String, String)>>,
    look_at: Option<Instant>,
}

impl Nat {
    /// When it wants to be asked again.
    pub(super) fn due(&self) -> Instant {
        self.look_at.unwrap_or_else(Instant::now)
    }

    /// Loads the rules that are wanted if they are not there.
    pub(super) async fn keep(&mut self, services: &Services, known: &Known) {
        let wanted = known.lock().between.nat().map(str::to_owned);
        let is_known = self.is_loaded(wanted.as_deref());
        let outcome = match self.is_there(wanted.as_deref()).await {
            Ok(true) => Ok(()),
            Ok(false) => self.load(wanted).await.inspect(|()| note_mend(services, is_known)),
            Err(error) => Err(error),
        };
        services.metrics().nat_failed.store(i64::from(outcome.is_err()), Ordering::Relaxed);
        let pause = if outcome.is_ok() { LOOK_EVERY } else { RETRY_DELAY };
        self.look_at = Some(Instant::now() + pause);
        if let Err(error) = outcome {
            services.say_once(format!(
                "packets that leave the cluster keep their pods' addresses, and anybody can send into tunnels: {error}"
            ));
        }
    }

    async fn is_there(&self, wanted: Option<&str>) -> Result<bool, HostError> {
        match &self.loaded {
            Some(None) if wanted.is_none() => Ok(true),
            Some(Some((_, listed))) if self.is_loaded(wanted) => {
                let found = blocking(nft::list).await?;
                Ok(found.as_ref() == Some(listed))
            }
            _ => Ok(false),
        }
    }

    /// Whether these are the rules that were loaded last. They may be gone since.
    fn is_loaded(&self, wanted: Option<&str>) -> bool {
        matches!((&self.loaded, wanted), (Some(Some((rules, _))), Some(wanted)) if rules == wanted)
    }

    async fn load(&mut self, wanted: Option<String>) -> Result<(), HostError> {
        let loaded = match wanted {
            Some(rules) => {
                let text = rules.clone();
                failpoint::hit(Point::BetweenBeforeRules);
                let listed = blocking(move || nft::load(&text)).await?;
                failpoint::hit(Point::BetweenAfterRules);
                // Each node that comes or goes changes them.
                if !matches!(self.loaded, Some(Some(_))) {
                    info!("our rules of nftables are loaded");
                }
                Some((rules, listed))
            }
            None => {
                // Where nft is missing, there cannot be a table of ours either.
                if matches!(blocking(nft::list).await, Ok(Some(_))) {
                    blocking(nft::remove).await?;
                }
                None
            }
        };
        self.loaded = Some(loaded);
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
