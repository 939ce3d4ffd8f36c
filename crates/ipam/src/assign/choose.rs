//! Which pools may serve a request.

use std::collections::BTreeMap;

use model::{Cidr, IpVersion};

use super::{AssignError, Version};
use crate::{HostReserve, Pool, PoolUse, Stored};

/// Who asks, as far as pools care.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) host: &'a str,
    pub(crate) purpose: PoolUse,
    pub(crate) node_labels: &'a BTreeMap<String, String>,
    pub(crate) namespace_labels: &'a BTreeMap<String, String>,
    pub(crate) host_reserve: Option<HostReserve>,
}

/// Positions in the list of pools, in the order in which they are to be tried.
///
/// 1. Only pools in service, of the wanted IP version, with blocks that have room for what the node keeps for itself.
/// 2. Those that were asked for, by name or network, in that order: selectors and mode do not matter then, and one
///    that cannot be had is an error. Else those that offer themselves to the node and the namespace.
/// 3. Of these, the ones that allow the use.
pub(crate) fn choose_pools(
    asker: Asker<'_>,
    version: IpVersion,
    asked_for: &[String],
    pools: &[Stored<Pool>],
) -> Result<Vec<usize>, AssignError> {
    if pools.is_empty() {
        return Err(AssignError::NoPools);
    }
    let has_room = |pool: &Pool| {
        let block = Cidr::containing(pool.cidr.network(), pool.block_size);
        asker.host_reserve.is_none_or(|reserve| block.is_some_and(|block| reserve.leaves_room(&block)))
    };
    let is_fit = |pool: &Pool| pool.is_enabled() && pool.version() == version && has_room(pool);
    let fit = || (0..pools.len()).filter(|&position| is_fit(&pools[position].value));
    let mut chosen: Vec<usize> = if asked_for.is_empty() {
        let offers = |position: &usize| {
            pools[*position].value.offers_itself(asker.node_labels, asker.namespace_labels)
        };
        fit().filter(offers).collect()
    } else {
        let find = |wanted: &String| {
            let found = fit().find(|&position| pools[position].value.is_named(wanted));
            found.ok_or_else(|| AssignError::PoolUnknown(wanted.clone(), Version(version)))
        };
        asked_for.iter().map(find).collect::<Result<_, _>>()?
    };
    let mut known = std::collections::BTreeSet::new();
    chosen.retain(|&position| pools[position].value.allows(asker.purpose) && known.insert(position));
    if chosen.is_empty() {
        let (host, version) = (asker.host.to_owned(), Version(version));
        return Err(AssignError::NoPoolServes { host, version, purpose: asker.purpose.word() });
    }
    Ok(chosen)
}
