//! Changes of a ruleset as the kernel's.

use model::IpVersion;
use policy::ruleset::{
    Action, Base as Place, Change as Wanted, Element as Member, Limit, Match, Name, Pattern, Rule as Rules,
    Side, Verdict as Decision,
};

use super::member::{device_key, elements};
use super::meta::*;
use crate::nftables::object::{
    Base, Chain, Change, Counter, Element, Expression, Register, Rule, Set, SetName, Verdict,
};

/// Calls `each` with the kernel's steps for one change.
pub(super) fn steps(wanted: &Wanted, mut each: impl FnMut(Change)) {
    match wanted {
        Wanted::AddTable { .. } => each(Change::AddTable),
        Wanted::DeleteTable { .. } => each(Change::DeleteTable),
        Wanted::AddCounter { counter, .. } => {
            each(Change::AddCounter(Counter { name: counter.to_string(), packets: 0, bytes: 0 }));
        }
        Wanted::DeleteCounter { counter, .. } => each(Change::DeleteCounter(counter.to_string())),
        Wanted::AddSet { set, kind, .. } => {
            let (key_type, key_length, has_intervals) = shape(*kind);
            each(Change::AddSet { set: plain_set(set, key_type, key_length, has_intervals), id: None });
        }
        Wanted::DeleteSet { set, .. } => each(Change::DeleteSet(set.to_string())),
        Wanted::AddElements { set, elements, .. } => {
            each(Change::AddElements { set: set_name(set), elements: members(elements) });
        }
        Wanted::DeleteElements { set, elements, .. } => {
            each(Change::DeleteElements { set: set_name(set), elements: members(elements) });
        }
        Wanted::AddMap { map, .. } => {
            let length = u32::try_from(IFNAMSIZ).unwrap_or_default();
            let set = Set { is_verdict_map: true, ..plain_set(map, TYPE_IFNAME, length, false) };
            each(Change::AddSet { set, id: None });
        }
        Wanted::DeleteMap { map, .. } => each(Change::DeleteSet(map.to_string())),
        Wanted::AddMapElements { map, elements, .. } => {
            each(Change::AddElements { set: set_name(map), elements: map_elements(elements) });
        }
        Wanted::DeleteMapElements { map, elements, .. } => {
            each(Change::DeleteElements { set: set_name(map), elements: map_elements(elements) });
        }
        Wanted::AddChain { chain, base, .. } => {
            each(Change::AddChain(Chain { name: chain.to_string(), base: base.map(place) }));
        }
        Wanted::DeleteChain { chain, .. } => each(Change::DeleteChain(chain.to_string())),
        Wanted::FlushChain { chain, .. } => each(Change::FlushChain(chain.to_string())),
        Wanted::AddRules { chain, rules, .. } => rules.iter().for_each(|rule| {
            each(Change::AddRule(Rule {
                chain: chain.to_string(),
                handle: 0,
                expressions: expressions(rule),
                comment: rule.comment.as_ref().map(ToString::to_string),
            }));
        }),
    }
}

fn plain_set(name: &Name, key_type: u32, key_length: u32, has_intervals: bool) -> Set {
    Set {
        name: name.to_string(),
        key_type,
        key_length,
        has_intervals,
        fields: Vec::new(),
        is_verdict_map: false,
        is_anonymous: false,
    }
}

fn set_name(name: &Name) -> SetName {
    SetName { name: name.to_string(), id: None }
}

fn members(all: &[Member]) -> Vec<Element> {
    all.iter().flat_map(elements).collect()
}

fn map_elements(all: &[(Name, Decision)]) -> Vec<Element> {
    let element = |(device, decision): &(Name, Decision)| Element {
        key: device_key(device),
        last: None,
        ends_interval: false,
        // A map holds no rejection; the kernel refuses an element without a verdict.
        verdict: verdict(decision),
    };
    all.iter().map(element).collect()
}

fn place(base: Place) -> Base {
    Base {
        hook: hook_number(base.hook),
        priority: base.priority,
        kind: "filter".to_owned(),
        drops_by_default: false,
    }
}

