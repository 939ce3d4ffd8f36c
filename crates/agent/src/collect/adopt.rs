//! Takes over attachments that are not in the journal: made by single calls before there was an agent, or by Calico.
//!
//! A device with our alias is adopted when an endpoint record of its sandbox is there and the runtime, if there is one
//! to ask, has the sandbox. One without our alias only when both vouch for it and the pod's own end agrees. What nobody
//! vouches for is never touched.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use host::cri::Sandboxes;
use host::{Adoption, Claim, PodNamespace};
use model::Sandbox;
use tracing::{debug, info};

use super::known::Known;
use crate::cni::{CniError, Services};
use crate::endpoints::{self, LocalEndpoint};
use crate::failpoint::{self, Point};
use crate::journal::Entry;

/// `ready` is what the runtime lists, if it could be asked.
pub(super) async fn look(services: &Services, ready: Option<&Sandboxes>, known: &Known) {
    let agent = services.agent().expect("only the agent adopts");
    for (sandbox, endpoint, is_own) in known.with_device() {
        let is_vouched = match ready {
            Some(ready) => ready.is_ready(sandbox.container_id()),
            // Where there is no runtime to ask, the alias must do.
            None => is_own && agent.runtime.client().is_none(),
        };
        if !is_vouched || agent.journal.get(sandbox).is_some() || services.fences().is_busy(sandbox) {
            continue;
        }
        match adopt(services, sandbox, endpoint).await {
            Ok(None) => {}
            Ok(Some(reason)) => services.say_once(format!("{sandbox} is not taken over: {reason}")),
            Err(error) => debug!("{sandbox} is not taken over now: {error}"),
        }
    }
}

/// Why it was not done, if it was not; for nothing if there is nothing to be done any more.
async fn adopt(
    services: &Services,
    sandbox: &Sandbox,
    endpoint: &LocalEndpoint,
) -> Result<Option<&'static str>, CniError> {
    let agent = services.agent().expect("only the agent adopts");
    let netns = match agent.runtime.client() {
        Some(runtime) => runtime.namespace_of(sandbox.container_id()).await.ok().flatten(),
        None => None,
    };
    let _fenced = services.fences().enter(sandbox).await;
    if agent.journal.get(sandbox).is_some() || !is_still_recorded(services, endpoint).await? {
        return Ok(None);
    }
    let Some(device) = endpoint.device.clone().filter(|_| !endpoint.addresses.is_empty()) else {
        return Ok(Some("its endpoint record says neither device nor address"));
    };
    let (mac, addresses) = (endpoint.mac, endpoint.addresses.clone());
    let claim = Claim { sandbox: sandbox.clone(), device, mac, addresses };
    let path = netns.clone();
    failpoint::hit(Point::AdoptBefore);
    let adoption = services.in_kernel(move |host| {
        let mut pod = path.map(|path| PodNamespace::open(&path)).transpose()?;
        host.adopt(pod.as_mut(), &claim)
    });
    match adoption.await? {
        Adoption::Refused(reason) => Ok(Some(reason)),
        Adoption::Done(attachment) => {
            failpoint::hit(Point::AdoptClaimed);
            note(
                services,
                Entry { attachment, netns: netns.unwrap_or_default(), pod: endpoint.pod.clone() },
            )?;
            failpoint::hit(Point::AdoptAfter);
            Ok(None)
        }
    }
}

/// A DEL may have come first.
async fn is_still_recorded(services: &Services, endpoint: &LocalEndpoint) -> Result<bool, CniError> {
    let agent = services.agent().expect("only the agent adopts");
    let book = agent.book.get().ok_or_else(|| CniError::broken("the store is not open"))?;
    let record = book.store().get(&endpoint.record.key).await?;
    Ok(record.and_then(|record| endpoints::read(&record, &agent.node)).as_ref() == Some(endpoint))
}

fn note(services: &Services, entry: Entry) -> Result<(), CniError> {
    let (sandbox, device) = (entry.attachment.sandbox.clone(), entry.attachment.device.clone());
    let netns: PathBuf = entry.netns.clone();
    services.remember(entry)?;
    services.metrics().adopted.fetch_add(1, Ordering::Relaxed);
    info!("took over {sandbox} with {device} and namespace {:?}", netns.display());
    Ok(())
}
