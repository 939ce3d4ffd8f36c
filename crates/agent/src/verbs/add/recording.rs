//! The records of an ADD: addresses and endpoint, together.

use std::collections::BTreeMap;
use std::net::IpAddr;

use book::{Additions, AssignRequest, Book, BookError, GivenRequest};
use host::{Host, PodInterface};
use ipam::{INTERFACE_ATTRIBUTE, NAMESPACE_ATTRIBUTE, Owner};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{Cidr, DeviceName, IpVersion, Resource};
use serde_json::Value;
use store::Record;
use tracing::{debug, warn};

use super::super::endpoint::{self, Described, EndpointId, Keeping, Wired};
use super::super::error::CniError;
use super::super::gateways::in_block;
use super::super::records::{Held, Tries, find_endpoint};
use super::super::{Call, confirm, delegate, node, pod, result};
use super::endpoint_write::EndpointWrite;
use super::mac;
use crate::failpoint::{self, Point};
use crate::services::Services;

/// The attachment's records in the store.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) wired: Wired,
    /// Set if this call wrote them.
    pub(super) made: Option<Made>,
    /// An earlier call has wired the pod with these addresses.
    pub(super) is_wired: bool,
    /// What the answer says of routes.
    pub(super) routes: Vec<Value>,
    /// The addresses, each with the prefix length of where it comes from.
    pub(super) networks: Vec<IpNet>,
    /// Whose endpoint record the store has.
    pub(super) endpoint: RecordedEndpoint,
}

/// The endpoint record of an attachment, as network policy looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordedEndpoint {
    Own,
    /// It belongs to a later sandbox of the same pod.
    Namesakes,
    /// Such attachments have none in this kind of store.
    Never,
}

#[derive(Debug, Default)]
pub(super) struct Made {
    /// The endpoint record of an earlier sandbox of the same pod, which ours replaced.
    pub(super) replaced: Option<Record>,
}

/// What is to be recorded.
pub(super) struct Recording<'a> {
    pub(super) call: &'a Call,
    pub(super) book: &'a Book,
    pub(super) node: &'a str,
    pub(super) id: &'a EndpointId,
    /// The record of the pod, where endpoints are views of pods.
    pub(super) pod: Option<&'a (Record, Resource)>,
    /// The host end's name, if the records are new.
    pub(super) device: DeviceName,
    /// The pod's interface of that name. One that another program made is an error.
    pub(super) interface: PodInterface,
    /// What the record says beside the wiring.
    pub(super) described: &'a Described,
    /// Of the pod's namespace, which may decide about pools.
    pub(super) namespace_labels: &'a BTreeMap<String, String>,
}

/// Addresses that a commit gave.
struct Given {
    networks: Vec<IpNet>,
    routes: Vec<Value>,
}

impl Given {
    fn addresses(&self) -> Vec<IpAddr> {
        self.networks.iter().map(IpNet::addr).collect()
    }
}

