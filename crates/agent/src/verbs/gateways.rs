//! The node's own addresses in blocks that other plugins' networks use: one for each network and block, there as long as the block has
//! containers of the network.
//!
//! All calls that give or release one run on this node, so a lock on a file orders them. Without it, none is released.

use std::fs::File;
use std::net::IpAddr;

use book::{Book, BookError, GivenRequest, HandleRequest, HeldAddress};
use ipam::{AssignError, GATEWAY_TYPE, NODE_ATTRIBUTE, Owner, ROLE_ATTRIBUTE, TYPE_ATTRIBUTE};
use ipnet::IpNet;
use jiff::Timestamp;
use model::ipam::Block;
use model::{Cidr, HandleId, Key};
use tracing::{info, warn};

use super::Call;
use super::error::CniError;
use crate::services::Services;

const LOCK_FILE: &str = "gateways.lock";

/// Held while addresses and gateways of a node change. Dropping it lets the next call go on.
#[derive(Debug)]
pub(super) struct Fence(Option<File>);

impl Fence {
    /// Waits for its turn.
    pub(super) async fn wait(services: Services<'_>) -> Fence {
        let Some(directory) = services.queue.path().parent().map(std::path::Path::to_owned) else {
            return Fence(None);
        };
        let wait = move || {
            std::fs::create_dir_all(&directory)?;
            let file = File::options().create(true).append(true).open(directory.join(LOCK_FILE))?;
            file.lock().map(|()| file)
        };
        match tokio::task::spawn_blocking(wait).await {
            Ok(Ok(file)) => Fence(Some(file)),
            Ok(Err(error)) => {
                warn!(%error, "cannot lock the gateways of this node: unused ones are not released");
                Fence(None)
            }
            Err(_) => Fence(None),
        }
    }
}

/// The node's address in a block: the one that it has, or a new one.
pub(super) async fn give(
    call: &Call,
    book: &Book,
    node: &str,
    block: Cidr,
) -> Result<Option<IpAddr>, CniError> {
    let handle = HandleId::of_gateway(&call.netconf.name, node);
    let (holding, _) = book.held(&handle, Vec::new()).await?;
    let is_in = |held: &&HeldAddress| held.block == block;
    if let Some(held) = holding.addresses.iter().find(is_in) {
        return Ok(Some(held.address));
    }
    let owner = Owner::on_node(handle, node, Timestamp::now()).with(TYPE_ATTRIBUTE, GATEWAY_TYPE);
    // Not the first address: it is the network's own.
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

/// Releases those in blocks that have no container of the network left.
pub(super) async fn release_unused(
    network: &str,
    node: &str,
    book: &Book,
    fence: &Fence,
) -> Result<(), CniError> {
    if fence.0.is_none() {
        return Ok(());
    }
    let handle = HandleId::of_gateway(network, node);
    let (holding, _) = book.held(&handle, Vec::new()).await?;
    let mut unused = Vec::new();
    for held in &holding.addresses {
        if !is_used(held.block, network, node, book).await? {
            unused.push(held.address);
        }
    }
    if unused.is_empty() {
        return Ok(());
    }
    let request = HandleRequest::only(handle, move |address, _, _| unused.contains(&address));
    let released = book.release_handle(request).await?;
    info!(network, addresses = ?released.addresses, "released gateways that nobody uses");
    Ok(())
}

/// What cannot be read counts as used.
async fn is_used(cidr: Cidr, network: &str, node: &str, book: &Book) -> Result<bool, CniError> {
    let Some(record) = book.store().get(&Key::Block(cidr)).await? else { return Ok(false) };
    let Ok(block) = Block::decode(&cidr, &record.value) else { return Ok(true) };
    let is_user = |ordinal: usize| {
        block.attribute(ordinal).is_some_and(|attribute| {
            let of = |key: &str| attribute.secondary.get(key).map(String::as_str);
            let is_ours =
                attribute.handle().and_then(HandleId::sandbox).is_some_and(|(name, _)| name == network);
            is_ours && of(NODE_ATTRIBUTE) == Some(node) && of(ROLE_ATTRIBUTE).is_some()
        })
    };
    Ok((0..block.capacity()).any(is_user))
}

pub(super) fn in_block(address: IpAddr, block: Cidr) -> IpNet {
    IpNet::new(address, block.prefix_len()).expect("a block's prefix fits its addresses")
}
