//! Books agree: blocks, handles and affinities against each other and against whoever uses addresses. What is compared
//! is `ipam::check`'s business; here it is told, with what it means.

pub(super) mod address_allocated_twice;
pub(super) mod address_leaked;
pub(super) mod address_outside_pools;
pub(super) mod address_used_but_free;
pub(super) mod addresses_exhausted;
pub(super) mod affinity_contradicted;
pub(super) mod affinity_missing;
pub(super) mod affinity_of_gone_node;
pub(super) mod affinity_unfinished;
pub(super) mod affinity_unlabelled;
pub(super) mod allocation_without_handle;
pub(super) mod block_contradicts_itself;
pub(super) mod block_hides_address;
pub(super) mod block_limit_reached;
pub(super) mod block_missing;
pub(super) mod block_outside_pools;
pub(super) mod block_overlap;
pub(super) mod cluster_range_misses_pool;
pub(super) mod handle_by_name;
pub(super) mod handle_count_wrong;
pub(super) mod handle_missing;
pub(super) mod handle_unused;
pub(super) mod ipam_config_ignored;
pub(super) mod leak_collection_off;
pub(super) mod pool_contains_nodes;
pub(super) mod pool_full;
pub(super) mod pool_not_for_node;
pub(super) mod pool_overlap;
pub(super) mod record_unreadable;
pub(super) mod reported_by_calicoctl;
pub(super) mod service_block_empty;
pub(super) mod service_range_overlaps;
pub(super) mod tombstone;
pub(super) mod tunnel_address_shared;

use std::net::IpAddr;

use ::ipam::check::Problem;
use model::{AffinityOwner, Cidr, Key, Kind};

use crate::{Case, Need};
use evidence::Exhibit;

/// What it takes to compare the books with who uses addresses.
const BOOKS_AND_USERS: &[&[Need]] = &[
    &[Need::Ipam, Need::Endpoints, Need::Record(Kind::IpPool)],
    &[Need::Ipam, Need::Pods, Need::Record(Kind::IpPool)],
];

/// All problems of the books.
fn problems<'c>(case: &'c Case<'_>) -> &'c [Problem] {
    case.books_view().map(|view| view.problems.as_slice()).unwrap_or_default()
}

/// The networks of all pools that can be understood.
fn pools(case: &Case<'_>) -> Vec<Cidr> {
    case.pools().iter().map(|(pool, _)| pool.cidr).collect()
}

/// A record of the books as an exhibit.
fn exhibit(case: &Case<'_>, key: Key, words: impl Into<String>) -> Exhibit {
    let ipam = case.evidence.ipam.as_ref();
    ipam.map(|ipam| ipam.origin(&key)).unwrap_or_else(|| evidence::Origin::store(&key)).exhibit(words)
}

/// Who shows or records this address, in words.
fn users(case: &Case<'_>, address: IpAddr) -> Vec<String> {
    let endpoints = case.endpoints_at(address).iter().map(|endpoint| format!("endpoint {}", endpoint.seen));
    let mut users: Vec<String> = endpoints.collect();
    if users.is_empty() {
        users.extend(case.pods_at(address).iter().map(|pod| format!("pod {}", pod.seen.name)));
    }
    let views = case.node_views().values();
    users.extend(
        views
            .flat_map(|view| view.tunnels.iter().map(move |(tunnel, held)| (view, tunnel, held)))
            .filter(|(_, _, held)| **held == address)
            .map(|(view, tunnel, _)| format!("{} of node {}", tunnel.type_word(), view.name)),
    );
    users
}

/// The records of those users.
fn user_exhibits(case: &Case<'_>, address: IpAddr) -> Vec<Exhibit> {
    let endpoints = case.endpoints_at(address).iter();
    let mut exhibits: Vec<Exhibit> =
        endpoints.map(|endpoint| super::words::endpoint_exhibit(endpoint)).collect();
    exhibits.extend(
        case.pods_at(address).iter().map(|pod| pod.exhibit(format!("{} shows {address}", pod.seen.name))),
    );
    exhibits
}

fn owner_words(owner: &AffinityOwner) -> String {
    match owner {
        AffinityOwner::Host(name) => format!("node {name}"),
        AffinityOwner::Virtual(name) => name.clone(),
    }
}

/// The block that an address lies in, if it was collected.
fn block_of(case: &Case<'_>, address: IpAddr) -> Option<Cidr> {
    case.blocks_around(address).next().map(|block| block.cidr)
}
