//! A cluster of records: nodes that are not there, each with a block.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use model::ipam::Block;
use model::{AffinityOwner, Cidr, Key, Kind, Resource};
use serde_json::{Value, json};
use store::{Change, Store};
use tokio::runtime::Runtime;

pub(crate) use crate::store_place::Place;

/// Records per commit.
const AT_ONCE: usize = 100;
/// Blocks have 64 addresses.
const BLOCK_PREFIX: u8 = 26;
/// Of the pool, 10.128.0.0/9.
const FIRST_BLOCK: u32 = 0x0a80_0000;
/// All nodes are in 172.16.0.0/12.
const FIRST_NODE: u32 = 0xac10_0100;

pub(crate) struct World {
    pub(crate) place: Place,
    nodes: usize,
    /// Blocks so far, those that went again among them.
    blocks: AtomicUsize,
    store: Arc<dyn Store>,
    runtime: Runtime,
}

/// A block that came later.
pub(crate) struct NewBlock {
    pub(crate) first: Ipv4Addr,
    key: Key,
    revision: store::Revision,
}

impl World {
    /// The address of a node that has an agent.
    pub(crate) fn own_address(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(172, 16, 0, number)
    }

    /// A block for each of so many nodes. The calling thread is where the store can be reached.
    pub(crate) fn new(place: Place, nodes: usize) -> Result<World> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = runtime.block_on(place.open())?;
        let mut changes =
            vec![create(Kind::IpPool, "pods", json!({"cidr": "10.128.0.0/9", "vxlanMode": "Never"}))];
        for number in 0..nodes {
            let address = Ipv4Addr::from(FIRST_NODE + u32::try_from(number)?);
            changes.push(create(
                Kind::Node,
                &name(number),
                json!({"bgp": {"ipv4Address": format!("{address}/12")}}),
            ));
            let block = block(number, nodes);
            changes.push(Change::create(block.key(), block.encode()));
        }
        for part in changes.chunks(AT_ONCE) {
            runtime.block_on(store.commit(part.to_vec()))?;
        }
        Ok(World { place, nodes, blocks: AtomicUsize::new(nodes), store, runtime })
    }

    pub(crate) fn add_block(&self) -> Result<NewBlock> {
        let block = block(self.blocks.fetch_add(1, Ordering::Relaxed), self.nodes);
        let first = Ipv4Addr::from(first(&block.cidr));
        let revision = self.runtime.block_on(self.store.create(block.key(), block.encode()))?;
        Ok(NewBlock { first, key: block.key(), revision })
    }

    pub(crate) fn remove_block(&self, block: &NewBlock) -> Result<()> {
        self.runtime.block_on(self.store.delete(block.key.clone(), block.revision.clone()))?;
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("remote-{number:05}")
}

fn create(kind: Kind, name: &str, spec: Value) -> Change {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    resource.fill_defaults();
    Change::create(resource.key(), resource.encode())
}

fn block(number: usize, nodes: usize) -> Block {
    let size = 1 << (32 - u32::from(BLOCK_PREFIX));
    let start = FIRST_BLOCK + u32::try_from(number).expect("the pool is not that large") * size;
    let cidr = Cidr::containing(Ipv4Addr::from(start).into(), BLOCK_PREFIX).expect("a length for IPv4");
    Block::new(cidr, Some(&AffinityOwner::Host(name(number % nodes.max(1)))), 1)
}

fn first(cidr: &Cidr) -> u32 {
    match cidr.network() {
        std::net::IpAddr::V4(address) => u32::from(address),
        std::net::IpAddr::V6(_) => unreachable!("blocks of this bench are IPv4"),
    }
}
