//! ADD: the records in one commit, and the bare veth at the same time; then the rest of the kernel, read back; then the journal. A failure
//! undoes what was done.

mod by_backend;
mod earlier;
mod endpoint_write;
mod recording;
mod wiring;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::PoisonError;

use book::Book;
use host::{Ahead, HostError, PodInterface, PodNamespace, Prepared};
use model::{DeviceName, Mac, Resource};
use plan::between::{Protected, Trouble};
use plan::{Attachment, Maker, PodWiring};
use serde_json::Value;
use store::Record;
use tracing::{info, warn};

use recording::{Made, Recorded, RecordedEndpoint, Recording};
use wiring::{Observed, Preparation, WireError};

use super::endpoint::{Described, EndpointId, Keeping, Wired};
use super::error::CniError;
use super::known::{Known, with_asked};
use super::result::Answered;
use super::{Call, Caller, del, delegate, gates, node, profile, queued, ready, records, result};
use crate::between::read_protected;
use crate::enforce::{self, Waiting};
use crate::failpoint::{self, Point};
use crate::guard::WantedGuard;
use crate::journal::Entry;
use crate::namespaces::Annotations;
use crate::services::Services;

struct Add<'a> {
    call: &'a Call,
    services: Services<'a>,
    book: Book,
    /// Lent to the kernel thread while it works in there.
    pod: Option<PodNamespace>,
    node: String,
    id: EndpointId,
    /// The record of the pod, where endpoints are views of pods.
    recorded_pod: Option<(Record, Resource)>,
    described: Described,
    pod_annotations: Annotations,
    namespace_labels: BTreeMap<String, String>,
}

