//! No orphans: blocks for services' addresses in which there is none.

use model::{AffinityOwner, Key};

use super::exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block for service addresses is empty",
    explanation: "A block belongs to the load balancer, which allocates the addresses of services, instead \
                  of to a node. It no longer holds any address. Such a block should be deleted with its \
                  last address, but Calico does not do so: the block stays forever, and no node can claim \
                  it.",
    remedy: "run plumb repair ipam --apply to delete it with its affinity; the next service that needs an \
             address creates a new block",
    needs: &[&[Need::Ipam]],
    ..Check::info(FindingCode::ServiceBlockEmpty, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for (cidr, block) in case.live_blocks() {
        let Some(owner @ AffinityOwner::Virtual(_)) = block.owner() else { continue };
        if block.allocations.iter().any(Option::is_some) {
            continue;
        }
        let finding =
            look.found(cidr, format!("block {cidr} belongs to {} but holds no address", owner.name()));
        finding.seen(exhibit(case, Key::Block(cidr), format!("block {cidr} is empty")));
        let affinity = (owner.clone(), cidr);
        if ipam.books.affinities.contains_key(&affinity) {
            finding.seen(exhibit(case, Key::Affinity { owner, block: cidr }, "affinity"));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::ipam::{Affinity, Block};

    use ::ipam::{Owner, Reservations, Stored};

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{block_cidr, small};

    #[test]
    fn fires_when_the_last_service_is_gone() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let (cidr, owner) = (block_cidr(40), AffinityOwner::Virtual("load-balancer".to_owned()));
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.insert(cidr, Stored::new(Block::new(cidr, Some(&owner), 1), "1"));
        books.affinities.insert((owner, cidr), Stored::new(Affinity::default(), "1"));
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, format!("block {cidr} belongs to load-balancer but holds no address"));
        assert_eq!(finding.evidence.len(), 2);
        let block = &mut evidence.ipam.as_mut().unwrap().books.blocks.get_mut(&cidr).unwrap().value;
        let made_at = "2026-08-22T05:00:00Z".parse().unwrap();
        let service = Owner::on_node("lb-1", "load-balancer", made_at);
        ::ipam::take(block, &service, 1, &Reservations::default());
        silent(&CHECK, &evidence);
    }
}
