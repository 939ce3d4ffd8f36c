//! The collector: removes what has no owner (endpoints, addresses, devices and journal entries of sandboxes that are gone) and adopts what
//! has one but is not in the journal ([`adopt`]).
//!
//! Everything of ours names its sandbox, so the collector lists all sandboxes of the node ([`inventory`]) and judges each as a whole
//! ([`crate::witness`]). It removes one as a DEL would, with the sandbox locked.

mod adopt;
mod blocks;
mod inventory;
mod neighbours;
mod orchestrator;

use std::collections::BTreeSet;
use std::time::Duration;

use doctor::mended;
use host::Host;
use model::Sandbox;
use tracing::{debug, info, warn};

use inventory::Inventory;
use orchestrator::Orchestrator;

use crate::failpoint::{self, Point};
use crate::services::{Agent, Services};
use crate::verbs::{self, CniError, NetConf};
use crate::witness::{Suspects, Word, say_gone};

/// The shortest time between two observations, however short the grace.
const OBSERVE_EVERY_MIN: Duration = Duration::from_millis(500);

/// How often to check whether the records are cached.
const SYNC_POLL_EVERY: Duration = Duration::from_millis(200);

/// Observes again and again; never ends. Begins when the store's records are cached.
pub(crate) async fn run(agent: &Agent, grace: Duration) {
    let (mut suspects, mut strays) = (Suspects::new(grace), Suspects::new(grace));
    loop {
        while !(agent.health.is_store_in_sync()
            && agent.routes.get().is_some_and(|routes| routes.is_complete()))
        {
            tokio::time::sleep(SYNC_POLL_EVERY).await;
        }
        if let Err(error) = collect(agent, &mut suspects).await {
            // Suspects keep their time: a failed observation says nothing about them.
            debug!(%error, "cannot observe the sandboxes of this node");
        }
        if let Err(error) = neighbours::collect(agent, &mut strays).await {
            debug!(%error, "cannot observe the neighbours of this node");
        }
        tokio::time::sleep(grace.max(OBSERVE_EVERY_MIN)).await;
    }
}

async fn collect(agent: &Agent, suspects: &mut Suspects<Sandbox>) -> Result<(), CniError> {
    let ready = agent.sandboxes().await;
    let inventory = Inventory::of_agent(agent).await?;
    adopt::adopt_all(agent, ready.as_ref(), &inventory).await;
    let orchestrator = Orchestrator::of(agent);
    if ready.is_none() && !orchestrator.answers() {
        return Err(CniError::internal("the container runtime does not answer"));
    }
    let mut gone = Vec::new();
    for sandbox in inventory.sandboxes() {
        if agent.locks.is_busy(sandbox) {
            continue;
        }
        let runtime =
            ready.as_ref().map_or(Word::Nothing, |ready| match ready.is_ready(sandbox.container_id()) {
                true => Word::Alive,
                false => Word::Gone,
            });
        let kubernetes = orchestrator.word(sandbox, inventory.owner_of(sandbox));
        if say_gone(&[runtime, inventory.kernel_word(sandbox), kubernetes]) {
            gone.push(sandbox.clone());
        }
    }
    let confirmed = suspects.observe(gone);
    agent.metrics().suspects.set(suspects.len());
    for sandbox in confirmed {
        failpoint::hit(Point::CollectBefore);
        match remove(&sandbox, &inventory, agent).await {
            Ok(()) => {
                info!(%sandbox, "removed a sandbox without an owner");
                agent.metrics().collected.increment();
                record_fix(&sandbox, &inventory, agent);
            }
            Err(error) => warn!(%sandbox, %error, "cannot remove a sandbox without an owner; retrying later"),
        }
        failpoint::hit(Point::CollectAfter);
    }
    Ok(())
}

fn record_fix(sandbox: &Sandbox, inventory: &Inventory, agent: &Agent) {
    for mended in mended::collected(sandbox, &inventory.leftovers_of(sandbox), &agent.node) {
        agent.health.record_fix(&mended, &format!("removed {sandbox}, which had no owner"));
    }
}

async fn remove(sandbox: &Sandbox, inventory: &Inventory, agent: &Agent) -> Result<(), CniError> {
    let _locked = agent.locks.acquire(sandbox).await;
    // An ADD may have used it while this waited for the lock.
    let owned = agent.in_kernel(Host::links_into_pods).await?;
    if owned.iter().any(|link| link.owner == *sandbox) {
        return Err(CniError::internal("it has a device again"));
    }
    verbs::remove_attachment(sandbox, inventory.endpoint_of(sandbox), agent).await?;
    // Addresses are released by their handle. Where that is missing, they are still there.
    let addresses = inventory.addresses_of(sandbox);
    if !addresses.is_empty() {
        agent.book.get_or_fail()?.release_addresses(addresses).await?;
    }
    Ok(())
}

/// Every sandbox of this node that any of our records, devices or journal entries names, for a runtime's GC.
pub(crate) async fn sandboxes_of_node(
    netconf: &NetConf,
    services: Services<'_>,
) -> Result<BTreeSet<Sandbox>, CniError> {
    let inventory = match services {
        Services::Agent(agent) => Inventory::of_agent(agent).await?,
        Services::OneShot(_) => Inventory::of_call(netconf, services).await?,
    };
    Ok(inventory.sandboxes().cloned().collect())
}
