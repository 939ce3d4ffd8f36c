//! Books: a node that may claim no more blocks and has no address left in those it has.

use std::collections::BTreeMap;

use ::ipam::{BLOCKS_MAX, Reservations, reserved_networks};
use model::ipam::Block;
use model::{Cidr, IpVersion, Key, Kind};

use super::exhibit;
use crate::checks::words::{ALIKE_MAX, counted};
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node has reached its block limit and has no free address",
    explanation: "A node owns as many blocks as it may have (maxBlocksPerHost, or 20), and every address in \
                  them is allocated, cooling down or reserved, although its pools may have free addresses. \
                  At best, the next pod on the node borrows an address from another node's block. With \
                  strict affinity, or with Calico's own plugin, it gets no address and stays in \
                  ContainerCreating.",
    remedy: "first look for leaked addresses (plumb ipam check). If there are none, raise maxBlocksPerHost, \
             use larger blocks, or spread the pods over more nodes",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::BlockLimitReached, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref().filter(|ipam| ipam.whole.blocks) else { return };
    let configured = ipam.config.as_ref().map_or(0, |config| config.seen.max_blocks_per_host);
    let limit = usize::try_from(configured).ok().filter(|limit| *limit > 0).unwrap_or(BLOCKS_MAX);
    let mut held: BTreeMap<(&str, bool), Vec<(Cidr, &Block)>> = BTreeMap::new();
    for (cidr, block) in case.live_blocks() {
        if let Some(owner) = &block.affinity {
            held.entry((owner, is_ipv4(&cidr))).or_default().push((cidr, block));
        }
    }
    held.retain(|_, blocks| blocks.len() >= limit);
    let reservations = case.evidence.records.all(Kind::IpReservation).iter().map(|record| &record.seen);
    let reserved = Reservations::new(&reservations.flat_map(reserved_networks).collect::<Vec<_>>());
    for blocks in
        held.into_values().filter(|blocks| !blocks.iter().any(|(_, block)| has_room(block, &reserved)))
    {
        let owner = blocks.first().and_then(|(_, block)| block.owner());
        let Some(node) = owner.and_then(|owner| owner.node()) else { continue };
        let version = if blocks.first().is_some_and(|(cidr, _)| is_ipv4(cidr)) { "IPv4" } else { "IPv6" };
        let summary = format!(
            "node {node} has {} (limit {limit}) without a free address",
            counted(blocks.len(), &format!("{version} block"))
        );
        let finding = look.found(&node, summary);
        finding.known_by(version);
        for (cidr, _) in blocks.iter().take(ALIKE_MAX) {
            finding.seen(exhibit(case, Key::Block(*cidr), format!("block {cidr} is full")));
        }
    }
}

fn has_room(block: &Block, reserved: &Reservations) -> bool {
    let free = block.unallocated.iter().filter_map(|at| block.address(*at));
    free.into_iter().any(|address| !reserved.contains(address))
}

fn is_ipv4(cidr: &Cidr) -> bool {
    cidr.version() == IpVersion::V4
}

#[cfg(test)]
mod tests {
    use model::ipam::IpamConfig;
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};
    use evidence::{Evidence, Origin, Sighted};

    fn limited(limit: i64) -> Evidence {
        let mut evidence = small();
        let config = IpamConfig { max_blocks_per_host: limit, ..IpamConfig::default() };
        evidence.ipam.as_mut().unwrap().config = Some(Sighted::new(config, Origin::store(&Key::IpamConfig)));
        evidence
    }

    fn reserve(evidence: &mut Evidence, network: &str) {
        evidence.records.add(record(Kind::IpReservation, "all", json!({"reservedCIDRs": [network]})));
    }

    #[test]
    fn fires_when_the_last_address_of_the_last_block_is_gone() {
        let mut evidence = limited(1);
        silent(&CHECK, &evidence);
        reserve(&mut evidence, "10.0.0.64/26");
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "node worker-0001 has one IPv4 block (limit 1) without a free address"
        );
        evidence.ipam.as_mut().unwrap().whole.blocks = false;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_while_another_block_may_be_claimed() {
        for limit in [0, 2] {
            let mut evidence = limited(limit);
            reserve(&mut evidence, "10.0.0.0/16");
            silent(&CHECK, &evidence);
        }
    }
}
