//! ADD: records first, in one commit; then the kernel; then read back. What fails is undone.

use host::{Host, HostError, PodNamespace};
use ipam::{INTERFACE_ATTRIBUTE, Owner, PoolUse, Stored, Want};
use jiff::Timestamp;
use model::ipam::Handle;
use model::{DeviceName, IpVersion, Resource};
use plan::{Attachment, PodWiring};
use serde_json::Value;
use store::{Change, Record, StoreError};
use tracing::{info, warn};

use super::book::{Book, Held, Patience, changes};
use super::endpoint::{EndpointId, Wired};
use super::error::CniError;
use super::{Call, Services, del, endpoint, node, result};

/// etcd takes no more changes in one commit; some of them are the endpoint's and the lock's.
const CHANGES_MAX: usize = 120;

/// What the store holds for the attachment by now.
#[derive(Debug)]
struct Recorded {
    wired: Wired,
    /// There if it was this call that wrote it.
    made: Option<Made>,
}

#[derive(Debug, Default)]
struct Made {
    /// The endpoint record of an earlier sandbox of the same pod that ours replaced.
    replaced: Option<Record>,
}

struct Add<'a> {
    call: &'a Call,
    book: Book<'a>,
    host: Host,
    pod: PodNamespace,
    node: String,
    id: EndpointId,
}

pub(super) async fn run(call: &Call, services: &Services) -> Result<Value, CniError> {
    if let Some(reason) = &call.netconf.unsupported {
        return Err(reason.clone());
    }
    let node = node::name(&call.netconf)?;
    let mtu = node::mtu(&call.netconf)?;
    let netns = call.request.netns.as_deref().ok_or_else(|| CniError::environment("CNI_NETNS is not set"))?;
    let (pod, host) = (PodNamespace::open(netns)?, Host::here()?);
    let store = services.store(&call.netconf).await?;
    let id = EndpointId::new(&node, call.request.pod.as_ref(), &call.sandbox);
    let mut add = Add { call, book: Book::new(&*store), host, pod, node, id };
    let facts = add.host.facts()?;
    let mut device = node::device_name(call.request.pod.as_ref(), &call.sandbox)?;
    loop {
        let recorded = add.ensure_recorded(&device).await?;
        let attachment = attachment(call, recorded.wired.clone(), mtu);
        let wiring = PodWiring::new(&attachment, &facts)
            .map_err(|error| CniError::configuration(error.to_string()))?;
        let Err(error) = add.host.ensure(&mut add.pod, &wiring) else {
            info!(sandbox = %call.sandbox, device = %wiring.host.device, addresses = ?attachment.addresses, "added");
            return Ok(result::of_add(&call.netconf.cni_version, &wiring, netns));
        };
        add.undo(recorded.made).await;
        match error {
            // Another sandbox of the same pod was faster. The name of our own is nobody else's.
            HostError::NameTaken { .. } if device != add.own_device_name() => device = add.own_device_name(),
            error => return Err(error.into()),
        }
    }
}

