//! Books agree: a block that lies in no pool.

use ::ipam::{Pool, Reservations};
use model::{Cidr, Key, Kind};

use super::exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "block-outside-pools",
    severity: Severity::Warning,
    title: "A block of no pool",
    explanation: "A block lies in no IP pool: its pool was deleted, or was made again with another network. \
                  Its addresses stay allocated, but nobody says any more how they are encapsulated or \
                  NATed, and nobody takes new ones there.",
    remedy: "bring the pool back (disabled), recreate the pods that have its addresses, then delete it",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpPool)]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    if !case.books_view().is_some_and(|view| view.knows_pools) {
        return;
    }
    let records = case.evidence.records.all(Kind::IpPool);
    let pools: Vec<Cidr> =
        records.iter().filter_map(|pool| Pool::new(&pool.seen).ok()).map(|pool| pool.cidr).collect();
    let pools = Reservations::new(&pools);
    for (cidr, stored) in ipam.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted) {
        let block = &stored.value;
        // Networks are nested or apart: a block is in a pool if its first address is.
        if pools.contains(cidr.network()) {
            continue;
        }
        let taken: Vec<usize> =
            (0..block.allocations.len()).filter(|at| block.allocations[*at].is_some()).collect();
        let words = format!("block {cidr} with {}", addresses(taken.len()));
        let finding = look.found(Subject::Block(*cidr), format!("{words} lies in no pool"));
        finding.known_by("no pool").seen(exhibit(case, Key::Block(*cidr), words));
        for address in taken.into_iter().filter_map(|at| block.address(at)) {
            finding.explains("address-outside-pools", address);
        }
    }
}

fn addresses(count: usize) -> String {
    if count == 1 { "one allocated address".to_owned() } else { format!("{count} allocated addresses") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{silent, subjects};
    use crate::sample::{record, small};

    #[test]
    fn fires_for_blocks_of_a_pool_that_was_made_again() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let nodes = evidence.records.all(Kind::Node).to_vec();
        evidence.records = Default::default();
        nodes.into_iter().for_each(|node| evidence.records.add(node));
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::IpPool, "pods", json!({"cidr": "10.0.0.0/25", "disabled": true})));
        assert_eq!(subjects(&CHECK, &evidence), ["block 10.0.0.128/26"]);
    }
}