impl Recording<'_> {
    /// Makes sure that the store holds addresses and endpoint of this sandbox. Those of an earlier call are reused.
    pub(super) async fn ensure(&self, services: Services<'_>) -> Result<Recorded, CniError> {
        let may_exist = self.interface != PodInterface::None || self.asks_for_addresses();
        let (mut endpoint, mut handle_exists) = (self.first_write()?, false);
        if may_exist {
            let held = self.read().await?;
            if !held.addresses.is_empty() || self.is_recorded_without_book(&held, services).await? {
                return self.reuse(held, services).await;
            }
            if self.interface == PodInterface::Foreign {
                let message = format!("the pod already has an interface {}", self.call.sandbox.interface());
                let hint = "another program made it; remove it or use another interface name";
                return Err(CniError::environment(message).hint(hint));
            }
            handle_exists = held.handle_exists;
            endpoint = self.write_after(held)?;
        }
        let mut tries = Tries::default();
        loop {
            match self.try_record(&endpoint, handle_exists, services).await {
                Ok(given) => {
                    let made = Some(Made { replaced: endpoint.into_replaced() });
                    let (wired, Given { networks, routes }) = (self.wired(given.addresses()), given);
                    let endpoint = self.recorded_endpoint()?;
                    return Ok(Recorded { wired, made, is_wired: false, routes, networks, endpoint });
                }
                // Either this sandbox again, or another interface of it.
                Err(Obstacle::HandleExists) => {
                    let held = self.read().await?;
                    if !held.addresses.is_empty() {
                        return self.reuse(held, services).await;
                    }
                    (handle_exists, endpoint) = (true, self.write_after(held)?);
                }
                Err(Obstacle::EndpointChanged) => {
                    debug!(sandbox = %self.call.sandbox, "the endpoint record changed or exists already");
                    endpoint = self.read_write().await?;
                    tries.again(&self.call.sandbox).await?;
                }
                Err(Obstacle::Final(error)) => return Err(error),
            }
        }
    }

    /// How the endpoint is written, without reading: most pods are new, and where they are not, their record is at hand.
    fn first_write(&self) -> Result<EndpointWrite, CniError> {
        Ok(match (self.id.key()?, self.pod) {
            (None, _) => EndpointWrite::Nothing,
            (Some(_), Some(pod)) => EndpointWrite::of_view(pod.clone()),
            (Some(_), None) => EndpointWrite::Create,
        })
    }

    /// The same after the record was read, if there is one.
    fn write_after(&self, held: Held) -> Result<EndpointWrite, CniError> {
        let found = held.endpoints.into_iter().next();
        Ok(match (self.pod, found) {
            (Some(_), Some(found)) => EndpointWrite::of_view(found),
            (Some(_), None) => self.first_write()?,
            (None, _) if self.id.key()?.is_none() => EndpointWrite::Nothing,
            (None, found) => EndpointWrite::of_record(found),
        })
    }

    /// The same, read now. A pod that is another one by now is an error.
    async fn read_write(&self) -> Result<EndpointWrite, CniError> {
        let Some(key) = self.id.key()? else { return Ok(EndpointWrite::Nothing) };
        match (self.pod, &self.call.request.pod) {
            (Some(_), Some(name)) => {
                Ok(EndpointWrite::of_view(pod::read(name, self.node, &key, self.book).await?))
            }
            _ => Ok(EndpointWrite::of_record(find_endpoint(self.book, &key).await?)),
        }
    }

    /// Addresses that are not from our pools appear in the endpoint only. Where that is a view of the pod, it counts as far as the
    /// kernel or the journal says the same.
    async fn is_recorded_without_book(&self, held: &Held, services: Services<'_>) -> Result<bool, CniError> {
        let endpoint = held.endpoints.first().map(|(_, endpoint)| endpoint);
        let Some(endpoint) = endpoint.filter(|endpoint| self.is_ours(endpoint)) else { return Ok(false) };
        if !self.call.netconf.goes_without_book() {
            return Ok(false);
        }
        if Keeping::of(self.book) == Keeping::Records {
            return Ok(true);
        }
        let recorded = endpoint::addresses(endpoint).unwrap_or_default();
        let entry = services.journal().and_then(|journal| journal.get(&self.call.sandbox));
        if entry.is_some_and(|entry| confirm::are_the_same(&entry.attachment.addresses, &recorded)) {
            return Ok(true);
        }
        let sandbox = self.call.sandbox.clone();
        Ok(!recorded.is_empty()
            && services.in_kernel(move |host| host.routes_to(&sandbox, &recorded)).await?)
    }

    fn is_ours(&self, endpoint: &Resource) -> bool {
        endpoint::container_id(endpoint) == self.call.sandbox.container_id()
    }

    async fn read(&self) -> Result<Held, CniError> {
        Held::read(self.book, &self.call.sandbox, self.id.key()?.into_iter().collect()).await
    }

    fn asks_for_addresses(&self) -> bool {
        !self.call.netconf.asked.addresses.is_empty()
    }

    /// One commit, or none.
    async fn try_record(
        &self,
        endpoint: &EndpointWrite,
        handle_exists: bool,
        services: Services<'_>,
    ) -> Result<Given, Obstacle> {
        if self.call.netconf.goes_without_book() {
            return self.record_delegated(endpoint, services).await;
        }
        let (owner, additions) = (self.owner(), self.endpoint_addition(endpoint)?);
        let asked = &self.call.netconf.asked.addresses;
        let granted = if asked.is_empty() {
            let ipam = &self.call.netconf.ipam;
            let versions = [(ipam.assign_v4, IpVersion::V4), (ipam.assign_v6, IpVersion::V6)];
            let versions: Vec<IpVersion> =
                versions.into_iter().filter(|(wanted, _)| *wanted).map(|(_, version)| version).collect();
            let mut request = AssignRequest::new(self.node, owner, &versions);
            request.handle_may_exist = handle_exists;
            request.pools_v4.clone_from(&ipam.ipv4_pools);
            request.pools_v6.clone_from(&ipam.ipv6_pools);
            request.namespace_labels.clone_from(self.namespace_labels);
            request.additions = additions;
            self.book.assign(request).await
        } else {
            let mut request = GivenRequest::new(self.node, owner, asked.clone());
            request.additions = additions;
            self.book.assign_addresses(request).await
        };
        let granted = granted.map(|granted| granted.addresses).map_err(Obstacle::from)?;
        Ok(self.given(granted.iter().map(|granted| (granted.address, granted.block))))
    }

    /// As Calico's IPAM plugin answers: an address with its block's prefix length, and a route to it. One that the caller asked for is
    /// alone, and what a pod asks for in annotations has no route.
    fn given(&self, addresses: impl Iterator<Item = (IpAddr, Cidr)>) -> Given {
        let asked = &self.call.netconf.asked;
        let network = |(address, block): (IpAddr, Cidr)| match asked.addresses.is_empty() {
            true => in_block(address, block),
            false => IpNet::from(address),
        };
        let networks: Vec<IpNet> = addresses.map(network).collect();
        let routes = networks.iter().copied().filter(|_| !asked.is_by_annotation).map(result::route_to);
        Given { routes: routes.collect(), networks }
    }

    /// Another plugin allocates the addresses; only the endpoint is recorded here.
    async fn record_delegated(
        &self,
        endpoint: &EndpointWrite,
        services: Services<'_>,
    ) -> Result<Given, Obstacle> {
        let allocated = delegate::add(self.call, self.node, services).await?;
        failpoint::hit(Point::AddDelegated);
        let given = Given { networks: allocated.networks, routes: allocated.routes };
        let resource = match self.endpoint(&given.addresses(), endpoint.earlier()) {
            Ok(resource) => resource,
            Err(error) => {
                delegate::release(self.call).await?;
                return Err(error.into());
            }
        };
        let change = endpoint.change(&resource);
        match self.book.store().commit(change.into_iter().collect()).await {
            Ok(_) => Ok(given),
            Err(error) => {
                // The next attempt asks it again.
                delegate::release(self.call).await?;
                if error.is_lost_race() {
                    return Err(Obstacle::EndpointChanged);
                }
                Err(Obstacle::Final(error.into()))
            }
        }
    }

    fn owner(&self) -> Owner {
        let sandbox = &self.call.sandbox;
        let owner = Owner::on_node(sandbox.handle(), self.node, Timestamp::now())
            .with(INTERFACE_ATTRIBUTE, sandbox.interface());
        match &self.call.request.pod {
            Some(pod) => owner.of_pod(&pod.namespace, &pod.name, pod.uid.as_deref()),
            None => match self.call.namespace() {
                Some(namespace) => owner.with(NAMESPACE_ATTRIBUTE, namespace),
                None => owner,
            },
        }
    }

    /// The endpoint's record, as a function of the addresses that it gets.
    fn endpoint_addition(&self, endpoint: &EndpointWrite) -> Result<Additions, CniError> {
        // Invalid names fail here, before addresses are allocated.
        let template = self.endpoint(&[], endpoint.earlier())?;
        let (endpoint, described) = (endpoint.clone(), self.described.clone());
        Ok(Additions::new(endpoint.count(), move |granted| {
            let addresses: Vec<IpAddr> = granted.iter().map(|granted| granted.address).collect();
            let mut resource = template.clone();
            described.set_addresses(&mut resource, &addresses);
            Ok(endpoint.addition(&resource).into_iter().collect())
        }))
    }

    fn endpoint(&self, addresses: &[IpAddr], earlier: Option<&Resource>) -> Result<Resource, CniError> {
        self.endpoint_of(&self.wired(addresses.to_vec()), earlier)
    }

    fn endpoint_of(&self, wired: &Wired, earlier: Option<&Resource>) -> Result<Resource, CniError> {
        endpoint::record(self.id, wired, self.described, earlier, Timestamp::now())
    }

    fn wired(&self, addresses: Vec<IpAddr>) -> Wired {
        Wired { device: self.device.clone(), mac: mac(self.call), addresses }
    }

    /// A repeated ADD gets the same answer. Its endpoint record may be missing (then it is recreated) or belong to a later sandbox of the
    /// same pod (then it is left alone). One that says something else than IPAM is corrected where others than us may write it.
    async fn reuse(&self, held: Held, services: Services<'_>) -> Result<Recorded, CniError> {
        let is_wired = self.interface == PodInterface::Own;
        let recorded = held.endpoints.first().map(|(_, resource)| resource);
        let recorded = recorded.filter(|endpoint| self.is_ours(endpoint)).and_then(endpoint::wired);
        let is_wrong = match &recorded {
            Some(wired) => !self.is_believed(wired, &held)?,
            None => false,
        };
        let again = |wired: Wired, given: &Given, endpoint: RecordedEndpoint| Recorded {
            endpoint,
            networks: networks_of(&wired.addresses, &given.networks),
            routes: given.routes.clone(),
            wired,
            made: None,
            is_wired,
        };
        let mut given = self.given(held.addresses.iter().map(|held| (held.address, held.block)));
        if self.call.netconf.goes_without_book() {
            given.routes = self.call.netconf.configured_routes();
        }
        let addresses = match recorded {
            Some(wired) if !is_wrong => return Ok(again(wired, &given, RecordedEndpoint::Own)),
            // Only its device is wrong.
            Some(wired) if held.addresses.is_empty() => wired.addresses,
            _ => confirm::agreed(&[], &held.addresses()),
        };
        let links = services.in_kernel(Host::owned_links).await?;
        let own = links.iter().find(|link| link.owner == self.call.sandbox);
        let own = own.and_then(|link| DeviceName::new(&link.name).ok());
        let device = own.unwrap_or_else(|| node::own_device_name(&self.call.sandbox));
        let wired = Wired { device, mac: mac(self.call), addresses };
        let endpoint = self.write_after(held)?;
        let mut recorded = self.recorded_endpoint()?;
        if !is_wrong && matches!(endpoint, EndpointWrite::Replace(..)) {
            recorded = RecordedEndpoint::Namesakes;
        } else {
            let resource = self.endpoint_of(&wired, endpoint.earlier())?;
            match self.book.store().commit(endpoint.change(&resource).into_iter().collect()).await {
                Err(error) if is_wrong && error.is_lost_race() => {
                    warn!(sandbox = %self.call.sandbox, %error, "cannot correct the endpoint record");
                }
                outcome => drop(outcome?),
            }
        }
        Ok(again(wired, &given, recorded))
    }

    /// Of what this call has just written.
    fn recorded_endpoint(&self) -> Result<RecordedEndpoint, CniError> {
        Ok(if self.id.key()?.is_some() { RecordedEndpoint::Own } else { RecordedEndpoint::Never })
    }

    /// Whether the record of this sandbox says what IPAM says. Others than us may write a pod's annotations.
    fn is_believed(&self, recorded: &Wired, held: &Held) -> Result<bool, CniError> {
        if Keeping::of(self.book) == Keeping::Records {
            return Ok(true);
        }
        let (pod, sandbox) = (self.call.request.pod.as_ref(), &self.call.sandbox);
        let has_its_addresses =
            held.addresses.is_empty() || confirm::are_the_same(&recorded.addresses, &held.addresses());
        Ok(has_its_addresses && confirm::is_device_of(&recorded.device, pod, sandbox)?)
    }
}

/// The addresses with the prefix lengths that are known.
fn networks_of(addresses: &[IpAddr], known: &[IpNet]) -> Vec<IpNet> {
    let network = |address: &IpAddr| known.iter().copied().find(|network| network.addr() == *address);
    addresses.iter().map(|address| network(address).unwrap_or_else(|| IpNet::from(*address))).collect()
}

/// Why a commit failed.
enum Obstacle {
    HandleExists,
    /// The endpoint's record exists already, or changed since it was read.
    EndpointChanged,
    Final(CniError),
}

impl From<CniError> for Obstacle {
    fn from(error: CniError) -> Obstacle {
        Obstacle::Final(error)
    }
}

impl From<BookError> for Obstacle {
    fn from(error: BookError) -> Obstacle {
        match error {
            BookError::HandleExists { .. } => Obstacle::HandleExists,
            BookError::Addition { source: None, .. } => Obstacle::EndpointChanged,
            BookError::Addition { source: Some(source), .. } if source.is_lost_race() => {
                Obstacle::EndpointChanged
            }
            error => Obstacle::Final(error.into()),
        }
    }
}
