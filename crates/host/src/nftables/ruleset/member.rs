//! Members of sets and maps, to and from the kernel's bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use policy::ruleset::{AddressPort, Element as Member, Name, PortRange, SetKind, Verdict as Wanted};

use super::meta::{IFNAMSIZ, kind_of};
use crate::nftables::object::{Element, Set, Verdict};

/// A device's name with zeros behind it.
pub(super) fn device_key(name: &str) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.resize(IFNAMSIZ.max(key.len()), 0);
    key
}

pub(super) fn device_name(key: &[u8]) -> Option<Name> {
    let name = key.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_clean = key.iter().skip(name.len()).all(|byte| *byte == 0);
    std::str::from_utf8(name).ok().filter(|_| is_clean).map(Name::from)
}

/// One member takes one or two elements.
pub(super) fn elements(member: &Member) -> Vec<Element> {
    match member {
        Member::Address(address) => vec![single(bytes_of(*address))],
        Member::Network(network) => {
            let last = match network {
                IpNet::V4(network) => network.broadcast().octets().to_vec(),
                IpNet::V6(network) => network.broadcast().octets().to_vec(),
            };
            interval(bytes_of(network.network()), last)
        }
        Member::AddressPort(AddressPort { address, protocol, port }) => {
            let mut key = bytes_of(*address);
            key.extend([*protocol, 0, 0, 0]);
            key.extend(port.to_be_bytes());
            key.extend([0, 0]);
            vec![single(key)]
        }
        Member::Ports(PortRange { first, last }) => {
            interval(first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec())
        }
    }
}

fn single(key: Vec<u8>) -> Element {
    Element { key, last: None, ends_interval: false, verdict: None }
}

fn interval(first: Vec<u8>, last: Vec<u8>) -> Vec<Element> {
    // What reaches the last value of all has no end.
    let end = following(last).map(|key| Element { ends_interval: true, ..single(key) });
    [single(first)].into_iter().chain(end).collect()
}

/// The next higher value, unless it is the last one.
fn following(mut value: Vec<u8>) -> Option<Vec<u8>> {
    for byte in value.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(value);
        }
    }
    None
}

/// The next lower value.
fn preceding(mut value: Vec<u8>) -> Vec<u8> {
    for byte in value.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            break;
        }
    }
    value
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The kind of a set of ours; `None` for another one.
pub(super) fn set_kind(set: &Set) -> Option<SetKind> {
    let is_plain = !set.is_verdict_map && !set.is_anonymous && set.fields.is_empty();
    kind_of((set.key_type, set.key_length, set.has_intervals)).filter(|_| is_plain)
}

/// The members that these elements are; `None` if one of them cannot be ours.
pub(super) fn members(kind: SetKind, elements: &[Element]) -> Option<Vec<Member>> {
    if elements.iter().any(|element| element.last.is_some() || element.verdict.is_some()) {
        return None;
    }
    match kind {
        SetKind::Addresses(_) => each(elements, |key| address(key).map(Member::Address)),
        SetKind::AddressPorts(_) => each(elements, address_port),
        SetKind::Networks(_) => intervals(elements)?
            .into_iter()
            .map(|(first, last)| network(&first, &last).map(Member::Network))
            .collect(),
        SetKind::Ports => {
            let port = |value: &[u8]| value.try_into().ok().map(u16::from_be_bytes);
            let range = |(first, last): (Vec<u8>, Vec<u8>)| {
                Some(Member::Ports(PortRange { first: port(&first)?, last: port(&last)? }))
            };
            intervals(elements)?.into_iter().map(range).collect()
        }
    }
}

fn each(elements: &[Element], read: impl Fn(&[u8]) -> Option<Member>) -> Option<Vec<Member>> {
    elements.iter().map(|element| read(&element.key).filter(|_| !element.ends_interval)).collect()
}

fn address(key: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(key).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(key).ok().map(IpAddr::from))
}

fn address_port(key: &[u8]) -> Option<Member> {
    let (of_address, rest) = key.split_at_checked(key.len().checked_sub(8)?)?;
    let &[protocol, _, _, _, high, low, _, _] = rest else { return None };
    let port = u16::from_be_bytes([high, low]);
    Some(Member::AddressPort(AddressPort { address: address(of_address)?, protocol, port }))
}

/// First and last values, in order. A beginning goes with the first end behind it.
fn intervals(elements: &[Element]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let of = |ends: bool| {
        let mut keys: Vec<&Vec<u8>> = elements
            .iter()
            .filter(|element| element.ends_interval == ends)
            .map(|element| &element.key)
            .collect();
        keys.sort();
        keys
    };
    let (firsts, ends) = (of(false), of(true));
    // `nft` notes that nothing is in the set up to its first member.
    let mut ends = ends.into_iter().filter(|key| key.iter().any(|byte| *byte != 0)).peekable();
    let mut found = Vec::with_capacity(firsts.len());
    for first in firsts {
        let last = match ends.next() {
            Some(end) if end > first => preceding(end.clone()),
            Some(_) => return None,
            None => vec![u8::MAX; first.len()],
        };
        found.push((first.clone(), last));
    }
    ends.peek().is_none().then_some(found)
}

/// The network from a first to a last address, if it is one.
fn network(first: &[u8], last: &[u8]) -> Option<IpNet> {
    let (first, last) = (address(first)?, address(last)?);
    let prefix = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        _ => return None,
    };
    let network = IpNet::new(first, u8::try_from(prefix).ok()?).ok()?;
    (network.network() == first && network.broadcast() == last).then_some(network)
}

/// A map of ours: from names of devices to verdicts. `None` for another one.
pub(super) fn map(elements: &[Element]) -> Option<BTreeMap<Name, Wanted>> {
    let read = |element: &Element| {
        let is_plain = element.last.is_none() && !element.ends_interval;
        let verdict = verdict(element.verdict.as_ref()?)?;
        Some((device_name(&element.key)?, verdict)).filter(|_| is_plain)
    };
    elements.iter().map(read).collect()
}

pub(super) fn verdict(found: &Verdict) -> Option<Wanted> {
    Some(match found {
        Verdict::Accept => Wanted::Accept,
        Verdict::Drop => Wanted::Drop,
        Verdict::Return => Wanted::Return,
        Verdict::Jump(chain) => Wanted::Jump(chain.as_str().into()),
        Verdict::Goto(chain) => Wanted::Goto(chain.as_str().into()),
        Verdict::Continue | Verdict::Other(_) => return None,
    })
}