/// All steps of a rule.
pub(super) fn expressions(rule: &Rules) -> Vec<Expression> {
    let mut steps = Vec::new();
    rule.matches.iter().for_each(|found| put_match(&mut steps, found));
    rule.actions.iter().for_each(|action| put_action(&mut steps, action));
    steps
}

fn put_match(steps: &mut Vec<Expression>, wanted: &Match) {
    match wanted {
        Match::Device { end, is } => {
            load_meta(steps, name_of(*end));
            let value = match is {
                Pattern::Exactly(name) => device_key(name),
                Pattern::StartsWith(start) => start.as_bytes().to_vec(),
            };
            compare(steps, value, false);
        }
        Match::Family(version) => {
            load_meta(steps, NFT_META_NFPROTO);
            compare(steps, vec![family(*version)], false);
        }
        Match::AddressInSet { side, version, set, negated } => {
            load_address(steps, *version, *side);
            lookup(steps, set, *negated);
        }
        Match::AddressInNetwork { side, network, negated } => {
            load_address(steps, IpVersion::of(network.addr()), *side);
            let (mask, address) = match network {
                ipnet::IpNet::V4(network) => {
                    (network.netmask().octets().to_vec(), network.network().octets().to_vec())
                }
                ipnet::IpNet::V6(network) => {
                    (network.netmask().octets().to_vec(), network.network().octets().to_vec())
                }
            };
            bitwise(steps, mask);
            compare(steps, address, *negated);
        }
        Match::Protocol { protocol, negated } => {
            load_meta(steps, NFT_META_L4PROTO);
            compare(steps, vec![*protocol], *negated);
        }
        Match::Ports { .. } | Match::PortInSet { .. } | Match::AddressPortInSet { .. } => {
            put_ports(steps, wanted)
        }
        Match::Icmp { icmp, negated } => {
            match (icmp.code, negated) {
                (None, _) => compare_transport(steps, 0, vec![icmp.kind], *negated),
                (Some(code), false) => {
                    compare_transport(steps, 0, vec![icmp.kind], false);
                    compare_transport(steps, 1, vec![code], false);
                }
                (Some(code), true) => compare_transport(steps, 0, vec![icmp.kind, code], true),
            };
        }
        Match::Connection(states) => {
            steps.push(Expression::LoadCt { key: NFT_CT_STATE, direction: None, into: FIRST });
            has_bits(steps, state_bits(*states), true);
        }
        Match::Dnat(is_set) => {
            steps.push(Expression::LoadCt { key: NFT_CT_STATUS, direction: None, into: FIRST });
            has_bits(steps, IPS_DST_NAT, *is_set);
        }
        Match::Mark { mask, value, negated } => {
            load_meta(steps, NFT_META_MARK);
            bitwise(steps, mask.to_ne_bytes().to_vec());
            compare(steps, value.to_ne_bytes().to_vec(), *negated);
        }
    }
}

fn put_ports(steps: &mut Vec<Expression>, wanted: &Match) {
    match wanted {
        Match::Ports { side, range, negated } => {
            load_port(steps, *side, FIRST);
            let (low, high) = (range.first.to_be_bytes().to_vec(), range.last.to_be_bytes().to_vec());
            if low == high {
                compare(steps, low, *negated);
            } else {
                steps.push(Expression::Range { from: FIRST, is_outside: *negated, low, high });
            }
        }
        Match::PortInSet { side, set, negated } => {
            load_port(steps, *side, FIRST);
            lookup(steps, set, *negated);
        }
        Match::AddressPortInSet { side, version, set, negated } => {
            load_address(steps, *version, *side);
            let (_, length) = address_place(*version, *side);
            let behind = u8::try_from(length / 4).unwrap_or_default();
            steps.push(Expression::LoadMeta { key: NFT_META_L4PROTO, into: Register(behind) });
            load_port(steps, *side, Register(behind + 1));
            lookup(steps, set, *negated);
        }
        _ => {}
    }
}

