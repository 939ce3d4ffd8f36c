//! The address book, compared once by `ipam::check` with whoever uses addresses, for all checks of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipam::check::{EndpointFacts, NodeFacts, Problem, analyse};
use ipam::{NODE_ATTRIBUTE, Pool};
use jiff::{SignedDuration, Timestamp};
use model::ipam::{Block, BlockAttribute};
use model::names::EndpointName;
use model::{Cidr, Kind, NodeName, Resource};

use super::Case;
use evidence::{Endpoint, Pod, Sighted};

/// What is wrong with the books. A check asks first whether what a problem rests on was collected as a whole.
#[derive(Debug)]
pub struct BooksView {
    pub problems: Vec<Problem>,
    /// Every pool was read.
    pub knows_pools: bool,
    /// Every node was listed.
    pub knows_nodes: bool,
    /// Everyone who uses addresses was listed.
    pub knows_users: bool,
    /// Blocks that are not there although addresses of theirs are in use, with these.
    pub missing_blocks: BTreeMap<Cidr, Vec<IpAddr>>,
    /// Blocks that cannot be read, with those of their addresses that are in use.
    pub unreadable_blocks: BTreeMap<Cidr, Vec<IpAddr>>,
}

/// What a block says of one of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'e> {
    pub block: &'e Block,
    pub attribute: &'e BlockAttribute,
}

impl Allocation<'_> {
    /// The node it was given to.
    pub fn node(&self) -> Option<NodeName> {
        self.attribute.secondary.get(NODE_ATTRIBUTE).map(|name| name.as_str().into())
    }

    pub fn age(&self, taken_at: Option<Timestamp>) -> Option<SignedDuration> {
        Some(taken_at?.duration_since(ipam::allocated_at(self.attribute)?))
    }
}

