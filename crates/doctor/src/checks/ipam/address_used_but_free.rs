//! Books agree: an address is in use and the books call it free.

use ::ipam::check::Problem;
use model::Key;

use super::{BOOKS_AND_USERS, block_of, exhibit, problems, user_exhibits, users};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Address in use is not allocated",
    explanation: "An endpoint, pod or tunnel uses an address that no block has allocated. IPAM can allocate \
                  it to another pod at any time, and then two pods have the same address. This happens when \
                  a release for one sandbox also releases the address of another, because both share a \
                  handle or a name.",
    remedy: "run plumb repair ipam --apply to allocate the address to its user, or recreate the pod so that \
             it gets another address",
    needs: BOOKS_AND_USERS,
    ..Check::error(FindingCode::AddressUsedButFree, look)
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
            Some(block) => format!("it is free in block {block}"),
            None => "no block contains it".to_owned(),
        };
        let summary = format!("{address} is used by {} but is not allocated", listed(users(case, *address)));
        let finding = look.found(*address, summary);
        for endpoint in case.endpoints_at(*address) {
            finding.of_sandbox(endpoint.seen.container_id.as_deref());
        }
        finding.because(place.clone()).because("IPAM may allocate the same address to the next pod");
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
    use evidence::sample::small;

    fn free(evidence: &mut evidence::Evidence) {
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
        assert_eq!(finding.cause[0], "it is free in block 10.0.0.0/26");
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
