//! Removes what has no owner: endpoints, addresses, devices, journal entries of sandboxes that are gone. And takes over
//! what has one, but is not in the journal ([`adopt`]).
//!
//! Everything of ours names its sandbox, so what is known of the node is gathered by sandbox and each one is judged
//! as a whole ([`crate::witness`]). Removing one is the same as its DEL, inside its fence.

mod adopt;
mod blocks;
mod known;
mod neighbours;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doctor::mended;
use host::Host;
use model::Sandbox;
use tracing::{debug, info, warn};

use blocks::Blocks;
use known::Known;

use crate::cni::{self, CniError, NetConf, Services};
use crate::failpoint::{self, Point};
use crate::witness::{Suspects, Word, say_gone};

/// Looks are never closer together than this, however short the grace.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(500);

/// How long to wait for the store before looking whether it is there now.
const SYNC_LOOK_EVERY: Duration = Duration::from_millis(200);

/// Looks again and again; never ends. Begins when the store's records are known.
pub(crate) async fn run(services: &Services, grace: Duration) {
    let (mut suspects, mut blocks) = (Suspects::default(), Blocks::default());
    let mut strays = Suspects::default();
    loop {
        while !services.health().is_store_in_sync() {
            tokio::time::sleep(SYNC_LOOK_EVERY).await;
        }
        if let Err(error) = look(services, &mut suspects, &mut blocks, grace).await {
            // Not knowing is no reason to remove anything; suspects keep their time.
            debug!("no look was possible: {error}");
        }
        if let Err(error) = neighbours::look(services, &mut strays, grace).await {
            debug!("no look at neighbours was possible: {error}");
        }
        tokio::time::sleep(grace.max(LOOK_EVERY_MIN)).await;
    }
}

async fn look(
    services: &Services,
    suspects: &mut Suspects<Sandbox>,
    blocks: &mut Blocks,
    grace: Duration,
) -> Result<(), CniError> {
    let ready = services.sandboxes().await;
    let known = Known::gather(services, blocks).await?;
    adopt::look(services, ready.as_ref(), &known).await;
    let Some(ready) = ready else {
        return Err(CniError::broken("the runtime says nothing"));
    };
    let mut gone = Vec::new();
    for sandbox in known.sandboxes() {
        if services.fences().is_busy(sandbox) {
            continue;
        }
        let runtime = if ready.is_ready(sandbox.container_id()) { Word::Alive } else { Word::Gone };
        // The orchestrator is not asked yet.
        if say_gone(&[runtime, known.kernel_says(sandbox), Word::Nothing]) {
            gone.push(sandbox.clone());
        }
    }
    let condemned = suspects.look(gone, Instant::now(), grace);
    let count = i64::try_from(suspects.len()).unwrap_or(i64::MAX);
    services.metrics().suspects.store(count, Ordering::Relaxed);
    for sandbox in condemned {
        failpoint::hit(Point::CollectBefore);
        match remove_known(&sandbox, &known, services).await {
            Ok(()) => {
                info!("{sandbox} has no owner any more; removed");
                services.metrics().collected.fetch_add(1, Ordering::Relaxed);
                note(&sandbox, &known, services);
            }
            Err(error) => warn!("{sandbox} has no owner any more, and stays for now: {error}"),
        }
        failpoint::hit(Point::CollectAfter);
    }
    Ok(())
}

fn note(sandbox: &Sandbox, known: &Known, services: &Services) {
    let node = services.agent().map_or("", |agent| agent.node.as_str());
    for mended in mended::collected(sandbox, &known.leftovers_of(sandbox), node) {
        services.health().mended(&mended, &format!("{sandbox} has no owner any more; removed"));
    }
}

async fn remove_known(sandbox: &Sandbox, known: &Known, services: &Services) -> Result<(), CniError> {
    let _fenced = services.fences().enter(sandbox).await;
    // While waiting for the fence it may have come to life.
    let owned = services.in_kernel(Host::links_into_pods).await?;
    if owned.iter().any(|link| link.owner == *sandbox) {
        return Err(CniError::broken("it has a device now"));
    }
    cni::remove_attachment(sandbox, known.endpoint_of(sandbox), services).await
}

/// Every sandbox of this node that anything of ours speaks of, for a runtime's GC.
pub(crate) async fn known_sandboxes(
    netconf: &NetConf,
    services: &Services,
) -> Result<BTreeSet<Sandbox>, CniError> {
    let known = Known::gather_for(netconf, services).await?;
    Ok(known.sandboxes().cloned().collect())
}