impl<'e> Case<'e> {
    /// Pools that can be understood, with their records.
    pub fn pools(&self) -> &[(Pool, &'e Sighted<Resource>)] {
        self.made.pools.get_or_init(|| {
            let records = self.evidence.records.all(Kind::IpPool).iter();
            records.filter_map(|record| Some((Pool::new(&record.seen).ok()?, record))).collect()
        })
    }

    /// Blocks that are not about to be removed.
    pub fn live_blocks(&self) -> impl Iterator<Item = (Cidr, &'e Block)> + use<'e> {
        let blocks = self.evidence.ipam.iter().flat_map(|ipam| &ipam.books.blocks);
        blocks.map(|(cidr, stored)| (*cidr, &stored.value)).filter(|(_, block)| !block.deleted)
    }

    /// Whether an affinity gives a node a block.
    pub fn has_blocks(&self, node: &NodeName) -> bool {
        let mut affinities = self.evidence.ipam.iter().flat_map(|ipam| ipam.books.affinities.keys());
        affinities.any(|(owner, _)| owner.is_node(node))
    }

    /// Every block that contains an address, the largest first; more than one only where blocks overlap.
    pub fn blocks_around(&self, address: IpAddr) -> impl Iterator<Item = &'e Block> + use<'e> {
        let blocks = self.evidence.ipam.as_ref().map(|ipam| &ipam.books.blocks);
        let longest: u8 = if address.is_ipv4() { 32 } else { 128 };
        // No block of Calico's has more than 2^12 addresses.
        let sizes = (longest - 12..=longest).filter_map(move |len| Cidr::containing(address, len));
        sizes.filter_map(move |cidr| blocks?.get(&cidr).map(|stored| &stored.value))
    }

    /// The allocation of an address, whatever size its block has.
    pub fn allocation(&self, address: IpAddr) -> Option<Allocation<'e>> {
        self.blocks_around(address).find_map(|block| {
            let attribute = block.attribute(block.ordinal(address)?)?;
            (!block.deleted).then_some(Allocation { block, attribute })
        })
    }
}

pub(super) fn view(case: &Case<'_>) -> Option<BooksView> {
    let ipam = case.evidence.ipam.as_ref()?;
    let pool_records = case.evidence.records.of(Kind::IpPool);
    let pools: Vec<Pool> = case.pools().iter().map(|(pool, _)| pool.clone()).collect();
    let doubt = case.doubt();
    let knows_pools = pool_records.is_some_and(|records| records.len() == pools.len()) && !doubt.has_pools();
    let nodes: Vec<NodeFacts> = case.node_views().values().map(facts_of).collect();
    let endpoints = users(case);
    // Without a clock nothing is from the future.
    let now = case.evidence.taken_at.unwrap_or(Timestamp::MAX);
    let evidence = ipam::check::Evidence {
        books: &ipam.books,
        pools: &pools,
        nodes: &nodes,
        endpoints: &endpoints,
        services: &[],
        now,
    };
    let ipam::check::Analysis { mut problems, unjudged, .. } = analyse(&evidence);
    problems.retain(|problem| match problem {
        Problem::UsedNotAllocated { address, .. } => !case.is_given_by_others(*address),
        _ => true,
    });
    let missing_blocks = missing_blocks(case, &problems, &pools);
    let mut unreadable_blocks: BTreeMap<Cidr, Vec<IpAddr>> =
        doubt.blocks().map(|cidr| (cidr, Vec::new())).collect();
    for (cidr, used) in &mut unreadable_blocks {
        let inside = unjudged.used.iter().copied().filter(|address| cidr.contains(*address));
        used.extend(inside.filter(|address| is_believed(case, *address)));
    }
    let knows_endpoints = case.knows_endpoints()
        && !case.all_endpoints().iter().any(|endpoint| endpoint.seen.has_unread_addresses());
    let knows_nodes = case.knows_nodes();
    Some(BooksView {
        problems,
        knows_pools,
        knows_nodes,
        // A node's own tunnels use addresses, too.
        knows_users: (knows_endpoints || case.knows_pods())
            && knows_nodes
            && !doubt.may_use_any_address()
            && !case.node_views().values().any(|view| view.has_unread_tunnels),
        missing_blocks,
        unreadable_blocks,
    })
}

/// Whether somebody really seems to have an address. Not where only the status of a pod shows it whose endpoint says something else,
/// or only a record whose sandbox has others inside: then these are wrong.
fn is_believed(case: &Case<'_>, address: IpAddr) -> bool {
    let (endpoints, pods) = (case.endpoints_at(address), case.pods_at(address));
    let has_endpoint = |pod: &Pod| case.endpoints_of(&pod.name).next().is_some();
    let is_tunnel = endpoints.is_empty() && pods.is_empty();
    is_tunnel
        || endpoints.iter().any(|endpoint| !is_refuted(case, &endpoint.seen, address))
        || pods.iter().any(|pod| !has_endpoint(&pod.seen))
}

/// Whether somebody looked into the endpoint's sandbox and did not find the address.
fn is_refuted(case: &Case<'_>, endpoint: &Endpoint, address: IpAddr) -> bool {
    let view = endpoint.container_id.as_deref().and_then(|id| case.view_of(id));
    let inside = view.and_then(|(_, view)| view.kernel.addresses.as_deref());
    inside.is_some_and(|inside| !inside.iter().any(|held| held.seen.net.addr() == address))
}

/// Where no block contains an address that is in use, the one that its pool makes for it. Not where a block of another size
/// is in the way, or one that nobody can read.
fn missing_blocks(case: &Case<'_>, problems: &[Problem], pools: &[Pool]) -> BTreeMap<Cidr, Vec<IpAddr>> {
    let mut missing: BTreeMap<Cidr, Vec<IpAddr>> = BTreeMap::new();
    let Some(ipam) = case.evidence.ipam.as_ref().filter(|ipam| ipam.whole.blocks) else { return missing };
    for problem in problems {
        let Problem::UsedNotAllocated { address, .. } = problem else { continue };
        if case.blocks_around(*address).next().is_some() || !is_believed(case, *address) {
            continue;
        }
        let around = pools.iter().filter(|pool| pool.cidr.contains(*address));
        let pool = around.max_by_key(|pool| pool.cidr.prefix_len());
        if let Some(cidr) = pool.and_then(|pool| pool.block_of(*address)) {
            missing.entry(cidr).or_default().push(*address);
        }
    }
    let there: Vec<Cidr> = ipam.books.blocks.keys().copied().chain(case.doubt().blocks()).collect();
    missing.retain(|cidr, _| !there.iter().any(|other| other.overlaps(cidr)));
    missing
}

fn facts_of(view: &super::NodeView<'_>) -> NodeFacts {
    NodeFacts { name: view.name.to_string(), tunnels: view.tunnels.clone() }
}

/// Endpoints, and pods that show an address which no endpoint of theirs has.
fn users<'e>(case: &Case<'e>) -> Vec<EndpointFacts<'e>> {
    let mut users: Vec<EndpointFacts<'e>> = Vec::with_capacity(case.all_endpoints().len());
    for endpoint in case.all_endpoints() {
        let endpoint = &endpoint.seen;
        users.push(EndpointFacts {
            namespace: Cow::Borrowed(endpoint.namespace.as_deref().unwrap_or_default()),
            name: Cow::Borrowed(&endpoint.name),
            addresses: Cow::Borrowed(&endpoint.addresses),
        });
    }
    for pod in case.all_pods() {
        let pod = &pod.seen;
        let addresses = addresses_without_endpoint(case, pod);
        if !addresses.is_empty() {
            let namespace = pod.name.namespace.clone().unwrap_or_default();
            users.push(EndpointFacts::owned(namespace, record_name(pod), addresses));
        }
    }
    users
}

fn addresses_without_endpoint(case: &Case<'_>, pod: &Pod) -> Vec<IpAddr> {
    if pod.addresses.is_empty() || pod.is_finished() {
        return Vec::new();
    }
    let known = |address: &IpAddr| {
        case.endpoints_at(*address).iter().any(|endpoint| endpoint.seen.may_be_of(&pod.name))
    };
    let unknown: BTreeSet<IpAddr> = pod.addresses.iter().copied().filter(|address| !known(address)).collect();
    if unknown.is_empty() || case.is_on_host_network(pod) {
        return Vec::new();
    }
    unknown.into_iter().collect()
}

/// What its endpoint would be called.
fn record_name(pod: &Pod) -> String {
    let node = pod.node.as_ref().map_or("", NodeName::as_str);
    EndpointName::of_pod(node, &pod.name.name, "eth0").compute().unwrap_or_else(|_| pod.name.name.clone())
}
