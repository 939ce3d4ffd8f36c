//! Stray permanent neighbours on pods' devices.
//!
//! Nothing shows which program made one. So it must be unused in two observations some time apart: the pod has no such address in the journal
//! and none inside, and no route through the device leads to it. A pod whose namespace cannot be read keeps its neighbours.

use doctor::mended;
use host::{Host, HostError, TaskContext};
use plan::task::{KernelChange, RepairTask, TaskOutcome};
use plan::{NodeDesired, PodWiring, StrayNeighbour};
use tracing::{debug, warn};

use crate::journal::Entry;
use crate::services::Agent;
use crate::witness::Suspects;

pub(super) async fn collect(agent: &Agent, suspects: &mut Suspects<StrayNeighbour>) -> Result<(), HostError> {
    let mut entries = agent.journal.all();
    entries.retain(|entry| !agent.locks.is_busy(&entry.attachment.sandbox));
    let strays = agent.in_kernel(move |host| strays(host, &entries)).await?;
    for stray in suspects.observe(strays) {
        remove(agent, stray).await?;
    }
    Ok(())
}

async fn remove(agent: &Agent, stray: StrayNeighbour) -> Result<(), HostError> {
    let _locked = agent.locks.acquire(&stray.sandbox).await;
    // The sandbox may have got another address while this waited for the lock.
    let Some(entry) = agent.journal.get(&stray.sandbox) else { return Ok(()) };
    let asked = stray.clone();
    let done = agent.in_kernel(move |host| drop_stray(host, &entry, &asked)).await?;
    let StrayNeighbour { device, neighbour, .. } = &stray;
    match done {
        Some(TaskOutcome::Done { .. }) => {
            let mended = mended::stray_neighbour(&stray, &agent.node);
            let words = format!("removed the stray permanent neighbour {neighbour} on {device}");
            agent.health.record_fix(&mended, &words);
        }
        Some(TaskOutcome::Failed { said }) => {
            warn!(%neighbour, %device, error = said, "cannot remove a stray neighbour; retrying later");
        }
        other => {
            debug!(%neighbour, %device, outcome = ?other, "a stray neighbour changed before it was removed")
        }
    }
    Ok(())
}

/// On the kernel thread, so that nothing changes in between.
fn drop_stray(
    host: &mut Host,
    entry: &Entry,
    stray: &StrayNeighbour,
) -> Result<Option<TaskOutcome>, HostError> {
    if !strays(host, std::slice::from_ref(entry))?.contains(stray) {
        return Ok(None);
    }
    let StrayNeighbour { device, neighbour, .. } = stray.clone();
    let change =
        KernelChange::Neighbour { address: neighbour.address, device, from: Some(neighbour.mac), to: None };
    Ok(Some(host.run_task(&RepairTask::here(change), &TaskContext::default())))
}

fn strays(host: &mut Host, entries: &[Entry]) -> Result<Vec<StrayNeighbour>, HostError> {
    let facts = host.facts()?;
    let wirings = entries.iter().filter_map(|entry| PodWiring::new(&entry.attachment, &facts).ok());
    let desired: NodeDesired = wirings.collect();
    let mut strays = host.observe_node()?.stray_neighbours(&desired);
    strays.retain(|stray| {
        let entry = entries.iter().find(|entry| entry.attachment.sandbox == stray.sandbox);
        let wiring = desired.get(&stray.sandbox);
        entry.zip(wiring).is_some_and(|(entry, wiring)| !may_be_inside(host, entry, wiring, stray))
    });
    Ok(strays)
}

/// Whether the pod has the address. An unreadable pod may have it.
fn may_be_inside(host: &mut Host, entry: &Entry, wiring: &PodWiring, stray: &StrayNeighbour) -> bool {
    let Ok(mut pod) = host.open_pod(&entry.netns) else { return true };
    let Ok(observed) = host.observe(&mut pod, wiring) else { return true };
    let Some(inside) = observed.pod else { return true };
    inside.addresses.iter().any(|held| held.addr() == stray.neighbour.address)
}
