//! Echo requests and what comes back, as bytes (RFC 792, RFC 4443).

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

const V4_REPLY: u8 = 0;
const V4_UNREACHABLE: u8 = 3;
const V4_REQUEST: u8 = 8;
const V6_UNREACHABLE: u8 = 1;
const V6_REQUEST: u8 = 128;
const V6_REPLY: u8 = 129;

const HEADER_BYTES: usize = 8;
const V4_HEADER_BYTES_MIN: usize = 20;
const V6_HEADER_BYTES: usize = 40;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;

/// What a packet says to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Echo {
        sequence: u16,
        cookie: u64,
    },
    /// With what it repeats of the request.
    Unreachable {
        sequence: u16,
        identifier: u16,
        target: IpAddr,
    },
}

/// Different for each round on a machine, so that rounds at the same time do not take each other's answers.
pub(super) fn cookie() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}

/// What the answers of "unreachable" are known by: they repeat no more than this for sure.
pub(super) fn identifier(cookie: u64) -> u16 {
    (cookie ^ cookie >> 16 ^ cookie >> 32 ^ cookie >> 48) as u16
}

pub(super) fn request(is_v4: bool, sequence: u16, cookie: u64) -> [u8; HEADER_BYTES + 8] {
    let mut packet = [0; HEADER_BYTES + 8];
    packet[0] = if is_v4 { V4_REQUEST } else { V6_REQUEST };
    packet[4..6].copy_from_slice(&identifier(cookie).to_be_bytes());
    packet[6..8].copy_from_slice(&sequence.to_be_bytes());
    packet[8..].copy_from_slice(&cookie.to_be_bytes());
    if is_v4 {
        // The kernel sums up the other version by itself.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// Reads a packet from after its IP header on. `None` if it says nothing to us.
pub(super) fn read(is_v4: bool, packet: &[u8]) -> Option<Answer> {
    let (kind, body) = (*packet.first()?, packet.get(HEADER_BYTES..)?);
    let (reply, unreachable) = if is_v4 { (V4_REPLY, V4_UNREACHABLE) } else { (V6_REPLY, V6_UNREACHABLE) };
    if kind == reply {
        let cookie = u64::from_be_bytes(body.get(..8)?.try_into().ok()?);
        return Some(Answer::Echo { sequence: number(packet, 6)?, cookie });
    }
    if kind != unreachable {
        return None;
    }
    let (target, repeated) = if is_v4 { inner_v4(body)? } else { inner_v6(body)? };
    let request = if is_v4 { V4_REQUEST } else { V6_REQUEST };
    (*repeated.first()? == request).then_some(())?;
    Some(Answer::Unreachable { sequence: number(repeated, 6)?, identifier: number(repeated, 4)?, target })
}

/// What follows an IPv4 header.
pub(super) fn after_v4_header(packet: &[u8]) -> Option<&[u8]> {
    let words = usize::from(*packet.first()? & 0x0f);
    packet.get((words * 4).max(V4_HEADER_BYTES_MIN)..)
}

/// The target of a repeated packet and what follows its header.
fn inner_v4(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let target: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (*packet.get(9)? == PROTOCOL_ICMP).then_some(())?;
    Some((Ipv4Addr::from(target).into(), after_v4_header(packet)?))
}

fn inner_v6(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let target: [u8; 16] = packet.get(24..V6_HEADER_BYTES)?.try_into().ok()?;
    // We send no extension headers.
    (*packet.get(6)? == PROTOCOL_ICMPV6).then_some(())?;
    Some((Ipv6Addr::from(target).into(), packet.get(V6_HEADER_BYTES..)?))
}

fn number(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// The sum of RFC 1071.
fn checksum(packet: &[u8]) -> u16 {
    let byte = |pair: &[u8], at: usize| u32::from(pair.get(at).copied().unwrap_or(0));
    let words = packet.chunks(2).map(|pair| byte(pair, 0) << 8 | byte(pair, 1));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COOKIE: u64 = 0x0123_4567_89ab_cdef;

    /// What a target makes of a request.
    fn reply(is_v4: bool, request: &[u8]) -> Vec<u8> {
        let mut reply = request.to_vec();
        reply[0] = if is_v4 { V4_REPLY } else { V6_REPLY };
        reply
    }

    /// What a router makes of one.
    fn unreachable(target: IpAddr, request: &[u8]) -> Vec<u8> {
        let mut packet =
            vec![if target.is_ipv4() { V4_UNREACHABLE } else { V6_UNREACHABLE }, 1, 0, 0, 0, 0, 0, 0];
        match target {
            IpAddr::V4(target) => {
                packet.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, PROTOCOL_ICMP, 0, 0, 192, 0, 2, 1]);
                packet.extend(target.octets());
            }
            IpAddr::V6(target) => {
                packet.extend([0x60, 0, 0, 0, 0, 0, PROTOCOL_ICMPV6, 64]);
                packet.extend([0; 16]);
                packet.extend(target.octets());
            }
        }
        // Routers repeat at least these eight bytes.
        packet.extend(&request[..HEADER_BYTES]);
        packet
    }

    #[test]
    fn sums_are_those_of_the_standard() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&request(true, 7, COOKIE)), 0, "a packet with its sum adds up to nothing");
    }

    #[test]
    fn what_is_no_answer_is_none() {
        assert_eq!(read(true, &request(true, 1, COOKIE)), None, "a request, as of a ping to ourselves");
        assert_eq!(read(true, &reply(true, &request(true, 1, COOKIE))[..15]), None);
        let mut other = unreachable("192.0.2.7".parse().unwrap(), &request(true, 1, COOKIE));
        other[8 + 9] = 17;
        assert_eq!(read(true, &other), None, "of a UDP packet");
    }

    proptest! {
        #[test]
        fn answers_are_known_again(sequence: u16, cookie: u64, v4: [u8; 4], v6: [u8; 16]) {
            for target in [IpAddr::from(v4), IpAddr::from(v6)] {
                let is_v4 = target.is_ipv4();
                let request = request(is_v4, sequence, cookie);
                prop_assert_eq!(read(is_v4, &reply(is_v4, &request)), Some(Answer::Echo { sequence, cookie }));
                prop_assert_eq!(
                    read(is_v4, &unreachable(target, &request)),
                    Some(Answer::Unreachable { sequence, identifier: identifier(cookie), target })
                );
            }
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..4) {
            let mut bytes = bytes;
            for is_v4 in [true, false] {
                let _ = read(is_v4, &bytes);
                let _ = after_v4_header(&bytes).and_then(|rest| read(is_v4, rest));
            }
            if let Some(first) = bytes.first_mut() {
                *first = kind;
                let _ = (read(true, &bytes), read(false, &bytes));
            }
        }
    }
}