impl Add<'_> {
    /// Makes sure that the store holds address and endpoint of this sandbox. Those of an earlier call are used again.
    async fn ensure_recorded(&mut self, device: &DeviceName) -> Result<Recorded, CniError> {
        let mut patience = Patience::new();
        let mut maybe_made = None;
        loop {
            let unlocked = self.book.require_unlocked().await?;
            let held = self.book.held(&self.call.sandbox).await?;
            let earlier = self.book.endpoint(&self.id.key()?).await?;
            if !held.addresses.is_empty() {
                let wired = self.use_again(held, earlier, unlocked).await?;
                return Ok(Recorded { wired, made: maybe_made });
            }
            let (changes, wired) = self.plan_records(device, held, earlier.as_ref(), unlocked).await?;
            let replaced = earlier.map(|(record, _)| record);
            match self.book.commit(changes).await {
                Ok(()) => return Ok(Recorded { wired, made: Some(Made { replaced }) }),
                // Reading again will tell.
                Err(StoreError::Uncertain { .. }) if maybe_made.is_none() => {
                    maybe_made = Some(Made { replaced });
                }
                Err(error) => patience.after(error).await?,
            }
        }
    }

    /// An address, the handle that knows it, the endpoint: everything that must appear together.
    async fn plan_records(
        &mut self,
        device: &DeviceName,
        held: Held,
        earlier: Option<&(Record, Resource)>,
        unlocked: Change,
    ) -> Result<(Vec<Change>, Wired), CniError> {
        let interface = DeviceName::new(self.call.sandbox.interface()).expect("checked with the sandbox");
        if self.pod.has_device(&interface)? {
            let message = format!("the pod already has an interface {interface}");
            return Err(CniError::environment(message).hint("it is not this sandbox's, so it is left alone"));
        }
        let device = if self.host.is_name_taken(device, &self.call.sandbox)? {
            info!("{device} belongs to another sandbox; using a name of this sandbox's own");
            self.own_device_name()
        } else {
            device.clone()
        };
        let now = Timestamp::now();
        let request = self.address_request(now, held.handle).await?;
        let (addresses, steps) = self.book.plan_addresses(request).await?;
        let wired = Wired { device, mac: self.call.sandbox.mac(), addresses };
        let resource =
            endpoint::record(&self.id, &self.call.sandbox, &wired, earlier.map(|(_, known)| known), now)?;
        let mut all = vec![unlocked];
        all.extend(changes(&steps));
        all.push(match earlier {
            Some((record, _)) => Change::update(resource.key(), resource.encode(), record.revision.clone()),
            None => Change::create(resource.key(), resource.encode()),
        });
        Ok((all, wired))
    }

    async fn address_request(
        &self,
        now: Timestamp,
        handle: Option<Stored<Handle>>,
    ) -> Result<ipam::Request, CniError> {
        let sandbox = &self.call.sandbox;
        let mut owner =
            Owner::on_node(sandbox.handle(), &self.node, now).with(INTERFACE_ATTRIBUTE, sandbox.interface());
        if let Some(pod) = &self.call.request.pod {
            owner = owner.of_pod(&pod.namespace, &pod.name, None);
        }
        let wants = vec![Want::one_each(owner, handle, &[IpVersion::V4])];
        Ok(ipam::Request {
            pools_v4: self.call.netconf.ipv4_pools.clone(),
            node_labels: self.book.node_labels(&self.node).await?,
            ..ipam::Request::new(&self.node, wants, PoolUse::Workload, CHANGES_MAX)
        })
    }

    /// The same sandbox again gets the same answer. Its endpoint record may be gone (then it is written anew) or
    /// belong to a later sandbox of the same pod by now (then it is left alone).
    async fn use_again(
        &mut self,
        held: Held,
        earlier: Option<(Record, Resource)>,
        unlocked: Change,
    ) -> Result<Wired, CniError> {
        let known = earlier.as_ref().map(|(_, resource)| resource);
        if let Some(known) = known.filter(|known| self.is_ours(known))
            && let Some(wired) = endpoint::wired(known)
        {
            return Ok(wired);
        }
        let own = self.host.owned_links()?.into_iter().find(|link| link.owner == self.call.sandbox);
        let device = own.and_then(|link| DeviceName::new(&link.name).ok());
        let wired = Wired {
            device: device.unwrap_or_else(|| self.own_device_name()),
            mac: self.call.sandbox.mac(),
            addresses: held.addresses,
        };
        if earlier.is_none() {
            let now = Timestamp::now();
            let resource = endpoint::record(&self.id, &self.call.sandbox, &wired, None, now)?;
            let create = Change::create(resource.key(), resource.encode());
            self.book.commit(vec![unlocked, create]).await?;
        }
        Ok(wired)
    }

    fn is_ours(&self, resource: &Resource) -> bool {
        endpoint::container_id(resource) == self.call.sandbox.container_id()
    }

    fn own_device_name(&self) -> DeviceName {
        node::own_device_name(&self.call.sandbox)
    }

    /// Takes back what this call made; what it cannot, the runtime's DEL finds. The kernel goes first: an address
    /// must not be free while something still answers to it.
    async fn undo(&mut self, made: Option<Made>) {
        let Some(made) = made else { return };
        let undone = match self.host.remove_links_of(&self.call.sandbox) {
            Ok(_) => del::release(&self.book, self.call, made.replaced.as_ref()).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = undone {
            warn!("not everything could be undone: {} ({})", error.message, error.details);
        }
    }
}

fn attachment(call: &Call, wired: Wired, mtu: u32) -> Attachment {
    Attachment {
        sandbox: call.sandbox.clone(),
        device: wired.device,
        mac: wired.mac,
        mtu,
        addresses: wired.addresses,
        pod_forwards: call.netconf.pod_forwards,
    }
}
