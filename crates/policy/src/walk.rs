//! What the kernel would do with a packet: the ruleset, walked rule by rule.

use std::net::IpAddr;

use model::IpVersion;

use crate::evaluate::Packet;
use crate::ruleset::{
    Action, AddressPort, Chain, ConnectionStates, Device, Element, Hook, Match, Name, Rule, Ruleset, Set,
    Side, Table, Verdict,
};

/// The kernel refuses rulesets whose jumps go deeper.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionState {
    New,
    Established,
    Related,
    Invalid,
    Untracked,
}

/// A packet at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walker {
    pub packet: Packet,
    /// Empty where there is none.
    pub input: String,
    pub output: String,
    pub state: ConnectionState,
    /// Whether its destination was translated.
    pub is_translated: bool,
    pub mark: u32,
    /// What happened to it so far.
    pub trail: Vec<Step>,
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    pub table: Name,
    pub chain: Name,
    pub rule: usize,
    pub counters: Vec<Name>,
    pub has_logged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Accepted,
    Dropped,
    Rejected,
    /// The ruleset does not hold together, so what happens cannot be told.
    Unknown(String),
}

impl Walker {
    pub fn new(packet: Packet, input: &str, output: &str) -> Walker {
        let (input, output) = (input.to_owned(), output.to_owned());
        let state = ConnectionState::New;
        Walker { packet, input, output, state, is_translated: false, mark: 0, trail: Vec::new() }
    }

    /// Goes through all base chains of a hook between two priorities. What an `accept` ends is one base chain; a `drop` ends all.
    pub fn pass(&mut self, ruleset: &Ruleset, hook: Hook, priorities: std::ops::RangeInclusive<i32>) -> Fate {
        let mut entered: Vec<_> = ruleset
            .tables
            .iter()
            .flat_map(|(name, table)| {
                table.entered_at(hook).into_iter().map(move |chain| (name, table, chain))
            })
            .filter_map(|(name, table, (chain_name, chain))| {
                Some((chain.base?.priority, name, table, chain_name, chain))
            })
            .filter(|(priority, ..)| priorities.contains(priority))
            .collect();
        entered.sort_by_key(|(priority, table, _, chain, _)| (*priority, (*table).clone(), (*chain).clone()));
        for (_, name, table, chain_name, chain) in entered {
            let place = Place { table_name: name, table };
            match self.follow(&place, chain_name, chain, 0) {
                Flow::Done(Fate::Accepted) | Flow::Next => {}
                Flow::Done(fate) => return fate,
            }
        }
        Fate::Accepted
    }

