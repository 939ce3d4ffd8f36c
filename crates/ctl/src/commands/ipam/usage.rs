//! How full pools and blocks are.

use std::io::Write;
use std::sync::Arc;

use ipam::{PoolUsage, Reservations, Usage, pool_usage, reserved_networks};
use model::ipam::Block;
use model::{Cidr, Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::Store;

use super::pools;
use crate::compat;
use crate::failure::{Failure, Problems};
use crate::output::boxed::{Boxed, five_digits, with_percentage};
use crate::output::document::Syntax;
use crate::reader::Pages;
use crate::records;

pub(super) async fn show(
    store: &Arc<dyn Store>,
    show_blocks: bool,
    format: Option<Syntax>,
    out: &mut dyn Write,
    problems: &mut Problems,
) -> Result<(), Failure> {
    let reserved = reservations(store).await?;
    let blocks = blocks(store, problems).await?;
    let usages = pool_usage(&pools(store).await?, &blocks, &reserved);
    match format {
        Some(syntax) => syntax.write_bare(out, &document(&usages, show_blocks))?,
        None => table(&usages, show_blocks).write(out)?,
    }
    Ok(())
}

async fn reservations(store: &Arc<dyn Store>) -> Result<Reservations, Failure> {
    let (found, _) = store.list_all(KeyRange::Kind(Kind::IpReservation)).await?;
    let mut networks = Vec::new();
    for record in &found {
        networks.extend(reserved_networks(&records::to_resource(record)?));
    }
    Ok(Reservations::new(&networks))
}

/// All blocks in the order of their addresses, without what is known about each address: counting needs only the
/// list of those that are free.
async fn blocks(store: &Arc<dyn Store>, problems: &mut Problems) -> Result<Vec<Block>, Failure> {
    let mut blocks = Vec::new();
    let mut pages = Pages::new(store, Kind::IpamBlock, None);
    while let Some(page) = pages.next().await? {
        for record in &page.records {
            let Key::Block(cidr) = &record.key else { continue };
            match Block::decode(cidr, &record.value) {
                Ok(block) if block.deleted => {}
                Ok(block) => {
                    let mut kept = Block::new(*cidr, None, 0);
                    kept.allocations = Vec::new();
                    kept.unallocated = block.unallocated;
                    blocks.push(kept);
                }
                Err(error) => problems.push(Failure::of(&error)),
            }
        }
    }
    blocks.sort_unstable_by_key(|block| block.cidr);
    Ok(blocks)
}

/// The column of reserved addresses is there only if something is reserved: releases of calicoctl that know
/// reservations show it always, the others never.
fn table(usages: &[PoolUsage], show_blocks: bool) -> Boxed {
    let has_reserved = compat::is_strict() || usages.iter().any(|pool| pool.total.reserved > 0);
    let mut table = Boxed::new(match has_reserved {
        true => &["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS RESERVED", "IPS FREE"],
        false => &["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE"],
    });
    let mut row = |grouping: &str, cidr: &Cidr, usage: &Usage| {
        // calicoctl counts in 64 bits with a sign.
        let most = if compat::is_strict() { i64::MAX as u128 } else { u128::MAX };
        let capacity = usage.capacity.min(most);
        let share = |count: u128| with_percentage(count.min(most), capacity);
        let mut cells =
            vec![grouping.to_owned(), cidr.to_string(), five_digits(capacity), share(usage.in_use)];
        cells.extend(has_reserved.then(|| share(usage.reserved)));
        cells.push(share(usage.available()));
        table.row(cells);
    };
    for pool in usages {
        if let Some(cidr) = &pool.cidr {
            row("IP Pool", cidr, &pool.total);
        }
        if show_blocks {
            pool.blocks.iter().for_each(|(cidr, usage)| row("Block", cidr, usage));
        }
    }
    table
}

fn document(usages: &[PoolUsage], show_blocks: bool) -> Value {
    let blocks = |pool: &PoolUsage| -> Vec<Value> {
        let block = |(cidr, usage): &(Cidr, Usage)| with_counts(json!({"cidr": cidr.to_string()}), usage);
        pool.blocks.iter().map(block).collect()
    };
    let mut pools = Vec::new();
    let mut orphaned = Vec::new();
    for pool in usages {
        let Some(cidr) = &pool.cidr else {
            orphaned = blocks(pool);
            continue;
        };
        let mut shown = with_counts(json!({"name": pool.name, "cidr": cidr.to_string()}), &pool.total);
        if show_blocks {
            shown["blocks"] = blocks(pool).into();
        }
        pools.push(shown);
    }
    let mut document = json!({"pools": pools});
    if show_blocks {
        document["blocksWithoutPool"] = orphaned.into();
    }
    document
}

fn with_counts(mut shown: Value, usage: &Usage) -> Value {
    shown["total"] = number(usage.capacity);
    shown["inUse"] = number(usage.in_use);
    shown["reserved"] = number(usage.reserved);
    shown["free"] = number(usage.available());
    shown
}

/// A count that no integer of JSON's readers could hold is rounded.
fn number(count: u128) -> Value {
    u64::try_from(count).map_or_else(|_| json!(count as f64), |count| json!(count))
}
