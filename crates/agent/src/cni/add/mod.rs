//! ADD: the records, in one commit, and the veth meanwhile; then the rest of the kernel; then read back; then the
//! journal. What fails is undone.

mod recording;
mod wiring;

use std::sync::PoisonError;

use host::{Ahead, HostError, PodInterface, PodNamespace, Prepared};
use model::{DeviceName, Mac};
use plan::between::Trouble;
use plan::{Attachment, PodWiring};
use serde_json::Value;
use tracing::{info, warn};

use recording::{Recorded, Recording};
use wiring::{Looked, Order, WireError};

use super::endpoint::{EndpointId, Wired};
use super::error::CniError;
use super::{Call, Caller, Services, del, delegate, node, records, result};
use crate::failpoint::{self, Point};
use crate::journal::Entry;

struct Add<'a> {
    call: &'a Call,
    services: &'a Services,
    book: book::Book,
    /// Lent to the kernel's thread while that works in it.
    pod: Option<PodNamespace>,
    node: String,
    id: EndpointId,
}

pub(super) async fn run(call: &Call, caller: &Caller, services: &Services) -> Result<Value, CniError> {
    failpoint::hit(Point::AddStart);
    if let Some(reason) = &call.netconf.unsupported {
        return Err(reason.clone());
    }
    let node = services.node_name(&call.netconf)?;
    let mtu = node::mtu(&call.netconf)?;
    let netns = call.request.netns.as_deref().ok_or_else(|| CniError::environment("CNI_NETNS is not set"))?;
    let _fenced = services.fences().enter(&call.sandbox).await;
    failpoint::hit(Point::AddFenced);
    if !caller.waits() {
        return Err(nobody_waits());
    }
    super::finish_queued(call, services).await?;
    let book = services.book(&call.netconf).await?;
    let id = EndpointId::new(&node, call.request.pod.as_ref(), &call.sandbox);
    let mut add = Add { call, services, book, pod: None, node, id };
    let (recorded, wiring) = add.connect(mtu).await?;
    let done =
        add.remember(&recorded, mtu).and_then(|()| if caller.waits() { Ok(()) } else { Err(nobody_waits()) });
    if let Err(error) = done {
        add.undo(&recorded).await;
        return Err(error);
    }
    info!(sandbox = %call.sandbox, device = %wiring.host.device, addresses = ?recorded.wired.addresses, "added");
    failpoint::hit(Point::AddBeforeAnswer);
    Ok(result::of_add(&call.netconf.cni_version, &wiring, netns))
}

fn nobody_waits() -> CniError {
    CniError::broken("nobody waits for this ADD any more")
}

impl Add<'_> {
    /// Records and kernel. Whatever fails is undone.
    async fn connect(&mut self, mtu: u32) -> Result<(Recorded, PodWiring), CniError> {
        let mut device = node::device_name(self.call.request.pod.as_ref(), &self.call.sandbox)?;
        loop {
            let (recorded, prepared) = self.record_and_prepare(&device, mtu).await?;
            if let Err(error) = self.refuse_protected(&recorded) {
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
                // Another sandbox of the same pod was faster. The name of our own is nobody else's.
                WireError::Host(HostError::NameTaken { .. }) if device != self.own_device_name() => {
                    device = self.own_device_name();
                }
                error => return Err(error.into()),
            }
        }
    }

    /// A pod with the address of a node or of a service would hide it from everybody on this node. What is there already stays.
    fn refuse_protected(&self, recorded: &Recorded) -> Result<(), CniError> {
        let Some(agent) = self.services.agent().filter(|_| recorded.made.is_some()) else { return Ok(()) };
        let protected = agent.protected.read().unwrap_or_else(PoisonError::into_inner);
        for address in &recorded.wired.addresses {
            let whose = match protected.hidden_by(*address) {
                None => continue,
                Some(Trouble::HidesNode) => "a node",
                Some(_) => "services",
            };
            let message = format!("the pod would get {address}, which is an address of {whose}");
            return Err(CniError::configuration(message)
                .hint("make a pool that overlaps neither the network of the nodes nor that of services"));
        }
        Ok(())
    }

    /// Looks at what there is, then writes the records and makes the veth meanwhile. If one of them fails, the other is
    /// undone.
    async fn record_and_prepare(
        &mut self,
        device: &DeviceName,
        mtu: u32,
    ) -> Result<(Recorded, Option<Prepared>), CniError> {
        let (pod, looked) = wiring::look(self.pod.take(), self.call, device, self.services).await?;
        let name = if looked.is_taken { self.own_device_name() } else { device.clone() };
        let bare = Wired { device: name, mac: mac(self.call), addresses: Vec::new() };
        let order = Order {
            pod,
            is_wanted: looked.interface == PodInterface::None,
            attachment: attachment(self.call, &bare, mtu),
            ahead: if may_get_ipv6(self.call) { Ahead::Made } else { Ahead::Started },
        };
        let preparing = order.prepare(self.services, self.book.store().commits_apart());
        let (recorded, prepared) = tokio::join!(self.record(looked, device), preparing);
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

    async fn record(&self, looked: Looked, device: &DeviceName) -> Result<Recorded, CniError> {
        if looked.is_taken {
            info!("{device} belongs to another sandbox; using a name of this sandbox's own");
        }
        let recording = Recording {
            call: self.call,
            book: &self.book,
            node: &self.node,
            id: &self.id,
            device: if looked.is_taken { self.own_device_name() } else { device.clone() },
            interface: looked.interface,
        };
        failpoint::hit(Point::AddBeforeRecords);
        let recorded = recording.ensure(self.services).await?;
        failpoint::hit(Point::AddAfterRecords);
        Ok(recorded)
    }

    /// What an earlier call recorded may be connected already, or with other settings: that must be looked at first.
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
            warn!("not everything could be undone: {error}");
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
        let mut pod = self.pod.take().expect("it was looked into before");
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

    /// Takes back what this call made; what it cannot, the runtime's DEL finds. The kernel goes first: an address
    /// must not be free while something still answers to it.
    async fn undo(&mut self, recorded: &Recorded) {
        let Some(made) = &recorded.made else { return };
        failpoint::hit(Point::AddBeforeUndo);
        let sandbox = &self.call.sandbox;
        if let Err(error) = del::detach(sandbox, self.call.request.netns.as_deref(), self.services).await {
            warn!("not everything could be undone: {error}");
            return;
        }
        failpoint::hit(Point::AddUndoDetached);
        let key = self.id.key().ok();
        if let Err(error) = records::release(&self.book, sandbox, key, made.replaced.as_ref()).await {
            warn!("not everything could be undone: {error}");
        }
        failpoint::hit(Point::AddUndoReleased);
        if let Err(error) = delegate::give_back(self.call).await {
            warn!("not everything could be undone: {error}");
        }
        if let Some(journal) = self.services.journal()
            && let Err(error) = journal.remove(sandbox)
        {
            warn!("the journal keeps {sandbox}: {error}");
        }
        failpoint::hit(Point::AddAfterUndo);
    }
}

/// The hardware address of the pod's end.
fn mac(call: &Call) -> Mac {
    call.netconf.asked.mac.unwrap_or_else(|| call.sandbox.mac())
}

/// Whether an IPv6 address may come out of it: other plugins give what they like.
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