fn put_action(steps: &mut Vec<Expression>, action: &Action) {
    match action {
        Action::Count(counter) => steps.push(Expression::CountIn(counter.to_string())),
        Action::Limit(Limit { packets, per, burst }) => steps.push(Expression::Limit {
            rate: *packets,
            seconds: seconds(*per),
            burst: *burst,
            is_over: false,
        }),
        Action::Log { prefix, level } => {
            steps.push(Expression::Log { prefix: prefix.to_string(), level: level_number(*level) });
        }
        Action::SetMark { mask, value } => {
            load_meta(steps, NFT_META_MARK);
            steps.push(Expression::Bitwise {
                from: FIRST,
                into: FIRST,
                mask: (!mask).to_ne_bytes().to_vec(),
                xor: value.to_ne_bytes().to_vec(),
            });
            steps.push(Expression::StoreMeta { key: NFT_META_MARK, from: FIRST });
        }
        Action::Trace => {
            steps.push(Expression::Load { into: FIRST, value: vec![1] });
            steps.push(Expression::StoreMeta { key: NFT_META_NFTRACE, from: FIRST });
        }
        Action::NoTrack => steps.push(Expression::NoTrack),
        Action::Lookup { end, map } => {
            load_meta(steps, name_of(*end));
            steps.push(Expression::LookupVerdict { set: set_name(map), from: FIRST });
        }
        Action::Verdict(Decision::Reject(rejection)) => {
            let (kind, code) = rejection_numbers(*rejection);
            steps.push(Expression::Reject { kind, code });
        }
        Action::Verdict(decision) => steps.extend(verdict(decision).map(Expression::Verdict)),
    }
}

/// `None` for a rejection, which is a step of its own.
fn verdict(decision: &Decision) -> Option<Verdict> {
    Some(match decision {
        Decision::Accept => Verdict::Accept,
        Decision::Drop => Verdict::Drop,
        Decision::Return => Verdict::Return,
        Decision::Jump(chain) => Verdict::Jump(chain.to_string()),
        Decision::Goto(chain) => Verdict::Goto(chain.to_string()),
        Decision::Reject(_) => return None,
    })
}

fn load_meta(steps: &mut Vec<Expression>, key: u32) {
    steps.push(Expression::LoadMeta { key, into: FIRST });
}

fn load_address(steps: &mut Vec<Expression>, version: IpVersion, side: Side) {
    let (offset, length) = address_place(version, side);
    steps.push(Expression::LoadPayload { base: NETWORK_HEADER, offset, length, into: FIRST });
}

fn load_port(steps: &mut Vec<Expression>, side: Side, into: Register) {
    let (offset, length) = port_place(side);
    steps.push(Expression::LoadPayload { base: TRANSPORT_HEADER, offset, length, into });
}

fn compare_transport(steps: &mut Vec<Expression>, offset: u32, value: Vec<u8>, negated: bool) {
    let length = u32::try_from(value.len()).unwrap_or_default();
    steps.push(Expression::LoadPayload { base: TRANSPORT_HEADER, offset, length, into: FIRST });
    compare(steps, value, negated);
}

fn compare(steps: &mut Vec<Expression>, value: Vec<u8>, negated: bool) {
    let operation = if negated { UNEQUAL } else { EQUAL };
    steps.push(Expression::Compare { from: FIRST, operation, value });
}

fn bitwise(steps: &mut Vec<Expression>, mask: Vec<u8>) {
    let xor = vec![0; mask.len()];
    steps.push(Expression::Bitwise { from: FIRST, into: FIRST, mask, xor });
}

/// Whether any of these bits is set, in a number of the host.
fn has_bits(steps: &mut Vec<Expression>, bits: u32, is_set: bool) {
    bitwise(steps, bits.to_ne_bytes().to_vec());
    compare(steps, vec![0; 4], is_set);
}

fn lookup(steps: &mut Vec<Expression>, set: &Name, is_missing: bool) {
    steps.push(Expression::Lookup { set: set_name(set), from: FIRST, is_missing });
}
