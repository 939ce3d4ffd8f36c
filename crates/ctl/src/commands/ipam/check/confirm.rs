//! Looking again: which records to read, and what of the looks before still holds.

use std::collections::BTreeSet;
use std::net::IpAddr;

use book::load::{Facts, Pools, Users};
use ipam::check::{Allocated, Analysis, Problem};
use jiff::{SignedDuration, Timestamp};
use model::{AffinityOwner, Cidr, IpVersion, Key, Kind};

use super::is_user;

/// What the problems of a first look were concluded from.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Blocks, handles and affinities; those of one problem stand together.
    pub(super) keys: Vec<Key>,
    /// Addresses whose users matter.
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) needs_users: bool,
    pub(super) needs_pools: bool,
    seen: BTreeSet<Key>,
}

impl Suspects {
    pub(super) fn of(problems: &[Problem], facts: &Facts) -> Suspects {
        let mut suspects = Suspects::default();
        for problem in problems {
            suspects.add(problem, facts);
        }
        suspects
    }

    fn add(&mut self, problem: &Problem, facts: &Facts) {
        match problem {
            Problem::Leaked { address, .. } => self.add_address(*address, facts),
            Problem::UsedOutsidePools { address, .. }
            | Problem::UsedNotAllocated { address, .. }
            | Problem::SeveralUsers { address, .. } => {
                self.needs_pools = true;
                self.add_address(*address, facts);
            }
            Problem::AllocatedTwice { blocks, .. } => self.add_blocks(blocks.iter().copied()),
            Problem::HandleUnused { handle, .. } | Problem::HandleCount { handle, .. } => {
                self.add_key(Key::Handle(handle.clone()));
                let named =
                    facts.books.handles.get(handle).into_iter().flat_map(|stored| stored.value.blocks());
                self.add_blocks(named);
                if let Problem::HandleCount { block, .. } = problem {
                    self.add_blocks([*block]);
                }
            }
            Problem::HandleMissing { handle, blocks } => {
                self.add_key(Key::Handle(handle.clone()));
                self.add_blocks(blocks.iter().copied());
            }
            Problem::BlocksOverlap(one, other) => self.add_blocks([*one, *other]),
            Problem::AffinityMissing { block, owner }
            | Problem::AffinityDiffers { block, owner, .. }
            | Problem::AffinityUnfinished { block, owner, .. } => self.add_affinity(owner.clone(), *block),
            Problem::AffinityOfGoneNode { block, node } => {
                self.needs_users = true;
                self.add_affinity(AffinityOwner::Host(node.clone()), *block);
            }
            Problem::Corrupt(corrupt) => match &corrupt.key {
                Key::Resource { kind: Kind::IpPool, .. } => self.needs_pools = true,
                key if is_user(key) => self.needs_users = true,
                key => self.add_key(key.clone()),
            },
        }
    }

    /// The users of an address, and the blocks it is in or could be in by now.
    fn add_address(&mut self, address: IpAddr, facts: &Facts) {
        self.needs_users = true;
        self.addresses.insert(address);
        let of_pools = facts.pools.iter().filter(|pool| pool.cidr.contains(address));
        let of_pools = of_pools.filter_map(|pool| Cidr::containing(address, pool.block_size));
        let known = block_sizes(address).filter_map(|size| Cidr::containing(address, size));
        let known = known.filter(|cidr| facts.books.blocks.contains_key(cidr));
        self.add_blocks(of_pools.chain(known).collect::<Vec<_>>());
    }

    fn add_affinity(&mut self, owner: AffinityOwner, block: Cidr) {
        self.add_key(Key::Affinity { owner, block });
        self.add_blocks([block]);
    }

    fn add_blocks(&mut self, blocks: impl IntoIterator<Item = Cidr>) {
        blocks.into_iter().for_each(|cidr| self.add_key(Key::Block(cidr)));
    }

    fn add_key(&mut self, key: Key) {
        if self.seen.insert(key.clone()) {
            self.keys.push(key);
        }
    }
}

fn block_sizes(address: IpAddr) -> std::ops::RangeInclusive<u8> {
    match IpVersion::of(address) {
        IpVersion::V4 => 16..=32,
        IpVersion::V6 => 112..=128,
    }
}

