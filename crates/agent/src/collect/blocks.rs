//! Which blocks hold addresses of this node's pods: its own, and those that it borrowed from.
//!
//! The agent follows all blocks for its routes, and so knows them. A single call does not: no record leads from a node to the blocks that
//! it borrowed from, so it searches all.

use std::collections::BTreeSet;

use book::Book;
use model::ipam::Block;
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange};
use store::{ListRequest, Lookup, Record};
use tracing::warn;

use super::inventory::Inventory;
use crate::verbs::CniError;

/// How many blocks are read in one request.
const BLOCKS_AT_ONCE: usize = 64;
const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// Adds the sandboxes that hold addresses. `followed`: the blocks of this node, if they are known.
pub(super) async fn read(
    book: &Book,
    node: &str,
    followed: Option<BTreeSet<Cidr>>,
    inventory: &mut Inventory,
) -> Result<(), CniError> {
    let blocks: Vec<Cidr> = match followed {
        Some(followed) => followed.into_iter().collect(),
        None => {
            add_borrowed(book, node, inventory).await?;
            own_blocks(book, node).await?
        }
    };
    for some in blocks.chunks(BLOCKS_AT_ONCE) {
        let lookups = some.iter().map(|block| Lookup::Record(Key::Block(*block))).collect();
        for record in book.store().read(lookups).await?.into_iter().flatten() {
            if let Some(block) = decode(&record) {
                inventory.add_block(&block, node);
            }
        }
    }
    Ok(())
}

async fn own_blocks(book: &Book, node: &str) -> Result<Vec<Cidr>, CniError> {
    let owner = AffinityOwner::Host(node.to_owned());
    let affinities = book.store().affinities_of(&owner).await?;
    let blocks = affinities.iter().filter_map(|record| match &record.key {
        Key::Affinity { block, .. } => Some(*block),
        _ => None,
    });
    Ok(blocks.collect())
}

/// Searches all blocks of other nodes, a page at a time.
async fn add_borrowed(book: &Book, node: &str, inventory: &mut Inventory) -> Result<(), CniError> {
    let own = Some(AffinityOwner::Host(node.to_owned()));
    for version in VERSIONS {
        let mut request = ListRequest::new(KeyRange::Blocks(version));
        loop {
            let page = book.store().list(request.clone()).await?;
            for record in page.records.iter().filter(|record| mentions(&record.value, node)) {
                if let Some(block) = decode(record).filter(|block| block.owner() != own) {
                    inventory.add_block(&block, node);
                }
            }
            match page.next {
                Some(next) => request = request.continued(next),
                None => break,
            }
        }
    }
    Ok(())
}

/// Whether a record contains the node's name: most blocks of a cluster do not, and need not be decoded.
fn mentions(value: &[u8], node: &str) -> bool {
    let quoted = format!("\"{node}\"");
    value.windows(quoted.len()).any(|window| window == quoted.as_bytes())
}

fn decode(record: &Record) -> Option<Block> {
    let Key::Block(cidr) = &record.key else { return None };
    Block::decode(cidr, &record.value)
        .inspect_err(|error| warn!(block = %record.key, %error, "skipped an unreadable block"))
        .ok()
}
