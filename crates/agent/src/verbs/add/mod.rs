//! ADD: the records in one commit, and the bare veth at the same time; then the rest of the kernel, read back; then the journal. A failure
//! undoes what was done.

mod endpoint_write;
mod recording;
mod wiring;

use std::net::IpAddr;
use std::sync::PoisonError;

use host::{Ahead, HostError, PodInterface, PodNamespace, Prepared};
use model::{DeviceName, Mac, Resource};
use plan::between::{Protected, Trouble};
use plan::{Attachment, PodWiring};
use serde_json::Value;
use store::Record;
use tracing::{info, warn};

use recording::{Recorded, Recording};
use wiring::{Observed, Preparation, WireError};

use super::endpoint::{EndpointId, Keeping, Wired};
use super::error::CniError;
use super::{Call, Caller, del, delegate, node, pod, queued, records, result};
use crate::between::read_protected;
use crate::failpoint::{self, Point};
use crate::guard::WantedGuard;
use crate::journal::Entry;
use crate::services::Services;

struct Add<'a> {
    call: &'a Call,
    services: Services<'a>,
    book: book::Book,
    /// Lent to the kernel thread while it works in there.
    pod: Option<PodNamespace>,
    node: String,
    id: EndpointId,
    /// The record of the pod, where endpoints are views of pods.
    recorded_pod: Option<(Record, Resource)>,
}

pub(super) async fn run(call: &Call, caller: &Caller, services: Services<'_>) -> Result<Value, CniError> {
    failpoint::hit(Point::AddStart);
    call.netconf.check()?;
    let node = services.node_name(&call.netconf)?;
    let mtu = node::mtu(&call.netconf)?;
    let netns = call.request.netns.as_deref().ok_or_else(|| CniError::environment("CNI_NETNS is not set"))?;
    let _locked = services.locks.acquire(&call.sandbox).await;
    failpoint::hit(Point::AddFenced);
    if !caller.is_waiting() {
        return Err(abandoned());
    }
    queued::run_earlier(call, services).await?;
    let book = services.book(&call.netconf).await?;
    let recorded_pod = pod::find(call, &node, &book, services).await?;
    let annotated = pod::annotated(call, recorded_pod.as_ref(), &book, services).await?;
    let call = annotated.as_ref().unwrap_or(call);
    call.netconf.check()?;
    let keeping = Keeping::of(&book);
    let id = EndpointId::new(keeping, &node, call.request.pod.as_ref(), &call.sandbox);
    let mut add = Add { call, services, book, pod: None, node, id, recorded_pod };
    let (recorded, wiring) = add.connect(mtu).await?;
    let done = add
        .remember(&recorded, mtu)
        .and_then(|()| if caller.is_waiting() { Ok(()) } else { Err(abandoned()) });
    if let Err(error) = done {
        add.undo(&recorded).await;
        return Err(error);
    }
    info!(sandbox = %call.sandbox, device = %wiring.host.device, addresses = ?recorded.wired.addresses, "added");
    failpoint::hit(Point::AddBeforeAnswer);
    Ok(result::of_add(&call.netconf.cni_version, &wiring, netns))
}

/// The runtime stopped waiting for this ADD.
pub(super) fn abandoned() -> CniError {
    CniError::internal("the runtime closed the connection before the ADD was complete")
}