    fn follow(&mut self, place: &Place<'_>, name: &Name, chain: &Chain, depth: usize) -> Flow {
        if depth > DEPTH_MAX {
            return Flow::Done(Fate::Unknown(format!("chain {name}: jumps go deeper than {DEPTH_MAX}")));
        }
        for (index, rule) in chain.rules.iter().enumerate() {
            match self.holds(place, rule) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(missing) => {
                    return Flow::Done(Fate::Unknown(format!("chain {name}, rule {index}: {missing}")));
                }
            }
            match self.act(place, name, index, rule, depth) {
                After::Next => {}
                After::Return => return Flow::Next,
                After::Done(fate) => return Flow::Done(fate),
            }
        }
        Flow::Next
    }

    fn act(&mut self, place: &Place<'_>, chain: &Name, index: usize, rule: &Rule, depth: usize) -> After {
        let mut step = Step {
            table: place.table_name.clone(),
            chain: chain.clone(),
            rule: index,
            counters: Vec::new(),
            has_logged: false,
        };
        let mut verdict = None;
        for action in &rule.actions {
            match action {
                Action::Count(counter) => step.counters.push(counter.clone()),
                Action::Log { .. } => step.has_logged = true,
                Action::SetMark { mask, value } => self.mark = self.mark & !mask | value,
                Action::NoTrack => self.state = ConnectionState::Untracked,
                Action::Limit(_) | Action::Trace => {}
                Action::Lookup { end, map } => {
                    verdict = place.table.maps.get(map).and_then(|map| map.get(self.device(*end))).cloned();
                }
                Action::Verdict(of_rule) => verdict = Some(of_rule.clone()),
            }
        }
        self.trail.push(step);
        match verdict {
            None => After::Next,
            Some(Verdict::Accept) => After::Done(Fate::Accepted),
            Some(Verdict::Drop) => After::Done(Fate::Dropped),
            Some(Verdict::Reject(_)) => After::Done(Fate::Rejected),
            Some(Verdict::Return) => After::Return,
            Some(Verdict::Jump(target)) => match self.enter(place, &target, depth) {
                Flow::Next => After::Next,
                Flow::Done(fate) => After::Done(fate),
            },
            Some(Verdict::Goto(target)) => match self.enter(place, &target, depth) {
                Flow::Next => After::Return,
                Flow::Done(fate) => After::Done(fate),
            },
        }
    }

    fn enter(&mut self, place: &Place<'_>, target: &Name, depth: usize) -> Flow {
        match place.table.chains.get(target) {
            Some(chain) => self.follow(place, target, chain, depth + 1),
            None => Flow::Done(Fate::Unknown(format!("chain {target} does not exist"))),
        }
    }

    fn holds(&self, place: &Place<'_>, rule: &Rule) -> Result<bool, String> {
        for found in &rule.matches {
            if !self.matches(place, found)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches(&self, place: &Place<'_>, found: &Match) -> Result<bool, String> {
        let set =
            |name: &Name| place.table.sets.get(name).ok_or_else(|| format!("set {name} does not exist"));
        Ok(match found {
            Match::Device { end, is } => is.matches(self.device(*end)),
            Match::Family(version) => self.packet.version() == *version,
            Match::AddressInSet { side, version, set: name, negated } => {
                self.packet.version() == *version
                    && holds_address(set(name)?, self.address(*side)) != *negated
            }
            Match::AddressInNetwork { side, network, negated } => {
                let address = self.address(*side);
                address.is_ipv4() == network.addr().is_ipv4() && network.contains(&address) != *negated
            }
            Match::Protocol { protocol, negated } => (self.packet.protocol == *protocol) != *negated,
            Match::Ports { side, range, negated } => {
                self.port(*side).is_some_and(|port| range.contains(port) != *negated)
            }
            Match::PortInSet { side, set: name, negated } => {
                let set = set(name)?;
                let is_member = |port| {
                    set.elements
                        .iter()
                        .any(|element| matches!(element, Element::Ports(range) if range.contains(port)))
                };
                self.port(*side).is_some_and(|port| is_member(port) != *negated)
            }
            Match::AddressPortInSet { side, version, set: name, negated } => {
                let (address, protocol) = (self.address(*side), self.packet.protocol);
                // Whatever stands there where other protocols have ports: no member has such a protocol.
                let port = self.port(*side).unwrap_or_default();
                let element = Element::AddressPort(AddressPort { address, protocol, port });
                self.packet.version() == *version && set(name)?.elements.contains(&element) != *negated
            }
            Match::Icmp { icmp, negated } => self.packet.icmp.is_some_and(|found| {
                (icmp.kind == found.kind && (icmp.code.is_none() || icmp.code == found.code)) != *negated
            }),
            Match::Connection(states) => self.is_in(*states),
            Match::Dnat(wanted) => self.is_translated == *wanted,
            Match::Mark { mask, value, negated } => (self.mark & mask == *value) != *negated,
        })
    }

    fn device(&self, end: Device) -> &str {
        match end {
            Device::Input => &self.input,
            Device::Output => &self.output,
        }
    }

    fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Source => self.packet.source,
            Side::Destination => self.packet.destination,
        }
    }

    fn port(&self, side: Side) -> Option<u16> {
        self.packet.ports.map(|(source, destination)| match side {
            Side::Source => source,
            Side::Destination => destination,
        })
    }

    fn is_in(&self, states: ConnectionStates) -> bool {
        match self.state {
            ConnectionState::New => states.new,
            ConnectionState::Established => states.established,
            ConnectionState::Related => states.related,
            ConnectionState::Invalid => states.invalid,
            ConnectionState::Untracked => states.untracked,
        }
    }
}

struct Place<'a> {
    table_name: &'a Name,
    table: &'a Table,
}

/// After a chain.
enum Flow {
    Next,
    Done(Fate),
}

/// After a rule.
enum After {
    Next,
    Return,
    Done(Fate),
}

fn holds_address(set: &Set, address: IpAddr) -> bool {
    if set.elements.contains(&Element::Address(address)) {
        return true;
    }
    let longest = IpVersion::of(address).bits();
    (1..=longest)
        .filter_map(|length| ipnet::IpNet::new(address, length).ok())
        .any(|net| set.elements.contains(&Element::Network(net.trunc())))
}
