//! What the kernel holds, as a ruleset. Rules are recognised by the steps that ours consist of; anything else is named as strange.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use ipnet::IpNet;
use model::IpVersion;
use policy::ruleset::{
    Action, Base, Chain, Icmp, Limit, Match, Pattern, PortRange, Rule, Set, Side, Table, Verdict,
};

use super::member;
use super::meta::*;
use crate::nftables::list;
use crate::nftables::object::{self, Expression, Register, SetName};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A table of ours, and what it cannot hold.
#[derive(Debug, Default)]
pub(super) struct Lifted {
    pub(super) table: Table,
    pub(super) strange: Vec<String>,
}

pub(super) fn table(listed: &list::Table) -> Lifted {
    let mut lifted = Lifted::default();
    lifted.table.counters = listed.counters.keys().map(|name| name.as_str().into()).collect();
    for (name, (set, elements)) in &listed.sets {
        lifted.set(name, set, elements);
    }
    for chain in &listed.chains {
        let rules = listed.rules.get(&chain.name).map(Vec::as_slice).unwrap_or_default();
        lifted.chain(chain, rules);
    }
    lifted
}

impl Lifted {
    fn set(&mut self, name: &str, set: &object::Set, elements: &[object::Element]) {
        if set.is_verdict_map && set.key_type == TYPE_IFNAME && !set.has_intervals {
            match member::map(elements) {
                Some(map) => drop(self.table.maps.insert(name.into(), map)),
                None => self.strange.push(format!("map {name} has members that none of ours has")),
            }
            return;
        }
        let Some(kind) = member::set_kind(set) else {
            self.strange.push(format!("set {name} is of a kind that none of ours has"));
            return;
        };
        match member::members(kind, elements) {
            Some(members) => {
                let set = Set { kind, elements: members.into_iter().collect() };
                self.table.sets.insert(name.into(), set);
            }
            None => self.strange.push(format!("set {name} has members that none of ours has")),
        }
    }

    fn chain(&mut self, chain: &object::Chain, rules: &[object::Rule]) {
        let name = &chain.name;
        let base = match &chain.base {
            None => None,
            Some(found) => {
                let is_plain = found.kind == "filter" && !found.drops_by_default;
                match hook_of(found.hook).filter(|_| is_plain) {
                    Some(hook) => Some(Base { hook, priority: found.priority }),
                    None => {
                        self.strange.push(format!("chain {name} is entered as none of ours is"));
                        return;
                    }
                }
            }
        };
        let mut lifted = Chain { base, rules: Vec::with_capacity(rules.len()) };
        for (index, found) in rules.iter().enumerate() {
            match rule(found) {
                Some(rule) => lifted.rules.push(rule),
                None => self.strange.push(format!("chain {name}, rule {index}: it is none of ours")),
            }
        }
        self.table.chains.insert(name.as_str().into(), lifted);
    }
}

/// A rule of ours; `None` if it is another one.
pub(super) fn rule(found: &object::Rule) -> Option<Rule> {
    let mut reader = Reader { steps: &found.expressions, protocol: None };
    let mut rule = Rule { comment: found.comment.as_deref().map(Into::into), ..Rule::default() };
    while !reader.steps.is_empty() {
        // A lookup in a map of verdicts begins as a match does.
        match reader.action() {
            Some(action) => rule.actions.push(action),
            None if rule.actions.is_empty() => rule.matches.push(reader.matching()?),
            None => return None,
        }
    }
    Some(rule)
}

