//! Identity: an address that a pod has, and that is allocated under no handle.

use std::net::IpAddr;

use model::ipam::{Block, BlockAttribute};
use model::{HandleId, Key};

use super::exhibit;
use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Allocation has no handle",
    explanation: "A pod's address is allocated, but the allocation names no handle. A DEL releases addresses \
                  by handle, so this address will never be released. Calico's own garbage collection skips \
                  such allocations as well.",
    remedy: "run plumb repair ipam --apply to add the sandbox's handle; or recreate the pod, then run plumb \
             ipam release --ip=ADDRESS",
    needs: &[&[Need::Ipam, Need::Endpoints]],
    ..Check::warning(FindingCode::AllocationWithoutHandle, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (_, block) in case.live_blocks() {
        let is_unnamed = |attribute: &BlockAttribute| {
            attribute.handle().is_none_or(HandleId::is_empty) && attribute.released_at.is_none()
        };
        // Nearly every block has none.
        if !block.attributes.iter().any(is_unnamed) {
            continue;
        }
        for ordinal in (0..block.allocations.len()).filter(|at| block.attribute(*at).is_some_and(is_unnamed))
        {
            if let Some(address) = block.address(ordinal) {
                tell(case, look, block, address);
            }
        }
    }
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, block: &Block, address: IpAddr) {
    let endpoints = case.endpoints_at(address);
    if endpoints.is_empty() {
        return;
    }
    let names = listed(endpoints.iter().map(|endpoint| &endpoint.seen));
    look.found(address, format!("{address} of endpoint {names} is allocated without a handle"))
        .seen(exhibit(case, Key::Block(block.cidr), format!("{address} has no handle_id")))
        .seen_all(endpoints.iter().map(|endpoint| endpoint_exhibit(endpoint)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_a_pod_whose_allocation_names_nobody() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let books = &mut evidence.ipam.as_mut().unwrap().books;
        books.blocks.values_mut().next().unwrap().value.attributes[0].handle_id = None;
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "10.0.0.0");
    }
}
