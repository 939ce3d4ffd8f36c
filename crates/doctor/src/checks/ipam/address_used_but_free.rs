//! Books agree: an address is in use and the books call it free.

use ::ipam::check::Problem;
use model::Key;

use super::{BOOKS_AND_USERS, block_of, exhibit, problems, user_exhibits, users};
use crate::checks::words::listed;
use crate::{Case, Check, Look, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "address-used-but-free",
    severity: Severity::Error,
    title: "An address in use that the books call free",
    explanation: "An endpoint, a pod or a tunnel has an address that is allocated in no block. It will be \
                  given out again, and then two pods have it. This happens when an address is released for \
                  one sandbox while another holds it: by a handle or a name that both share.",
    remedy: "allocate the address to its user (plumb repair ipam), or recreate the pod so that it gets an \
             address of its own",
    needs: BOOKS_AND_USERS,
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    for problem in problems(case) {
        let Problem::UsedNotAllocated { address, .. } = problem else { continue };
        let block = block_of(case, *address);
        // Nothing is known of a block that was not collected.
        if (block.is_none() && !ipam.whole.blocks) || case.is_user_in_flux(*address) {
            continue;
        }
        let place = match block {
            Some(block) => format!("block {block} has it as free"),
            None => "no block contains it".to_owned(),
        };
        let finding = look.found(
            *address,
            format!("{address} is used by {} and is free in the books", listed(users(case, *address))),
        );
        for endpoint in case.endpoints_at(*address) {
            finding.of_sandbox(endpoint.seen.container_id.as_deref());
        }
        finding.because(place.clone()).because("the next pod that asks may be given the same address");
        finding.seen_all(user_exhibits(case, *address));
        if let Some(block) = block {
            finding.seen(exhibit(case, Key::Block(block), place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    fn free(evidence: &mut crate::Evidence) {
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        let block = &mut books.blocks.values_mut().next().unwrap().value;
        ::ipam::give_back(block, &[0], None);
    }

    #[test]
    fn fires_for_an_address_that_was_released_too_early() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        free(&mut evidence);
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "10.0.0.0");
        assert_eq!(finding.cause[0], "block 10.0.0.0/26 has it as free");
        assert_eq!(finding.evidence.len(), 3);
    }

    #[test]
    fn is_silent_while_the_pod_goes_and_for_blocks_that_were_not_collected() {
        let mut evidence = small();
        free(&mut evidence);
        let mut going = evidence.clone();
        going.pods.as_mut().unwrap()[0].seen.status = "Terminating".to_owned();
        silent(&CHECK, &going);
        let ipam = evidence.ipam.as_mut().unwrap();
        ipam.books.blocks.pop_first();
        ipam.whole.blocks = false;
        silent(&CHECK, &evidence);
    }
}
