//! The role of an IPAM plugin: addresses for other plugins' networks, and nothing else.

use std::net::IpAddr;

use book::{AssignRequest, Book, BookError, GivenRequest, HeldAddress};
use ipam::{AssignError, GATEWAY_TYPE, Granted, INTERFACE_ATTRIBUTE, Owner, ROLE_ATTRIBUTE, TYPE_ATTRIBUTE};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{Cidr, IpVersion};
use serde_json::Value;
use tracing::info;

use super::error::{CniError, code};
use super::records::Held;
use super::result::{self, GivenAddress};
use super::services::Found;
use super::{Call, Caller, Role, Services, del, records};
use crate::failpoint::{self, Point};

/// Gives addresses with the network that they lie in: a bridge or a point-to-point link needs one, and an address
/// in it for the node.
pub(super) async fn add(call: &Call, caller: &Caller, services: &Services) -> Result<Value, CniError> {
    if let Some(reason) = &call.netconf.unsupported {
        return Err(reason.clone());
    }
    let node = services.node_name(&call.netconf)?;
    let _fenced = services.fences().enter(&call.sandbox).await;
    if !caller.waits() {
        return Err(CniError::broken("nobody waits for this ADD any more"));
    }
    super::finish_queued(call, services).await?;
    let book = services.book(&call.netconf).await?;
    failpoint::hit(Point::AddressesBefore);
    let mut addresses = give(call, &book, &node).await?;
    failpoint::hit(Point::AddressesGiven);
    addresses.sort_by_key(|(address, _)| address.is_ipv6());
    let mut given = Vec::new();
    for (address, block) in addresses {
        let gateway = gateway(call, &book, &node, block).await?;
        given.push(GivenAddress { network: in_block(address, block), gateway });
    }
    failpoint::hit(Point::AddressesGateway);
    if !caller.waits() {
        records::release(&book, &call.sandbox, None, None).await?;
        return Err(CniError::broken("nobody waits for this ADD any more"));
    }
    info!(sandbox = %call.sandbox, addresses = ?given, "gave addresses to another plugin");
    failpoint::hit(Point::AddressesAfter);
    Ok(result::of_ipam(&call.netconf.cni_version, &given))
}

pub(super) async fn del(call: &Call, services: &Services) -> Result<(), CniError> {
    del::run(call, services).await
}

/// The addresses that ADD answered must still be this sandbox's.
pub(super) async fn check(call: &Call, services: &Services) -> Result<(), CniError> {
    let version = &call.netconf.cni_version;
    if !result::has_check(version) {
        return Err(CniError::new(code::VERSION, format!("cniVersion {version} has no CHECK")));
    }
    let held = match services.existing_book(&call.netconf).await? {
        Found::Book(book) => Held::look(&book, &call.sandbox, Vec::new()).await?.addresses(),
        Found::NoStore(reason) => return Err(CniError::new(code::CHECK, reason)),
    };
    let answered = call.netconf.prev_result.as_ref();
    let answered = answered.map(|earlier| result::addresses_of(earlier, call.sandbox.interface()));
    let missing = answered.unwrap_or_default().into_iter().find(|address| !held.contains(address));
    match missing {
        None if !held.is_empty() => Ok(()),
        None => Err(CniError::new(code::CHECK, format!("{} holds no address", call.sandbox))),
        Some(address) => {
            Err(CniError::new(code::CHECK, format!("{address} is not held by {}", call.sandbox)))
        }
    }
}

/// The same sandbox again gets the same addresses.
async fn give(call: &Call, book: &Book, node: &str) -> Result<Vec<(IpAddr, Cidr)>, CniError> {
    let held = Held::look(book, &call.sandbox, Vec::new()).await?;
    if !held.addresses.is_empty() {
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
        book.assign(request).await?
    } else {
        book.assign_addresses(GivenRequest::new(node, owner, asked.clone())).await?
    };
    Ok(grant.addresses.iter().map(|Granted { address, block, .. }| (*address, *block)).collect())
}

/// The node's own address in a block: one for each network, kept for as long as the block is used.
async fn gateway(call: &Call, book: &Book, node: &str, block: Cidr) -> Result<Option<IpAddr>, CniError> {
    let handle = format!("{GATEWAY_TYPE}-{}-{node}", call.netconf.name);
    let (holding, _) = book.held(&handle, Vec::new()).await?;
    let is_in = |held: &&HeldAddress| held.block == block;
    if let Some(held) = holding.addresses.iter().find(is_in) {
        return Ok(Some(held.address));
    }
    let owner = Owner::on_node(handle, node, Timestamp::now()).with(TYPE_ATTRIBUTE, GATEWAY_TYPE);
    // The first address of a network is not one for a machine.
    for candidate in in_block(block.network(), block).hosts() {
        let request = GivenRequest::new(node, owner.clone(), vec![candidate]);
        match book.assign_addresses(request).await {
            Ok(_) => return Ok(Some(candidate)),
            Err(BookError::Assign(AssignError::Taken { .. } | AssignError::CoolingDown { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn in_block(address: IpAddr, block: Cidr) -> IpNet {
    IpNet::new(address, block.prefix_len()).expect("a block's prefix fits its addresses")
}
