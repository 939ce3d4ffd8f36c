//! Permanent neighbours on pods' devices that nobody has a use for.
//!
//! Nothing tells who made one. So the same rule holds as for everything that is taken away: the journal does not have the address
//! for the pod, and the kernel neither leads anything there nor has the address inside the pod, in two looks some time apart. A pod that
//! cannot be looked into keeps its neighbours.

use std::time::{Duration, Instant};

use doctor::mended;
use host::{Around, Host, HostError};
use plan::work::{Act, NodeWork, WorkDone};
use plan::{NodeDesired, PodWiring, StrayNeighbour};
use tracing::{debug, warn};

use crate::cni::Services;
use crate::journal::Entry;
use crate::witness::Suspects;

pub(super) async fn look(
    services: &Services,
    suspects: &mut Suspects<StrayNeighbour>,
    grace: Duration,
) -> Result<(), HostError> {
    let Some(agent) = services.agent() else { return Ok(()) };
    let mut entries = agent.journal.all();
    entries.retain(|entry| !services.fences().is_busy(&entry.attachment.sandbox));
    let strays = services.in_kernel(move |host| strays(host, &entries)).await?;
    for stray in suspects.look(strays, Instant::now(), grace) {
        remove(services, stray).await?;
    }
    Ok(())
}

async fn remove(services: &Services, stray: StrayNeighbour) -> Result<(), HostError> {
    let _fenced = services.fences().enter(&stray.sandbox).await;
    // While waiting for the fence the sandbox may have got another address.
    let Some(agent) = services.agent() else { return Ok(()) };
    let Some(entry) = agent.journal.get(&stray.sandbox) else { return Ok(()) };
    let asked = stray.clone();
    let done = services.in_kernel(move |host| drop_stray(host, &entry, &asked)).await?;
    let StrayNeighbour { device, neighbour, .. } = &stray;
    match done {
        Some(WorkDone::Done { .. }) => {
            let mended = mended::stray_neighbour(&stray, &agent.node);
            let words = format!("permanent neighbour {neighbour} on {device} was of nobody; removed");
            services.health().mended(&mended, &words);
        }
        Some(WorkDone::Failed { said }) => {
            warn!("neighbour {neighbour} on {device} is of nobody, and stays for now: {said}");
        }
        other => debug!("neighbour {neighbour} on {device} is not what it was: {other:?}"),
    }
    Ok(())
}

/// On the thread that does all kernel work, so that nothing changes in between.
fn drop_stray(host: &mut Host, entry: &Entry, stray: &StrayNeighbour) -> Result<Option<WorkDone>, HostError> {
    if !strays(host, std::slice::from_ref(entry))?.contains(stray) {
        return Ok(None);
    }
    let StrayNeighbour { device, neighbour, .. } = stray.clone();
    let act = Act::Neighbour { address: neighbour.address, device, from: Some(neighbour.mac), to: None };
    Ok(Some(host.carry_out(&NodeWork::here(act), &Around::default())))
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

/// Whether the pod has the address, as far as can be seen.
fn may_be_inside(host: &mut Host, entry: &Entry, wiring: &PodWiring, stray: &StrayNeighbour) -> bool {
    let Ok(mut pod) = host.open_pod(&entry.netns) else { return true };
    let Ok(observed) = host.observe(&mut pod, wiring) else { return true };
    let Some(inside) = observed.pod else { return true };
    inside.addresses.iter().any(|held| held.addr() == stray.neighbour.address)
}
