//! Looking ahead: which blocks a node would try to claim next.

use std::collections::BTreeSet;

use model::{Cidr, IpVersion};

use super::choose::choose_pools;
use super::{Request, Surroundings};
use crate::{BlockOrder, Reservations};

/// The next blocks that this request would look at if its node needed one more, after the one that was looked at last.
/// Those that turn out not to be there are good for [`Surroundings::unclaimed`]. Only of the pool that is tried first;
/// none if no pool serves.
pub fn claim_candidates(
    request: &Request,
    surroundings: &Surroundings,
    version: IpVersion,
    after: Option<Cidr>,
    count: usize,
) -> Vec<Cidr> {
    let chosen = choose_pools(request.asker(), version, request.pools(version), &surroundings.pools);
    let Some(first) = chosen.ok().and_then(|chosen| chosen.first().copied()) else { return Vec::new() };
    let pool = &surroundings.pools[first].value;
    let reserved = Reservations::new(&surroundings.reserved);
    let mut order = BlockOrder::new(pool.cidr, pool.block_size, &request.host, &reserved);
    if let Some(last) = after {
        order.resume_after(&last);
    }
    let known: BTreeSet<Cidr> = surroundings.affinities.iter().map(|(block, _)| *block).collect();
    order.filter(|block| !known.contains(block)).take(count).collect()
}