/// Who uses the suspected addresses by now, in the place of who did.
pub(super) fn replace_users(facts: &mut Facts, users: Users, suspected: &BTreeSet<IpAddr>) {
    facts.endpoints.retain(|endpoint| !endpoint.addresses.iter().any(|address| suspected.contains(address)));
    facts.endpoints.extend(users.endpoints);
    facts.nodes = users.nodes;
    facts.books.unreadable.retain(|corrupt| !is_user(&corrupt.key));
    facts.books.unreadable.extend(users.unreadable);
}

pub(super) fn replace_pools(facts: &mut Facts, pools: Pools) {
    facts.pools = pools.pools;
    let is_pool = |key: &Key| matches!(key, Key::Resource { kind: Kind::IpPool, .. });
    facts.books.unreadable.retain(|corrupt| !is_pool(&corrupt.key));
    facts.books.unreadable.extend(pools.unreadable);
}

/// What another look found too, without change.
pub(super) fn still(earlier: Vec<Problem>, later: &[Problem]) -> Vec<Problem> {
    let later: BTreeSet<&Problem> = later.iter().collect();
    earlier.into_iter().filter(|problem| later.contains(problem)).collect()
}

/// What can be said, and the addresses that would be called leaked if they were older.
pub(super) fn judge(
    problems: Vec<Problem>,
    analysis: &Analysis<'_>,
    now: Timestamp,
    grace: SignedDuration,
) -> (Vec<Problem>, Vec<IpAddr>) {
    let is_young = |problem: &Problem| {
        let Problem::Leaked { address, .. } = problem else { return None };
        let start = analysis.allocations.partition_point(|one| one.address < *address);
        let mut same = analysis.allocations[start..].iter().take_while(|one| one.address == *address);
        let age = |one: &Allocated<'_>| Some(now.duration_since(ipam::allocated_at(one.attribute)?));
        same.any(|one| age(one).is_some_and(|age| age < grace)).then_some(*address)
    };
    let young: Vec<IpAddr> = problems.iter().filter_map(is_young).collect();
    let judged = problems.into_iter().filter(|problem| is_young(problem).is_none()).collect();
    (judged, young)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipam::check::EndpointFacts;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn leaked(text: &str, sequence_number: u64) -> Problem {
        Problem::Leaked { address: address(text), handle: None, sequence_number }
    }

    #[test]
    fn only_what_both_looks_found_unchanged_is_told() {
        let first = vec![leaked("10.0.0.1", 7), leaked("10.0.0.2", 7)];
        // Given anew meanwhile, and leaked only now.
        let second = [leaked("10.0.0.1", 7), leaked("10.0.0.2", 8), leaked("10.0.0.3", 9)];
        assert_eq!(still(first, &second), [leaked("10.0.0.1", 7)]);
    }

    #[test]
    fn the_records_of_a_suspicion_are_read_once_and_together() {
        let mut facts = Facts::default();
        let block: Cidr = "10.0.0.0/26".parse().unwrap();
        facts.books.blocks.insert(block, ipam::Stored::new(model::ipam::Block::new(block, None, 1), "1"));
        let missing = Problem::HandleMissing { handle: "h".into(), blocks: vec![block] };
        let suspects = Suspects::of(&[leaked("10.0.0.1", 7), leaked("10.0.0.2", 7), missing], &facts);
        assert_eq!(suspects.keys, [Key::Block(block), Key::Handle("h".into())]);
        assert_eq!(suspects.addresses.len(), 2);
        assert!(suspects.needs_users && !suspects.needs_pools);
    }

    #[test]
    fn new_users_take_the_place_of_old_ones() {
        let endpoint = |name: &str, text: &str| {
            EndpointFacts::owned("n".to_owned(), name.to_owned(), vec![address(text)])
        };
        let mut facts = Facts {
            endpoints: vec![endpoint("gone", "10.0.0.1"), endpoint("stays", "10.0.0.2")],
            ..Facts::default()
        };
        let users = Users { endpoints: vec![endpoint("new", "10.0.0.1")], ..Users::default() };
        replace_users(&mut facts, users, &BTreeSet::from([address("10.0.0.1")]));
        let names: Vec<&str> = facts.endpoints.iter().map(|endpoint| endpoint.name.as_ref()).collect();
        assert_eq!(names, ["stays", "new"]);
    }
}
