//! The formats of single values: addresses, networks, names, ports, protocols.
//!
//! Each check returns the rule that is broken, worded so that it reads after the value: "must be …".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::Value;

use crate::cidr::{CidrError, parse_net};
use crate::{Cidr, Selector};

type Verdict = Result<(), String>;

fn must(holds: bool, rule: &str) -> Verdict {
    if holds { Ok(()) } else { Err(rule.to_owned()) }
}

pub fn ip(text: &str) -> Verdict {
    must(text.parse::<IpAddr>().is_ok(), "must be an IP address")
}

pub fn ip_v4(text: &str) -> Verdict {
    must(text.parse::<Ipv4Addr>().is_ok(), "must be an IPv4 address")
}

pub fn ip_v6(text: &str) -> Verdict {
    must(text.parse::<Ipv6Addr>().is_ok(), "must be an IPv6 address")
}

/// An address with a prefix length; host bits may be set.
pub fn cidr(text: &str) -> Verdict {
    must(parse_net(text).is_some(), "must be an address with a prefix length, such as 10.0.0.0/24")
}

/// An address with a prefix length and no host bits.
pub fn cidr_masked(text: &str) -> Verdict {
    match text.parse::<Cidr>() {
        Ok(_) => Ok(()),
        Err(CidrError::HostBits { network, .. }) => {
            Err(format!("has host bits set; the network is {network}"))
        }
        Err(CidrError::Syntax(_)) => cidr(text),
    }
}

/// An address with or without a prefix length.
pub fn cidr_or_ip(text: &str) -> Verdict {
    must(parse_network(text).is_some(), "must be an IP address or network")
}

pub fn cidr_or_ip_v4(text: &str) -> Verdict {
    must(
        parse_network(text).is_some_and(|net| net.addr().is_ipv4()),
        "must be an IPv4 address, with or without a prefix length",
    )
}

pub fn cidr_or_ip_v6(text: &str) -> Verdict {
    must(
        parse_network(text).is_some_and(|net| net.addr().is_ipv6()),
        "must be an IPv6 address, with or without a prefix length",
    )
}

/// A network without host bits, or a single address.
pub fn network(text: &str) -> Verdict {
    match parse_network(text) {
        None => Err("must be an IP address or network".to_owned()),
        Some(net) if net.addr() != net.network() => {
            Err(format!("has host bits set; the network is {}", net.trunc()))
        }
        Some(_) => Ok(()),
    }
}

/// A network of exactly one address.
pub fn single_address(text: &str) -> Verdict {
    must(
        parse_network(text).is_some_and(|net| net.prefix_len() == net.max_prefix_len()),
        "must be a single address: /32 for IPv4, /128 for IPv6",
    )
}

/// An address with or without a prefix length, as Calico takes it where it wants a network.
pub fn parse_network(text: &str) -> Option<IpNet> {
    parse_net(text).or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// The form that Go's `net.ParseMAC` reads for Ethernet: six bytes with colons or dashes, or dotted.
pub fn mac(text: &str) -> Verdict {
    let is_hex =
        |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_parts = |separator: char, count: &[usize], digits: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        count.contains(&parts.len()) && parts.iter().all(|part| is_hex(part, digits))
    };
    let holds =
        of_parts(':', &[6, 8, 20], 2) || of_parts('-', &[6, 8, 20], 2) || of_parts('.', &[3, 4, 10], 4);
    must(holds, "must be a MAC address, such as ee:ee:ee:ee:ee:ee")
}

/// A DNS subdomain: what resources are named by.
pub fn name(text: &str) -> Verdict {
    if text.contains('/') {
        return Err("must not contain a slash: names are part of the record's key".to_owned());
    }
    must(
        text.split('.').all(is_label),
        "must consist of lower case letters, digits, '-' and '.', and each part must start and end with a letter or digit",
    )
}

/// One part of a DNS name, of any length.
pub(super) fn is_label(part: &str) -> bool {
    let bytes = part.as_bytes();
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
}

pub fn container_id(text: &str) -> Verdict {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    must(
        ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'),
        "must consist of letters, digits and '-', and start and end with a letter or digit",
    )
}

