//! Books agree: a block that lies in no pool.

use ::ipam::Reservations;
use model::{Key, Kind};

use super::block_hides_address::Hideable;
use super::exhibit;
use crate::checks::words::counted;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block is in no IP pool",
    explanation: "A block is outside every IP pool: its pool was deleted or recreated with another CIDR, or \
                  another program wrote a block of addresses that are not for pods. Agents add no new route \
                  to such a block. Nodes that had the route when the pool was deleted keep it, but nodes \
                  that join later cannot reach its pods. Without a pool, natOutgoing does not apply to its \
                  packets.",
    remedy: "if pods use the block: create its pool again with disabled: true, recreate these pods, then \
             delete the pool. If no pod uses it: plumb repair ipam --apply deletes the block",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpPool)]],
    ..Check::error(FindingCode::BlockOutsidePools, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.books_view().is_some_and(|view| view.knows_pools) {
        return;
    }
    let (pools, hideable) = (Reservations::new(&super::pools(case)), Hideable::of(case));
    for (cidr, block) in case.live_blocks().filter(|(cidr, _)| !pools.covers(cidr)) {
        let taken: Vec<usize> =
            (0..block.allocations.len()).filter(|at| block.allocations[*at].is_some()).collect();
        let words = format!("block {cidr} with {}", counted(taken.len(), "allocated address"));
        let finding = look.found(cidr, format!("{words} is in no pool"));
        finding.known_by("no pool").seen(exhibit(case, Key::Block(cidr), words));
        for hidden in hideable.by(&cidr, None) {
            finding.because(format!("a route to it would hide {hidden}"));
        }
        for address in taken.into_iter().filter_map(|at| block.address(at)) {
            finding.explains(FindingCode::AddressOutsidePools, address);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Severity;
    use crate::checks::testing::{silent, subjects};
    use evidence::sample::{record, small};

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

    /// A network around all pools is in none of them.
    #[test]
    fn fires_for_everything_and_says_whom_it_would_hide() {
        let mut evidence = small();
        let everything: model::Cidr = "0.0.0.0/0".parse().unwrap();
        let owner = model::AffinityOwner::Host("worker-0001".to_owned());
        let mut block = model::ipam::Block::new(everything, Some(&owner), 1);
        block.allocations.clear();
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.insert(everything, ::ipam::Stored::new(block, "1"));
        let finding = crate::checks::testing::only(&CHECK, &evidence);
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.cause[0].contains("the address of node worker-0000"), "{:?}", finding.cause);
    }
}
