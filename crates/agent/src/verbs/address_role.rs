//! The role of an IPAM plugin: addresses for other plugins' networks.

use std::collections::BTreeMap;
use std::net::IpAddr;

use book::{AssignRequest, Book, GivenRequest};
use ipam::{Granted, INTERFACE_ATTRIBUTE, Owner, ROLE_ATTRIBUTE};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{Cidr, IpVersion};
use serde_json::Value;
use tracing::info;

use super::error::{CniError, code};
use super::gateways::{self, Fence, in_block};
use super::records::Held;
use super::result::{self, AllocatedAddress};
use wire::Role;

use super::{Call, Caller, add as network_add, kubernetes, queued, records};
use crate::failpoint::{self, Point};
use crate::services::{FoundBook, Services};

/// Allocates addresses together with their network: a bridge or a point-to-point link needs one, and an address in it for the node.
pub(super) async fn add(call: &Call, caller: &Caller, services: Services<'_>) -> Result<Value, CniError> {
    call.netconf.check()?;
    let node = services.node_name(&call.netconf)?;
    let _locked = services.locks.acquire(&call.sandbox).await;
    if !caller.is_waiting() {
        return Err(network_add::abandoned());
    }
    queued::run_earlier(call, services).await?;
    let book = services.book(&call.netconf).await?;
    let labels = kubernetes::namespace_labels(call, services).await?;
    let fence = if has_gateways(call) { Some(Fence::wait(services).await) } else { None };
    failpoint::hit(Point::AddressesBefore);
    let mut addresses = allocate(call, &book, &node, labels).await?;
    failpoint::hit(Point::AddressesGiven);
    addresses.sort_by_key(|(address, _)| address.is_ipv6());
    let mut allocated = Vec::new();
    for (address, block) in addresses {
        if has_gateways(call) {
            let gateway = gateways::give(call, &book, &node, block).await?;
            allocated.push(AllocatedAddress { network: in_block(address, block), gateway });
        } else {
            let is_asked = !call.netconf.asked.addresses.is_empty();
            let network = if is_asked { IpNet::from(address) } else { in_block(address, block) };
            allocated.push(AllocatedAddress { network, gateway: None });
        }
    }
    drop(fence);
    failpoint::hit(Point::AddressesGateway);
    if !caller.is_waiting() {
        records::release(&book, &call.sandbox, None, None).await?;
        return Err(network_add::abandoned());
    }
    info!(sandbox = %call.sandbox, addresses = ?allocated, "allocated addresses for another plugin");
    failpoint::hit(Point::AddressesAfter);
    let version = &call.netconf.cni_version;
    if has_gateways(call) {
        return Ok(result::of_ipam(version, &allocated));
    }
    let routes: Vec<Value> = allocated.iter().map(|address| result::route_to(address.network)).collect();
    Ok(result::of_ipam_with(version, &allocated, &routes))
}

/// Whether the network needs an address for the node. Calico's own plugin, and ours, reach pods without one.
pub(super) fn has_gateways(call: &Call) -> bool {
    let own = ["calico", "plumb-cni"];
    call.netconf.plugin.as_deref().is_some_and(|plugin| !own.contains(&plugin))
}

/// The sandbox must still hold the addresses that ADD returned.
pub(super) async fn check(call: &Call, services: Services<'_>) -> Result<(), CniError> {
    let version = &call.netconf.cni_version;
    if !result::has_check(version) {
        return Err(CniError::new(code::VERSION, format!("cniVersion {version} has no CHECK")));
    }
    let held = match services.existing_book(&call.netconf).await? {
        FoundBook::Book(book) => Held::read(&book, &call.sandbox, Vec::new()).await?.addresses(),
        FoundBook::NoStore(reason) => return Err(CniError::new(code::CHECK, reason)),
    };
    let answered = call.netconf.prev_result.as_ref();
    let answered = answered.map(|earlier| result::addresses_of(earlier, call.sandbox.interface()));
    let missing = answered.unwrap_or_default().into_iter().find(|address| !held.contains(address));
    match missing {
        None if !held.is_empty() => Ok(()),
        None => Err(CniError::new(code::CHECK, format!("{} holds no address", call.sandbox))),
        Some(address) => Err(CniError::new(code::CHECK, format!("{} does not hold {address}", call.sandbox))),
    }
}

/// A repeated ADD gets the same addresses.
async fn allocate(
    call: &Call,
    book: &Book,
    node: &str,
    namespace_labels: BTreeMap<String, String>,
) -> Result<Vec<(IpAddr, Cidr)>, CniError> {
    let held = Held::read(book, &call.sandbox, Vec::new()).await?;
    if !held.addresses.is_empty() {
        let taken =
            held.addresses().into_iter().find(|address| call.netconf.asked.addresses.contains(address));
        if let Some(address) = taken.filter(|_| !has_gateways(call)) {
            // As with Calico: whoever asks for one address asks once.
            let message = format!("{address} is allocated to {} already", call.sandbox);
            return Err(CniError::new(code::ADDRESSES, message).hint("a DEL releases it"));
        }
        return Ok(held.addresses.iter().map(|held| (held.address, held.block)).collect());
    }
    let owner = Owner::on_node(call.sandbox.handle(), node, Timestamp::now())
        .with(INTERFACE_ATTRIBUTE, call.sandbox.interface())
        .with(ROLE_ATTRIBUTE, Role::Ipam.as_str());
    let owner = match &call.request.pod {
        Some(pod) => owner.of_pod(&pod.namespace, &pod.name, pod.uid.as_deref()),
        None => owner,
    };
    let (ipam, asked) = (&call.netconf.ipam, &call.netconf.asked.addresses);
    let grant = if asked.is_empty() {
        let versions = [(ipam.assign_v4, IpVersion::V4), (ipam.assign_v6, IpVersion::V6)];
        let versions: Vec<IpVersion> =
            versions.into_iter().filter(|(wanted, _)| *wanted).map(|(_, version)| version).collect();
        let mut request = AssignRequest::new(node, owner, &versions);
        request.pools_v4.clone_from(&ipam.ipv4_pools);
        request.pools_v6.clone_from(&ipam.ipv6_pools);
        request.namespace_labels = namespace_labels;
        book.assign(request).await?
    } else {
        book.assign_addresses(GivenRequest::new(node, owner, asked.clone())).await?
    };
    Ok(grant.addresses.iter().map(|Granted { address, block, .. }| (*address, *block)).collect())
}
