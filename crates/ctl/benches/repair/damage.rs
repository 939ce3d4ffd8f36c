//! Leaks: addresses of machines that were scrapped, and handles that nothing refers to.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use ipam::{Owner, Reservations};
use model::ipam::{Block, Handle};
use model::{IpVersion, Key, KeyRange};
use store::{Change, MAX_CHANGES, Store};

const ADDRESSES: usize = 15_000;
const HANDLES: usize = 30_000;
/// How many deletions the floor is measured with.
const FLOOR: usize = 12_800;

#[derive(Debug)]
pub(crate) struct Leaked {
    pub(crate) addresses: usize,
    pub(crate) handles: usize,
}

fn counts(block: &Block) -> Vec<u8> {
    Handle { block: [(block.cidr.to_string(), 1)].into(), ..Handle::default() }.encode()
}

fn handle(letter: char, number: usize) -> String {
    format!("k8s-pod-network.{letter}{number:063x}")
}

pub(crate) async fn leak(store: &Arc<dyn Store>) -> Result<Leaked> {
    let blocks = store.list_all(KeyRange::Blocks(IpVersion::V4)).await?.0;
    let (mut leaked, mut groups) = (0, Vec::new());
    for (number, record) in blocks.iter().enumerate() {
        let Key::Block(cidr) = &record.key else { continue };
        let mut block = Block::decode(cidr, &record.value)?;
        let mut changes = Vec::new();
        // One and a half in each.
        for _ in 0..1 + number % 2 {
            if leaked == ADDRESSES {
                break;
            }
            let owner = Owner { handle: handle('a', leaked).into(), attributes: Default::default() }
                .with(ipam::NODE_ATTRIBUTE, &format!("scrapped-{}", leaked % 50))
                .with(ipam::NAMESPACE_ATTRIBUTE, "team")
                .with(ipam::POD_ATTRIBUTE, &format!("gone-{leaked}"));
            ipam::take(&mut block, &owner, 1, &Reservations::default());
            changes.push(Change::create(Key::Handle(owner.handle), counts(&block)));
            leaked += 1;
        }
        ipam::count_write(&mut block);
        changes.push(Change::update(record.key.clone(), block.encode(), record.revision.clone()));
        for extra in 0..HANDLES / blocks.len() {
            let id = handle('b', number * (HANDLES / blocks.len()) + extra);
            changes.push(Change::create(Key::Handle(id.into()), counts(&block)));
        }
        groups.push(changes);
    }
    sim::cluster::write(store, sim::cluster::pack(groups.into_iter())).await?;
    Ok(Leaked { addresses: leaked, handles: HANDLES })
}

/// How many records per second go away if nobody looks at them: commits as large as the store takes, one after the other.
pub(crate) async fn floor(store: &Arc<dyn Store>) -> Result<f64> {
    let id = |number: usize| Key::Handle(handle('c', number).into());
    let create = (0..FLOOR).map(|number| vec![Change::create(id(number), r#"{"block":{}}"#)]);
    sim::cluster::write(store, sim::cluster::pack(create)).await?;
    let started = Instant::now();
    for first in (0..FLOOR).step_by(MAX_CHANGES) {
        let keys: Vec<Key> = (first..(first + MAX_CHANGES).min(FLOOR)).map(id).collect();
        let found = store.read(keys.iter().cloned().map(store::Lookup::Record).collect()).await?;
        let records = found.into_iter().flatten();
        store.commit(records.map(|record| Change::delete(record.key, record.revision)).collect()).await?;
    }
    Ok(FLOOR as f64 / started.elapsed().as_secs_f64())
}

/// Addresses of scrapped machines that are still allocated.
pub(crate) async fn left(store: &Arc<dyn Store>) -> Result<usize> {
    let blocks = store.list_all(KeyRange::Blocks(IpVersion::V4)).await?.0;
    let mentions = |value: &[u8]| String::from_utf8_lossy(value).matches("\"scrapped-").count();
    Ok(blocks.iter().map(|record| mentions(&record.value)).sum())
}