impl Add<'_> {
    /// Records and kernel. A failure undoes both.
    async fn connect(&mut self, mtu: u32) -> Result<(Recorded, PodWiring), CniError> {
        let mut device = node::device_name(self.call.request.pod.as_ref(), &self.call.sandbox)?;
        loop {
            let (recorded, prepared) = self.record_and_prepare(&device, mtu).await?;
            if let Err(error) = self.refuse_protected(&recorded).await {
                self.abandon(prepared).await;
                self.undo(&recorded).await;
                return Err(error);
            }
            let error = match self.wire(&recorded, prepared, mtu).await {
                Ok(wiring) => return Ok((recorded, wiring)),
                Err(error) => error,
            };
            self.undo(&recorded).await;
            match error {
                // Another sandbox of the same pod took the name first. The sandbox's own name is unique.
                WireError::Host(HostError::NameTaken { .. }) if device != self.own_device_name() => {
                    device = self.own_device_name();
                }
                error => return Err(error.into()),
            }
        }
    }

    /// A pod with the address of a node or a service would hide it on this node. A pod that was wired with it keeps it.
    async fn refuse_protected(&self, recorded: &Recorded) -> Result<(), CniError> {
        let addresses = &recorded.wired.addresses;
        if recorded.is_wired {
            return Ok(());
        }
        if let Some(agent) = self.services.agent() {
            let protected = agent.protected.read().unwrap_or_else(PoisonError::into_inner);
            return refuse_hiding(addresses, &protected);
        }
        // A single call has to read all nodes for that. Pools are the operator's, so what they give is not checked each time.
        let netconf = &self.call.netconf;
        if netconf.asked.addresses.is_empty() && !netconf.goes_without_book() {
            return Ok(());
        }
        refuse_hiding(addresses, &read_protected(&**self.book.store(), &self.node).await?)
    }

    /// Observes the pod, then writes the records and makes the veth at the same time. If one of them fails, the other is undone.
    async fn record_and_prepare(
        &mut self,
        device: &DeviceName,
        mtu: u32,
    ) -> Result<(Recorded, Option<Prepared>), CniError> {
        let guard = WantedGuard::of_call(self.services, &**self.book.store(), &self.node).await?;
        let (pod, observed) =
            wiring::observe(self.pod.take(), self.call, device, guard, self.services).await?;
        let name = if observed.is_taken { self.own_device_name() } else { device.clone() };
        let bare = Wired { device: name, mac: mac(self.call), addresses: Vec::new() };
        let preparation = Preparation {
            pod,
            is_needed: observed.interface == PodInterface::None,
            attachment: attachment(self.call, &bare, mtu),
            ahead: if may_get_ipv6(self.call) { Ahead::Made } else { Ahead::Started },
        };
        let preparing = preparation.run(self.services, self.book.store().commits_apart());
        let (recorded, prepared) = tokio::join!(self.record(observed, device), preparing);
        match (recorded, prepared) {
            (Ok(recorded), Ok((pod, prepared))) => {
                self.pod = Some(pod);
                Ok(self.use_if_new(recorded, prepared).await)
            }
            (Ok(recorded), Err(error)) => {
                self.undo(&recorded).await;
                Err(error.into())
            }
            (Err(error), prepared) => {
                self.abandon(prepared.ok().and_then(|(_, prepared)| prepared)).await;
                Err(error)
            }
        }
    }

    async fn record(&self, observed: Observed, device: &DeviceName) -> Result<Recorded, CniError> {
        if observed.is_taken {
            info!(%device, "another sandbox has the device name; using one derived from this sandbox");
        }
        let recording = Recording {
            call: self.call,
            book: &self.book,
            node: &self.node,
            id: &self.id,
            pod: self.recorded_pod.as_ref(),
            device: if observed.is_taken { self.own_device_name() } else { device.clone() },
            interface: observed.interface,
        };
        failpoint::hit(Point::AddBeforeRecords);
        let recorded = recording.ensure(self.services).await?;
        failpoint::hit(Point::AddAfterRecords);
        Ok(recorded)
    }

    /// An earlier call's records may be wired already, or with other settings, so a new veth is not used for them.
    async fn use_if_new(
        &self,
        recorded: Recorded,
        prepared: Option<Prepared>,
    ) -> (Recorded, Option<Prepared>) {
        if recorded.made.is_some() {
            return (recorded, prepared);
        }
        self.abandon(prepared).await;
        (recorded, None)
    }

    async fn abandon(&self, prepared: Option<Prepared>) {
        let Some(prepared) = prepared else { return };
        if let Err(error) = self.services.in_kernel(|host| host.abandon(prepared)).await {
            warn!(sandbox = %self.call.sandbox, %error, "cannot undo the ADD: the veth remains");
        }
    }

    /// Returns when the pod can exchange packets with the node.
    async fn wire(
        &mut self,
        recorded: &Recorded,
        prepared: Option<Prepared>,
        mtu: u32,
    ) -> Result<PodWiring, WireError> {
        failpoint::hit(Point::AddBeforeWiring);
        let attachment = attachment(self.call, &recorded.wired, mtu);
        let mut pod = self.pod.take().expect("record_and_prepare opened it");
        let (pod, wired) = self
            .services
            .in_kernel_here(move |host| {
                let wired = wiring::wire(host, &mut pod, prepared, &attachment);
                (pod, wired)
            })
            .await?;
        self.pod = Some(pod);
        failpoint::hit(Point::AddAfterWiring);
        wired
    }

    fn remember(&self, recorded: &Recorded, mtu: u32) -> Result<(), CniError> {
        failpoint::hit(Point::AddBeforeJournal);
        self.services.remember(Entry {
            attachment: attachment(self.call, &recorded.wired, mtu),
            netns: self.call.request.netns.clone().unwrap_or_default(),
            pod: self.call.request.pod.as_ref().map(|pod| (pod.namespace.clone(), pod.name.clone())),
        })?;
        failpoint::hit(Point::AddAfterJournal);
        Ok(())
    }

    fn own_device_name(&self) -> DeviceName {
        node::own_device_name(&self.call.sandbox)
    }

    /// Undoes what this call did; the runtime's DEL removes what remains. The kernel goes first: an address must not be free while
    /// something still answers to it.
    async fn undo(&mut self, recorded: &Recorded) {
        let Some(made) = &recorded.made else { return };
        failpoint::hit(Point::AddBeforeUndo);
        let sandbox = &self.call.sandbox;
        if let Err(error) = del::detach(sandbox, self.call.request.netns.as_deref(), self.services).await {
            warn!(%sandbox, %error, "cannot undo the ADD: device and records remain");
            return;
        }
        failpoint::hit(Point::AddUndoDetached);
        let key = self.id.key().ok().flatten();
        if let Err(error) = records::release(&self.book, sandbox, key, made.replaced.as_ref()).await {
            warn!(%sandbox, %error, "cannot undo the ADD: the records remain");
        }
        failpoint::hit(Point::AddUndoReleased);
        if let Err(error) = delegate::release(self.call).await {
            warn!(%sandbox, %error, "cannot undo the ADD: the other plugin's addresses remain");
        }
        if let Err(error) = self.services.forget(sandbox) {
            warn!(%sandbox, %error, "cannot undo the ADD: the journal entry remains");
        }
        failpoint::hit(Point::AddAfterUndo);
    }
}

