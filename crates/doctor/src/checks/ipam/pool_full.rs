//! Books: a pool that has no address left.

use ::ipam::{Pool, PoolUse, pool_usage, reserved_networks};
use model::Kind;

use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "IP pool has no free address",
    explanation: "Every address of an enabled pool for pods is in use, cooling down or reserved. The next \
                  pod that can get an address only from this pool stays in ContainerCreating.",
    remedy: "first look for leaked addresses (plumb ipam check). If there are none, add a pool, or move pods \
             to another pool",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpPool)]],
    ..Check::warning(FindingCode::PoolFull, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.evidence.ipam.as_ref().is_some_and(|ipam| ipam.whole.blocks) {
        return;
    }
    let pools = case.pools();
    let reservations = case.evidence.records.all(Kind::IpReservation).iter().map(|record| &record.seen);
    let reserved = ::ipam::Reservations::new(&reservations.flat_map(reserved_networks).collect::<Vec<_>>());
    let only_pools: Vec<Pool> = pools.iter().map(|(pool, _)| pool.clone()).collect();
    let blocks = case.live_blocks().map(|(_, block)| block);
    for ((pool, record), usage) in pools.iter().zip(pool_usage(&only_pools, blocks, &reserved)) {
        if pool.is_enabled() && pool.allows(PoolUse::Workload) && usage.total.available() == 0 {
            let words = format!("pool {} ({}) has no free address", pool.name, pool.cidr);
            look.found(record.seen.key(), words.clone())
                .known_by("full")
                .because(format!(
                    "{} of {} addresses are in use, {} are reserved",
                    usage.total.in_use, usage.total.capacity, usage.total.reserved
                ))
                .seen(record.exhibit(words));
        }
    }
}

#[cfg(test)]
mod tests {
    use ::ipam::{Reservations, Stored, Tunnel};
    use model::ipam::Block;
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_when_the_last_address_is_gone() {
        let mut evidence = small();
        let spec = json!({"cidr": "10.150.0.0/32", "blockSize": 32});
        evidence.records.add(record(Kind::IpPool, "tiny", spec));
        silent(&CHECK, &evidence);
        let mut block = Block::new("10.150.0.0/32".parse().unwrap(), None, 1);
        ::ipam::take(&mut block, &Tunnel::Vxlan.owner("worker-0000"), 1, &Reservations::default());
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.insert(block.cidr, Stored::new(block, "1"));
        assert_eq!(only(&CHECK, &evidence).summary, "pool tiny (10.150.0.0/32) has no free address");
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
    }
}
