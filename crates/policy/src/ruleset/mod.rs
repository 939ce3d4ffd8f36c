//! A ruleset of nf_tables as data. The kernel's door writes it over netlink, tests and people read its text, and the walk follows a
//! packet through it.
//!
//! * [`Ruleset`] holds tables of family `inet`, each with chains, sets, verdict maps and named counters.
//! * [`Rule`] is a list of matches that must all hold, and what happens then.
//! * [`Ruleset::changes_to`] lists what leads from one ruleset to another, in an order that the kernel takes as one transaction.

mod change;
mod rule;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::IpVersion;

pub use change::{Change, Refusal};
pub use rule::{
    Action, ConnectionStates, Device, Icmp, Limit, LimitUnit, LogLevel, Match, Pattern, Rejection, Rule,
    Side, Verdict,
};

/// The name of a table, chain, set, map or counter. Letters, digits and `/ - _ .`, a letter first, up to 255 bytes.
pub type Name = Arc<str>;

/// Tables by name. Each is of family `inet`: it sees IPv4 and IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ruleset {
    pub tables: BTreeMap<Name, Table>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    pub counters: BTreeSet<Name>,
    pub sets: BTreeMap<Name, Set>,
    /// From the name of a device to a verdict.
    pub maps: BTreeMap<Name, BTreeMap<Name, Verdict>>,
    pub chains: BTreeMap<Name, Chain>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// Where the kernel enters it; none for a chain that others jump to.
    pub base: Option<Base>,
    pub rules: Vec<Rule>,
}

/// Packets that no rule decides are accepted by every base chain: its policy is always `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Base {
    pub hook: Hook,
    pub priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Set {
    pub kind: SetKind,
    pub elements: BTreeSet<Element>,
}

impl Set {
    pub fn new(kind: SetKind) -> Set {
        Set { kind, elements: BTreeSet::new() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetKind {
    /// `ipv4_addr` or `ipv6_addr`, a hash: adding one address does not depend on how many there are.
    Addresses(IpVersion),
    /// The same types with `flags interval`. No two elements overlap: the kernel refuses them.
    Networks(IpVersion),
    /// `ipv4_addr . inet_proto . inet_service` or the same with `ipv6_addr`, a hash.
    AddressPorts(IpVersion),
    /// `inet_service` with `flags interval`. No two elements overlap or touch.
    Ports,
}

/// What a set may hold; which of them it does is said by its [`SetKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    Address(IpAddr),
    /// Not everything: that is two halves.
    Network(IpNet),
    AddressPort(AddressPort),
    Ports(PortRange),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressPort {
    pub address: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    pub fn single(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl Element {
    /// Whether a set of this kind may hold it.
    pub fn fits(&self, kind: SetKind) -> bool {
        match (self, kind) {
            (Element::Address(address), SetKind::Addresses(version)) => IpVersion::of(*address) == version,
            (Element::Network(network), SetKind::Networks(version)) => {
                IpVersion::of(network.addr()) == version
                    && (1..=version.bits()).contains(&network.prefix_len())
                    && network.addr() == network.network()
            }
            (Element::AddressPort(member), SetKind::AddressPorts(version)) => {
                IpVersion::of(member.address) == version
            }
            (Element::Ports(range), SetKind::Ports) => range.first <= range.last,
            _ => false,
        }
    }

    /// Whether two elements of an interval set have something in common.
    fn overlaps(&self, other: &Element) -> bool {
        match (self, other) {
            (Element::Network(one), Element::Network(other)) => one.contains(other) || other.contains(one),
            (Element::Ports(one), Element::Ports(other)) => {
                one.first <= other.last && other.first <= one.last
            }
            _ => self == other,
        }
    }
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self == &Table::default()
    }

    /// Base chains of a hook, in the order in which the kernel enters them.
    pub fn entered_at(&self, hook: Hook) -> Vec<(&Name, &Chain)> {
        let mut chains: Vec<_> = self
            .chains
            .iter()
            .filter_map(|(name, chain)| {
                let base = chain.base.filter(|base| base.hook == hook)?;
                Some((base.priority, name, chain))
            })
            .collect();
        chains.sort_by_key(|(priority, name, _)| (*priority, (*name).clone()));
        chains.into_iter().map(|(_, name, chain)| (name, chain)).collect()
    }

    /// Everything that does not hold together: names that do not exist, elements that do not fit or overlap.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, chain) in &self.chains {
            for (index, rule) in chain.rules.iter().enumerate() {
                let missing = rule.needs().into_iter().filter(|need| !self.has(need));
                faults
                    .extend(missing.map(|need| format!("chain {name}, rule {index}: {need} does not exist")));
            }
        }
        for (name, map) in &self.maps {
            for (device, verdict) in map {
                if let Some(chain) = verdict.chain().filter(|chain| !self.chains.contains_key(*chain)) {
                    faults.push(format!("map {name}, element {device}: chain {chain} does not exist"));
                }
            }
        }
        for (name, set) in &self.sets {
            let unfit = set.elements.iter().filter(|element| !element.fits(set.kind));
            faults.extend(unfit.map(|element| format!("set {name}: {element} does not fit")));
            // Sorted by where they start, so only neighbours can overlap.
            let pairs = set.elements.iter().zip(set.elements.iter().skip(1));
            let overlaps = pairs.filter(|(one, next)| one.overlaps(next));
            faults.extend(overlaps.map(|(one, next)| format!("set {name}: {one} and {next} overlap")));
        }
        faults
    }

    fn has(&self, need: &Need<'_>) -> bool {
        match need {
            Need::Chain(name) => self.chains.contains_key(*name),
            Need::Set(name) => self.sets.contains_key(*name),
            Need::Map(name) => self.maps.contains_key(*name),
            Need::Counter(name) => self.counters.contains(*name),
        }
    }
}

/// What a rule refers to, and what therefore exists as long as the rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need<'a> {
    Chain(&'a Name),
    Set(&'a Name),
    Map(&'a Name),
    Counter(&'a Name),
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Chain(name) => write!(f, "chain {name}"),
            Need::Set(name) => write!(f, "set {name}"),
            Need::Map(name) => write!(f, "map {name}"),
            Need::Counter(name) => write!(f, "counter {name}"),
        }
    }
}