/// The steps that are left.
struct Reader<'a> {
    steps: &'a [Expression],
    /// Which an earlier match asks for.
    protocol: Option<u8>,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [Expression; N]> {
        let (taken, rest) = self.steps.split_first_chunk::<N>()?;
        self.steps = rest;
        Some(taken)
    }

    /// The next action; if it is none, nothing is taken.
    fn action(&mut self) -> Option<Action> {
        if let Some(action) = self.steps.first().and_then(simple_action) {
            self.take::<1>()?;
            return Some(action);
        }
        if let [
            Expression::LoadMeta { key, into: FIRST },
            Expression::LookupVerdict { set, from: FIRST },
            ..,
        ] = self.steps
        {
            let action = Action::Lookup { end: device_of(*key)?, map: name(set) };
            self.take::<2>()?;
            return Some(action);
        }
        if let [
            Expression::Load { into: FIRST, value },
            Expression::StoreMeta { key: NFT_META_NFTRACE, from: FIRST },
            ..,
        ] = self.steps
            && value.as_slice() == [1]
        {
            self.take::<2>()?;
            return Some(Action::Trace);
        }
        if let [
            Expression::LoadMeta { key: NFT_META_MARK, into: FIRST },
            Expression::Bitwise { from: FIRST, into: FIRST, mask, xor },
            Expression::StoreMeta { key: NFT_META_MARK, from: FIRST },
            ..,
        ] = self.steps
        {
            let action = Action::SetMark { mask: !host_number(mask)?, value: host_number(xor)? };
            self.take::<3>()?;
            return Some(action);
        }
        None
    }

    fn matching(&mut self) -> Option<Match> {
        let [load] = self.take::<1>()?;
        match load {
            Expression::LoadMeta { key, into: FIRST } => self.of_meta(*key),
            Expression::LoadCt { key, direction: None, into: FIRST } => self.of_connection(*key),
            Expression::LoadPayload { base: NETWORK_HEADER, offset, length, into: FIRST } => {
                let (version, side) = address_at((*offset, *length))?;
                self.of_address(version, side)
            }
            Expression::LoadPayload { base: TRANSPORT_HEADER, offset, length, into: FIRST } => {
                self.of_transport((*offset, *length))
            }
            _ => None,
        }
    }

    /// What the value is compared with, and whether it must differ.
    fn compared(&mut self) -> Option<(&'a [u8], bool)> {
        match self.take::<1>()? {
            [Expression::Compare { from: FIRST, operation: EQUAL, value }] => Some((value, false)),
            [Expression::Compare { from: FIRST, operation: UNEQUAL, value }] => Some((value, true)),
            _ => None,
        }
    }

    fn masked(&mut self) -> Option<&'a [u8]> {
        match self.take::<1>()? {
            [Expression::Bitwise { from: FIRST, into: FIRST, mask, xor }]
                if xor.iter().all(|byte| *byte == 0) =>
            {
                Some(mask)
            }
            _ => None,
        }
    }

    fn of_meta(&mut self, key: u32) -> Option<Match> {
        if key == NFT_META_MARK {
            let mask = host_number(self.masked()?)?;
            let (value, negated) = self.compared()?;
            return Some(Match::Mark { mask, value: host_number(value)?, negated });
        }
        let (value, negated) = self.compared()?;
        match key {
            NFT_META_NFPROTO if !negated => {
                let is_meant = |version: &IpVersion| value == [family(*version)];
                [IpVersion::V4, IpVersion::V6].into_iter().find(is_meant).map(Match::Family)
            }
            NFT_META_L4PROTO => {
                let &[protocol] = value else { return None };
                if !negated {
                    self.protocol = Some(protocol);
                }
                Some(Match::Protocol { protocol, negated })
            }
            key if !negated => {
                let name = member::device_name(value)?;
                let is_whole = value.len() == IFNAMSIZ;
                let is = if is_whole { Pattern::Exactly(name) } else { Pattern::StartsWith(name) };
                Some(Match::Device { end: device_of(key)?, is })
            }
            _ => None,
        }
    }

    fn of_connection(&mut self, key: u32) -> Option<Match> {
        let mask = host_number(self.masked()?)?;
        let (value, is_set) = self.compared()?;
        match key {
            _ if value != [0; 4] => None,
            NFT_CT_STATE if is_set => states_of(mask).map(Match::Connection),
            NFT_CT_STATUS if mask == IPS_DST_NAT => Some(Match::Dnat(is_set)),
            _ => None,
        }
    }

    fn of_address(&mut self, version: IpVersion, side: Side) -> Option<Match> {
        match self.steps.first()? {
            Expression::Lookup { set, from: FIRST, is_missing } => {
                self.take::<1>()?;
                Some(Match::AddressInSet { side, version, set: name(set), negated: *is_missing })
            }
            Expression::Bitwise { .. } => {
                let mask = self.masked()?;
                let (value, negated) = self.compared()?;
                let network = network(version, value, mask)?;
                Some(Match::AddressInNetwork { side, network, negated })
            }
            Expression::LoadMeta { .. } => self.of_address_and_port(version, side),
            _ => None,
        }
    }

    fn of_address_and_port(&mut self, version: IpVersion, side: Side) -> Option<Match> {
        let (_, length) = address_place(version, side);
        let behind = u8::try_from(length / 4).ok()?;
        let [protocol, port, lookup] = self.take::<3>()?;
        let (offset, length) = port_place(side);
        let wanted_protocol = Expression::LoadMeta { key: NFT_META_L4PROTO, into: Register(behind) };
        let into = Register(behind + 1);
        let wanted_port = Expression::LoadPayload { base: TRANSPORT_HEADER, offset, length, into };
        match lookup {
            Expression::Lookup { set, from: FIRST, is_missing }
                if *protocol == wanted_protocol && *port == wanted_port =>
            {
                Some(Match::AddressPortInSet { side, version, set: name(set), negated: *is_missing })
            }
            _ => None,
        }
    }

    fn of_transport(&mut self, place: (u32, u32)) -> Option<Match> {
        if place == (0, 1) {
            return self.of_icmp();
        }
        let is_icmp = matches!(self.protocol, Some(ICMP | ICMPV6));
        if is_icmp && place == (0, 2) {
            let (&[kind, code], true) = self.compared()? else { return None };
            return Some(Match::Icmp { icmp: Icmp { kind, code: Some(code) }, negated: true });
        }
        let side = port_at(place)?;
        match self.steps.first()? {
            Expression::Lookup { set, from: FIRST, is_missing } => {
                self.take::<1>()?;
                Some(Match::PortInSet { side, set: name(set), negated: *is_missing })
            }
            Expression::Range { from: FIRST, is_outside, low, high } => {
                self.take::<1>()?;
                let range = PortRange { first: port(low)?, last: port(high)? };
                Some(Match::Ports { side, range, negated: *is_outside })
            }
            _ => {
                let (value, negated) = self.compared()?;
                Some(Match::Ports { side, range: PortRange::single(port(value)?), negated })
            }
        }
    }

    fn of_icmp(&mut self) -> Option<Match> {
        let (&[kind], negated) = self.compared()? else { return None };
        let code = match self.steps {
            [
                Expression::LoadPayload { base: TRANSPORT_HEADER, offset: 1, length: 1, into: FIRST },
                Expression::Compare { from: FIRST, operation: EQUAL, value },
                ..,
            ] if !negated => {
                let &[code] = value.as_slice() else { return None };
                self.take::<2>()?;
                Some(code)
            }
            _ => None,
        };
        Some(Match::Icmp { icmp: Icmp { kind, code }, negated })
    }
}