/// A name the kernel could give to a device.
pub fn interface(text: &str) -> Verdict {
    must(
        text == "*" || is_made_of(text, 15, "_.-"),
        "must be an interface name: at most 15 letters, digits, '_', '.' or '-'",
    )
}

/// The same; `*` stands for all interfaces of a host.
pub fn interface_or_all(text: &str) -> Verdict {
    interface(text).map_err(|rule| format!("{rule}, or '*' for all"))
}

/// Between one and `longest` letters, digits and these other characters.
pub(super) fn is_made_of(text: &str, longest: usize, others: &str) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte))
}

/// A Kubernetes port name: an IANA service name.
pub fn port_name(text: &str) -> Verdict {
    let bytes = text.as_bytes();
    let holds = (1..=15).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && bytes.iter().any(u8::is_ascii_lowercase)
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--");
    must(
        holds,
        "must be a port name: at most 15 lower case letters, digits and single '-', at least one letter",
    )
}

pub fn selector(text: &str) -> Verdict {
    match text.parse::<Selector>() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("must be a selector: {error}")),
    }
}

/// `host:<node>` or `virtual:<owner>`.
pub fn affinity(text: &str) -> Verdict {
    let owner = text.strip_prefix("host:").or_else(|| text.strip_prefix("virtual:"));
    must(
        owner.is_some_and(|owner| is_made_of(owner, usize::MAX, "_.-")),
        "must be host:NODE or virtual:OWNER",
    )
}

/// 32 bytes in base64.
pub fn wireguard_key(text: &str) -> Verdict {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let holds = text.len() == 44 && text.ends_with('=') && text.as_bytes()[..43].iter().all(is_digit);
    must(holds, "must be a WireGuard key: 32 bytes in base64")
}

pub const PROTOCOLS: &[&str] = &["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];

/// A protocol by number or by name.
pub fn protocol(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| (1..=255).contains(&number)),
        Value::String(name) => {
            PROTOCOLS.contains(&name.as_str()) || name.parse::<u8>().is_ok_and(|number| number > 0)
        }
        _ => false,
    };
    must(holds, "must be a protocol number from 1 to 255 or one of TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite")
}

/// A protocol whose packets have ports.
pub fn protocol_with_ports(value: &Value) -> Verdict {
    protocol(value)?;
    let holds = match value {
        Value::String(name) => matches!(name.as_str(), "TCP" | "UDP" | "SCTP" | "6" | "17" | "132"),
        _ => matches!(value.as_u64(), Some(6 | 17 | 132)),
    };
    must(holds, "must be a protocol that has ports: TCP, UDP or SCTP")
}

/// A number up to 2^32-1, or two 16 bit numbers joined by a dot.
pub fn as_number(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
        Value::String(text) => parse_as_number(text).is_some(),
        _ => false,
    };
    must(holds, "must be an AS number: 0 to 4294967295, or two numbers up to 65535 joined by a dot")
}

/// Reads an AS number written as text, in either form.
pub fn parse_as_number(text: &str) -> Option<u32> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        None if digits(text) => text.parse().ok(),
        Some((high, low)) if digits(high) && digits(low) => {
            let (high, low): (u16, u16) = (high.parse().ok()?, low.parse().ok()?);
            Some(u32::from(high) << 16 | u32::from(low))
        }
        _ => None,
    }
}

const DSCP_NAMES: &[&str] = &[
    "DF", "EF", "AF11", "AF12", "AF13", "AF21", "AF22", "AF23", "AF31", "AF32", "AF33", "AF41", "AF42",
    "AF43", "CS0", "CS1", "CS2", "CS3", "CS4", "CS5", "CS6",
];

/// A DSCP mark by number or by name.
pub fn dscp(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| number <= 63),
        Value::String(name) => {
            let name = name.trim().to_ascii_uppercase();
            DSCP_NAMES.contains(&name.as_str()) || name.parse::<u8>().is_ok_and(|number| number <= 63)
        }
        _ => false,
    };
    must(holds, "must be a DSCP value: 0 to 63, DF, EF, AFxy or CSx")
}
