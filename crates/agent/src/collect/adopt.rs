//! Adopts attachments that are not in the journal: made by single calls before there was an agent, or by Calico.
//!
//! A device with our alias is adopted if its sandbox has an endpoint record and the runtime, if there is one, lists the sandbox. A device
//! without our alias is adopted only if both confirm it and the pod's own end agrees. Other devices are never touched.
//!
//! Where endpoint records are views of pods, IPAM says which addresses a sandbox has ([`confirm`]).

use std::path::PathBuf;
use std::sync::PoisonError;

use host::cri::Sandboxes;
use host::{Adoption, Claim, PodNamespace};
use model::{DeviceName, Sandbox};
use tracing::{debug, info};

use super::inventory::Inventory;
use crate::endpoints::{self, LocalEndpoint};
use crate::failpoint::{self, Point};
use crate::journal::Entry;
use crate::services::Agent;
use crate::verbs::CniError;
use crate::verbs::confirm::{self, Confirmed};

/// `ready` is the runtime's list, if it answered.
pub(super) async fn adopt_all(agent: &Agent, ready: Option<&Sandboxes>, inventory: &Inventory) {
    for (sandbox, endpoint, is_own) in inventory.with_device() {
        let is_confirmed = match ready {
            Some(ready) => ready.is_ready(sandbox.container_id()),
            // Without a runtime, the alias is enough.
            None => is_own && agent.runtime.client().is_none(),
        };
        if !is_confirmed || agent.journal.get(sandbox).is_some() || agent.locks.is_busy(sandbox) {
            continue;
        }
        match adopt(agent, sandbox, endpoint, inventory.own_device(sandbox).as_ref()).await {
            Ok(None) => {}
            Ok(Some(reason)) => agent.warn_once(format!("cannot adopt {sandbox}: {reason}")),
            Err(error) => debug!(%sandbox, %error, "cannot adopt a sandbox now"),
        }
    }
}

/// Why it cannot be adopted; `None` if it was, or need not be any more.
async fn adopt(
    agent: &Agent,
    sandbox: &Sandbox,
    endpoint: &LocalEndpoint,
    own: Option<&DeviceName>,
) -> Result<Option<&'static str>, CniError> {
    let netns = match agent.runtime.client() {
        Some(runtime) => runtime.namespace_of(sandbox.container_id()).await.ok().flatten(),
        None => None,
    };
    let _locked = agent.locks.acquire(sandbox).await;
    if agent.journal.get(sandbox).is_some() || !is_still_recorded(agent, endpoint).await? {
        return Ok(None);
    }
    let Some(device) = endpoint.device.clone().filter(|_| !endpoint.addresses.is_empty()) else {
        return Ok(Some("its endpoint record names no device or no address"));
    };
    let (book, key) = (agent.book.get_or_fail()?, &endpoint.record.key);
    let is_protected = |address| {
        let protected = agent.protected.read().unwrap_or_else(PoisonError::into_inner);
        protected.hidden_by(address).is_some()
    };
    let confirmed = confirm::addresses(book, sandbox, key, &endpoint.addresses, is_protected).await?;
    let Confirmed { addresses, unallocated } = match confirmed {
        Ok(confirmed) => confirmed,
        Err(reason) => return Ok(Some(reason)),
    };
    let pod = confirm::pod_behind(key);
    let device = confirm::device(book, &device, own.cloned(), pod.as_ref(), sandbox)?;
    let claim = Claim { sandbox: sandbox.clone(), device, mac: endpoint.mac, addresses, unallocated };
    let path = netns.clone();
    failpoint::hit(Point::AdoptBefore);
    let adoption = agent.in_kernel(move |host| {
        let mut pod = path.map(|path| PodNamespace::open(&path)).transpose()?;
        host.adopt(pod.as_mut(), &claim)
    });
    match adoption.await? {
        Adoption::Refused(reason) => Ok(Some(reason)),
        Adoption::Done(attachment) => {
            failpoint::hit(Point::AdoptClaimed);
            let entry = Entry { attachment, netns: netns.unwrap_or_default(), pod: endpoint.pod.clone() };
            record(agent, entry)?;
            failpoint::hit(Point::AdoptAfter);
            Ok(None)
        }
    }
}

/// A DEL may have come first.
async fn is_still_recorded(agent: &Agent, endpoint: &LocalEndpoint) -> Result<bool, CniError> {
    let record = agent.book.get_or_fail()?.store().get(&endpoint.record.key).await?;
    let found = record.and_then(|record| endpoints::read(&record, &agent.node));
    Ok(found.is_some_and(|found| found.is_same_attachment(endpoint)))
}

fn record(agent: &Agent, entry: Entry) -> Result<(), CniError> {
    let (sandbox, device) = (entry.attachment.sandbox.clone(), entry.attachment.device.clone());
    let netns: PathBuf = entry.netns.clone();
    agent.remember(entry)?;
    agent.metrics().adopted.increment();
    info!(%sandbox, %device, netns = %netns.display(), "adopted");
    Ok(())
}