fn simple_action(step: &Expression) -> Option<Action> {
    Some(match step {
        Expression::CountIn(counter) => Action::Count(counter.as_str().into()),
        Expression::Limit { rate, seconds, burst, is_over: false } => {
            Action::Limit(Limit { packets: *rate, per: unit_of(*seconds)?, burst: *burst })
        }
        Expression::Log { prefix, level } => {
            Action::Log { prefix: prefix.as_str().into(), level: level_of(*level)? }
        }
        Expression::NoTrack => Action::NoTrack,
        Expression::Reject { kind, code } => Action::Verdict(Verdict::Reject(rejection_of((*kind, *code))?)),
        Expression::Verdict(verdict) => Action::Verdict(member::verdict(verdict)?),
        _ => return None,
    })
}

fn name(set: &SetName) -> policy::ruleset::Name {
    set.name.as_str().into()
}

fn host_number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

fn port(value: &[u8]) -> Option<u16> {
    value.try_into().ok().map(u16::from_be_bytes)
}

fn network(version: IpVersion, address: &[u8], mask: &[u8]) -> Option<IpNet> {
    let network = match version {
        IpVersion::V4 => {
            let (address, mask): ([u8; 4], [u8; 4]) = (address.try_into().ok()?, mask.try_into().ok()?);
            IpNet::with_netmask(address.into(), mask.into()).ok()?
        }
        IpVersion::V6 => {
            let (address, mask): ([u8; 16], [u8; 16]) = (address.try_into().ok()?, mask.try_into().ok()?);
            IpNet::with_netmask(address.into(), mask.into()).ok()?
        }
    };
    (network.addr() == network.network()).then_some(network)
}
