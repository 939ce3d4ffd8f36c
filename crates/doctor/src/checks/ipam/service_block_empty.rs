//! No orphans: blocks for services' addresses in which there is none.

use model::{AffinityOwner, Key};

use super::exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "service-block-empty",
    severity: Severity::Info,
    title: "A block for services' addresses in which there is none",
    explanation: "A block belongs to no node but to the load balancer, which gives services their addresses, \
                  and the last of these is gone. Such a block is meant to go with its last address, and \
                  Calico does not get round to it: it stays for ever, and no node can have it.",
    remedy: "delete it with its affinity (plumb repair ipam): the next service that needs an address makes a \
             block again",
    needs: &[&[Need::Ipam]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for (cidr, stored) in ipam.books.blocks.iter().filter(|(_, stored)| !stored.value.deleted) {
        let Some(owner @ AffinityOwner::Virtual(_)) = stored.value.owner() else { continue };
        if stored.value.allocations.iter().any(Option::is_some) {
            continue;
        }
        let finding = look.found(
            Subject::Block(*cidr),
            format!("block {cidr} belongs to {} and holds no address", owner.name()),
        );
        finding.seen(exhibit(case, Key::Block(*cidr), format!("block {cidr} is empty")));
        let affinity = (owner.clone(), *cidr);
        if ipam.books.affinities.contains_key(&affinity) {
            finding.seen(exhibit(case, Key::Affinity { owner, block: *cidr }, "affinity"));
        }
    }
}

#[cfg(test)]
mod tests {
    use model::ipam::{Affinity, Block};

    use ::ipam::{Owner, Reservations, Stored};

    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::{block_cidr, small};

    #[test]
    fn fires_when_the_last_service_is_gone() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let (cidr, owner) = (block_cidr(40), AffinityOwner::Virtual("load-balancer".to_owned()));
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.insert(cidr, Stored::new(Block::new(cidr, Some(&owner), 1), "1"));
        books.affinities.insert((owner, cidr), Stored::new(Affinity::default(), "1"));
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, format!("block {cidr} belongs to load-balancer and holds no address"));
        assert_eq!(finding.evidence.len(), 2);
        let block = &mut evidence.ipam.as_mut().unwrap().books.blocks.get_mut(&cidr).unwrap().value;
        let made_at = "2026-08-22T05:00:00Z".parse().unwrap();
        let service = Owner::on_node("lb-1", "load-balancer", made_at);
        ::ipam::take(block, &service, 1, &Reservations::default());
        silent(&CHECK, &evidence);
    }
}
