//! Addresses that are allocated against addresses that are in use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::ipam::{Block, BlockAttribute};
use model::{AffinityOwner, Cidr, HandleId};

use super::{Allocated, Evidence, Problem, Tunnel, Unjudged, User};
use crate::block::is_cooling_down;
use crate::owner::is_of_other_plugin;
use crate::{Doubt, NODE_ATTRIBUTE, Reservations};

/// Who uses an address, by reference: most are never named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UserRef<'a> {
    Endpoint(&'a str, &'a str),
    Tunnel(&'a str, Tunnel),
    Service(&'a str),
}

impl UserRef<'_> {
    fn named(self) -> User {
        match self {
            UserRef::Endpoint(namespace, name) => {
                User::Endpoint { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            UserRef::Tunnel(node, tunnel) => User::Tunnel { node: node.to_owned(), tunnel },
            UserRef::Service(name) => User::Service(name.to_owned()),
        }
    }
}

/// The allocations and the number of addresses in use.
pub(super) fn check_addresses<'a>(
    evidence: &Evidence<'a>,
    sound: &[&'a Block],
    doubt: &Doubt<'_>,
    problems: &mut Vec<Problem>,
    unjudged: &mut Unjudged,
) -> (Vec<Allocated<'a>>, usize) {
    let mut allocations: Vec<Allocated<'a>> = sound.iter().flat_map(|block| allocations_of(block)).collect();
    allocations.sort_unstable_by_key(|allocated| (allocated.address, allocated.block));
    check_double_allocations(&allocations, problems);
    let users = users(evidence);
    let enabled: Vec<Cidr> =
        evidence.pools.iter().filter(|pool| pool.is_enabled()).map(|pool| pool.cidr).collect();
    let enabled = Reservations::new(&enabled);
    let all: Vec<Cidr> = evidence.pools.iter().map(|pool| pool.cidr).collect();
    let all = Reservations::new(&all);
    let unsound = Reservations::new(&unsound(evidence, sound));
    let is_untrusted = |address: IpAddr| doubt.may_hold(address) || unsound.contains(address);
    let mut in_use = 0;
    for group in users.chunk_by(|one, other| one.0 == other.0) {
        in_use += 1;
        let address = group[0].0;
        let start = allocations.partition_point(|allocated| allocated.address < address);
        let mut is_allocated = false;
        for allocated in allocations[start..].iter_mut().take_while(|allocated| allocated.address == address)
        {
            allocated.is_in_use = true;
            is_allocated |= !allocated.is_cooling_down;
        }
        let named = || group.iter().map(|(_, user)| user.named()).collect::<Vec<User>>();
        if group.len() > 1 {
            problems.push(Problem::SeveralUsers { address, users: named() });
        }
        let is_free = !is_allocated && !is_untrusted(address);
        if !is_allocated && !is_free {
            unjudged.used.push(address);
        }
        if is_free && enabled.contains(address) {
            problems.push(Problem::UsedNotAllocated { address, users: named() });
        } else if is_free || !all.contains(address) {
            // What was given out by a pool before it was disabled is in order.
            match doubt.has_pools() {
                true => unjudged.outside_pools.push(address),
                false => problems.push(Problem::UsedOutsidePools { address, users: named() }),
            }
        }
    }
    let nodes: BTreeSet<&str> = evidence.nodes.iter().map(|node| node.name.as_str()).collect();
    let is_node = |name: &str| nodes.contains(name) || doubt.is_node(name);
    let leaks = allocations.iter().filter(|allocated| is_leaked(allocated, &is_node));
    match doubt.may_use_any_address() {
        true => unjudged.allocated.extend(leaks.map(|allocated| allocated.address)),
        false => problems.extend(leaks.map(leaked)),
    }
    (allocations, in_use)
}

fn allocations_of<'a>(block: &'a Block) -> impl Iterator<Item = Allocated<'a>> {
    let node = match block.owner() {
        Some(AffinityOwner::Host(node)) => Some(node),
        _ => None,
    };
    (0..block.allocations.len()).filter_map(move |ordinal| {
        let attribute = block.attribute(ordinal)?;
        let of_node = attribute.secondary.get(NODE_ATTRIBUTE);
        Some(Allocated {
            address: block.address(ordinal)?,
            block: block.cidr,
            attribute,
            sequence_number: block.sequence_of(ordinal),
            is_in_use: false,
            is_borrowed: of_node.is_some() && of_node != node.as_ref(),
            is_cooling_down: is_cooling_down(attribute),
        })
    })
}

fn check_double_allocations(allocations: &[Allocated<'_>], problems: &mut Vec<Problem>) {
    for group in allocations.chunk_by(|one, other| one.address == other.address) {
        if group.len() > 1 {
            let blocks = group.iter().map(|allocated| allocated.block).collect();
            problems.push(Problem::AllocatedTwice { address: group[0].address, blocks });
        }
    }
}

/// Every use of every address, sorted. The same user twice is one.
fn users<'a>(evidence: &Evidence<'a>) -> Vec<(IpAddr, UserRef<'a>)> {
    let mut users: Vec<(IpAddr, UserRef<'a>)> = Vec::with_capacity(evidence.endpoints.len());
    for endpoint in evidence.endpoints {
        let user = UserRef::Endpoint(&endpoint.namespace, &endpoint.name);
        users.extend(endpoint.addresses.iter().map(|address| (*address, user)));
    }
    for node in evidence.nodes {
        let tunnels = node.tunnels.iter();
        users.extend(tunnels.map(|(tunnel, address)| (*address, UserRef::Tunnel(&node.name, *tunnel))));
    }
    users.extend(evidence.services.iter().map(|(name, address)| (*address, UserRef::Service(name))));
    users.sort_unstable();
    users.dedup();
    users
}

/// Blocks that contradict themselves, so that they say nothing about their addresses.
fn unsound(evidence: &Evidence<'_>, sound: &[&Block]) -> Vec<Cidr> {
    let mut known = sound.iter().map(|block| block.cidr).peekable();
    let unsound = evidence.books.blocks.iter().filter(|(cidr, stored)| {
        let is_sound = known.next_if_eq(cidr).is_some();
        !is_sound && !stored.value.deleted
    });
    unsound.map(|(cidr, _)| *cidr).collect()
}

fn is_leaked(allocated: &Allocated<'_>, is_node: &impl Fn(&str) -> bool) -> bool {
    // Most are in use; nothing more is read of those.
    if allocated.is_in_use || allocated.is_cooling_down {
        return false;
    }
    let attribute = allocated.attribute;
    let is_reserved = attribute.handle().is_some_and(HandleId::is_windows_reserved);
    // The agent of that node collects these when their sandboxes are gone; from here they all look alike.
    let node = attribute.secondary.get(NODE_ATTRIBUTE);
    let is_agents = is_of_other_plugin(attribute) && node.is_some_and(|node| is_node(node));
    !is_reserved && !is_agents
}

fn leaked(allocated: &Allocated<'_>) -> Problem {
    let handle = BlockAttribute::handle(allocated.attribute).cloned();
    let (address, sequence_number) = (allocated.address, allocated.sequence_number);
    Problem::Leaked { address, handle, sequence_number }
}