fn refuse_hiding(addresses: &[IpAddr], protected: &Protected) -> Result<(), CniError> {
    for address in addresses {
        let owner = match protected.hidden_by(*address) {
            None => continue,
            Some(Trouble::HidesNode) => "a node",
            Some(_) => "a service",
        };
        let message = format!("cannot give the pod {address}: it is the address of {owner}");
        return Err(CniError::configuration(message)
            .hint("create a pool that overlaps neither the nodes' networks nor the service networks"));
    }
    Ok(())
}

/// The hardware address of the pod's end.
fn mac(call: &Call) -> Mac {
    call.netconf.asked.mac.unwrap_or_else(|| call.sandbox.mac())
}

/// Whether the pod may get an IPv6 address: what other plugins allocate is not known beforehand.
fn may_get_ipv6(call: &Call) -> bool {
    let netconf = &call.netconf;
    netconf.ipam.assign_v6
        || netconf.goes_without_book()
        || netconf.asked.addresses.iter().any(std::net::IpAddr::is_ipv6)
}

fn attachment(call: &Call, wired: &Wired, mtu: u32) -> Attachment {
    Attachment {
        sandbox: call.sandbox.clone(),
        device: wired.device.clone(),
        mac: wired.mac,
        mtu,
        addresses: wired.addresses.clone(),
        pod_forwards: call.netconf.pod_forwards,
    }
}