pub(super) async fn run(call: &Call, caller: &Caller, services: Services<'_>) -> Result<Value, CniError> {
    failpoint::hit(Point::AddStart);
    call.netconf.check()?;
    let node = services.node_name(&call.netconf)?;
    let mtu = node::mtu(&call.netconf)?;
    gates::wait(&call.netconf.calico.readiness_gates).await?;
    let netns = call.request.netns.as_deref().ok_or_else(|| CniError::environment("CNI_NETNS is not set"))?;
    let _locked = services.locks.acquire(&call.sandbox).await;
    failpoint::hit(Point::AddFenced);
    if !caller.is_waiting() {
        return Err(abandoned());
    }
    queued::run_earlier(call, services).await?;
    let book = services.book(&call.netconf).await?;
    if call.netconf.goes_without_book() || ready::is_etcd(&call.netconf) {
        ready::check(&call.netconf, &book).await?;
    }
    let known = Known::read(call, &node, &book, services).await?;
    let call = known.annotated.as_ref().unwrap_or(call);
    call.netconf.check()?;
    let id = EndpointId::of_call(Keeping::of(&book), &node, call);
    let Known { recorded_pod, described, pod_annotations, namespace_labels, .. } = known;
    let described = with_asked(described, call);
    let pod = None;
    let mut add = Add {
        call,
        services,
        book,
        pod,
        node,
        id,
        recorded_pod,
        described,
        pod_annotations,
        namespace_labels,
    };
    if let Some(backend) = &call.netconf.calico.backend {
        return add.connect_by(backend, mtu, caller).await;
    }
    if let Some(joined) = add.join(mtu).await? {
        return Ok(joined);
    }
    let (recorded, wiring) = add.connect_in_profile(mtu).await?;
    let done = add
        .await_policy(&recorded)
        .await
        .and_then(|()| add.remember(&recorded, mtu))
        .and_then(|()| if caller.is_waiting() { Ok(()) } else { Err(abandoned()) });
    if let Err(error) = done {
        add.undo(&recorded).await;
        return Err(error);
    }
    info!(sandbox = %call.sandbox, device = %wiring.host.device, addresses = ?recorded.wired.addresses, "added");
    if services.agent().is_none() {
        // Felix, which may still run, says so in a file.
        gates::await_policy(call.netconf.calico.policy_wait.as_ref(), &add.id).await;
    }
    failpoint::hit(Point::AddBeforeAnswer);
    let answered = Answered { routes: recorded.routes, mtu: node::configured_mtu(&call.netconf, mtu) };
    Ok(result::of_add(&call.netconf.cni_version, &wiring, netns, &answered))
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
            if let Err(error) = self.refuse_recorded(&recorded).await {
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

    /// Connects the pod and sees to its network's profile: not before, because an ADD that fails leaves nothing, not even what is the network's.
    /// Where there can be no such profile, the endpoint does without.
    async fn connect_in_profile(&mut self, mtu: u32) -> Result<(Recorded, PodWiring), CniError> {
        if profile::is_missing(self.call, &self.book, self.services).await? {
            self.described.profiles = None;
        }
        let connected = self.connect(mtu).await?;
        let exists = profile::ensure(self.call, &self.book, self.services).await;
        if exists.as_ref().is_ok_and(|exists| *exists || self.described.profiles.is_none()) {
            return Ok(connected);
        }
        self.undo(&connected.0).await;
        exists?;
        self.described.profiles = None;
        self.connect(mtu).await
    }

    async fn refuse_recorded(&self, recorded: &Recorded) -> Result<(), CniError> {
        if let Some(floating) = self.described.dangling(&recorded.wired.addresses) {
            let message = format!(
                "the floating address {floating} leads nowhere: the pod has no address of its IP version"
            );
            return Err(CniError::configuration(message));
        }
        self.refuse_protected(recorded).await
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

    pub(super) async fn guard(&self) -> Result<WantedGuard, CniError> {
        Ok(WantedGuard::of_call(self.services, &**self.book.store(), &self.node).await?)
    }

    /// Observes the pod, then writes the records and makes the veth at the same time. If one of them fails, the other is undone.
    async fn record_and_prepare(
        &mut self,
        device: &DeviceName,
        mtu: u32,
    ) -> Result<(Recorded, Option<Prepared>), CniError> {
        let (mut pod, mut observed) =
            wiring::observe(self.pod.take(), self.call, device, self.guard().await?, self.services).await?;
        if let Some(earlier) = observed.predecessor.take().filter(|earlier| self.may_replace(earlier, device))
        {
            pod = self.replace(earlier, pod).await?;
            let guard = self.guard().await?;
            (pod, observed) = wiring::observe(Some(pod), self.call, device, guard, self.services).await?;
        }
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
            described: &self.described,
            namespace_labels: &self.namespace_labels,
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
        let maker = self.maker();
        let (pod, wired) = self
            .services
            .in_kernel_here(move |host| {
                let wired = wiring::wire(host, &mut pod, prepared, &attachment, maker);
                (pod, wired)
            })
            .await?;
        self.pod = Some(pod);
        failpoint::hit(Point::AddAfterWiring);
        wired
    }

    /// Returns when the rules of the pod's network policy are in the kernel. Until then its device is shut. A single call has no agent that would
    /// load any.
    async fn await_policy(&self, recorded: &Recorded) -> Result<(), CniError> {
        let Some(agent) = self.services.agent() else { return Ok(()) };
        if recorded.endpoint == RecordedEndpoint::Namesakes {
            return Ok(());
        }
        failpoint::hit(Point::AddBeforePolicy);
        let waiting = Waiting {
            device: recorded.wired.device.as_str(),
            addresses: &recorded.wired.addresses,
            profile: profile::awaited(self.call, &self.described),
            is_bare: recorded.endpoint == RecordedEndpoint::Never,
            timeout: self.call.netconf.policy_timeout.unwrap_or(enforce::TIMEOUT),
        };
        agent.enforcement.wait_for(waiting).await
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

    /// As whose the pod's routes are marked. Without an agent, a configuration for Calico's plugin gets what that would make, so that
    /// Felix, which may still run, takes it for its own.
    fn maker(&self) -> Maker {
        let is_calicos = self.call.netconf.plugin.as_deref() == Some("calico");
        if is_calicos && self.services.agent().is_none() { Maker::Calico } else { Maker::Ours }
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
        self.undo_records(made).await;
        if let Err(error) = self.services.forget(sandbox) {
            warn!(%sandbox, %error, "cannot undo the ADD: the journal entry remains");
        }
        failpoint::hit(Point::AddAfterUndo);
    }

    async fn undo_records(&self, made: &Made) {
        let sandbox = &self.call.sandbox;
        let key = self.id.key().ok().flatten();
        if let Err(error) = records::release(&self.book, sandbox, key, made.replaced.as_ref()).await {
            warn!(%sandbox, %error, "cannot undo the ADD: the records remain");
        }
        failpoint::hit(Point::AddUndoReleased);
        if let Err(error) = delegate::release(self.call).await {
            warn!(%sandbox, %error, "cannot undo the ADD: the other plugin's addresses remain");
        }
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
        pod_routes: call.netconf.pod_routes.clone(),
    }
}
