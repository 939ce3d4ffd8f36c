//! The floor: as many addresses as the book gives, written as plain commits of the same records. Nobody looks, decides
//! or encodes anything while the clock runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ipam::Reservations;
use jiff::Timestamp;
use model::ipam::Handle;
use model::{AffinityOwner, Cidr, Key};
use sim::cluster::Pod;
use store::{Change, MAX_CHANGES, Store};

/// Room in a commit for what is not a handle, as the book keeps it.
const SHARED_CHANGES: usize = 8;
const BLOCK_ADDRESSES: usize = 64;

/// What one commit writes.
struct Portion {
    handles: Vec<(Key, Bytes)>,
    /// Each block's state after this portion.
    blocks: Vec<(Key, Bytes)>,
}

pub(crate) struct Floor {
    pub(crate) time: Duration,
    pub(crate) writes: u64,
    pub(crate) commits: usize,
}

/// Writes what `bursts` of `burst` addresses come to, on a node of this name. Removes it again.
pub(crate) async fn write(
    store: &Arc<dyn Store>,
    node: &str,
    burst: usize,
    bursts: usize,
) -> anyhow::Result<Floor> {
    let portions = portions(node, burst, bursts);
    let commits = portions.len();
    let (mut revisions, mut writes) = (Vec::new(), 0);
    let started = Instant::now();
    for portion in portions {
        let mut changes = Vec::new();
        for (key, value) in portion.blocks {
            let known = revisions.iter().find(|(known, _)| *known == key);
            changes.push(match known {
                Some((_, revision)) => Change::update(key, value, store::Revision::clone(revision)),
                None => Change::create(key, value),
            });
        }
        changes.extend(portion.handles.into_iter().map(|(key, value)| Change::create(key, value)));
        let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
        writes += changes.len() as u64;
        let committed = store.commit(changes).await?;
        revisions.retain(|(key, _)| !keys.contains(key));
        revisions.extend(keys.into_iter().zip(committed.revisions));
    }
    let time = started.elapsed();
    for some in revisions.chunks(MAX_CHANGES) {
        let deletion =
            |(key, revision): &(Key, store::Revision)| Change::delete(key.clone(), revision.clone());
        store.commit(some.iter().map(deletion).collect()).await?;
    }
    Ok(Floor { time, writes, commits })
}

fn portions(node: &str, burst: usize, bursts: usize) -> Vec<Portion> {
    let owner = AffinityOwner::Host(node.to_owned());
    let mut given = 0;
    let mut block = ipam::new_block(network(0), &owner, None, Timestamp::UNIX_EPOCH);
    let mut portions = Vec::new();
    for _ in 0..bursts {
        let mut left = burst;
        while left > 0 {
            let mut portion = Portion { handles: Vec::new(), blocks: Vec::new() };
            for _ in 0..left.min(MAX_CHANGES - SHARED_CHANGES) {
                if given > 0 && given % BLOCK_ADDRESSES == 0 {
                    portion.blocks.push((block.key(), block.encode().into()));
                    let network = network(given / BLOCK_ADDRESSES);
                    block = ipam::new_block(network, &owner, None, Timestamp::UNIX_EPOCH);
                }
                let owner = Pod::new(20_000_000 + given, node).owner();
                ipam::take(&mut block, &owner, 1, &Reservations::default());
                let handle = Handle { block: [(block.cidr.to_string(), 1)].into(), ..Handle::default() };
                portion.handles.push((Key::Handle(owner.handle), handle.encode().into()));
                given += 1;
            }
            left -= portion.handles.len();
            portion.blocks.push((block.key(), block.encode().into()));
            portions.push(portion);
        }
    }
    portions
}

/// Outside the pool that the book gives from.
fn network(number: usize) -> Cidr {
    let address = std::net::Ipv4Addr::from(0xc0a8_0000 + (number * BLOCK_ADDRESSES) as u32);
    Cidr::containing(address.into(), 26).expect("26 is the length of a prefix")
}
