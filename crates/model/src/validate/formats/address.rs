//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::{Verdict, must};
use crate::Cidr;
use crate::cidr::{CidrError, parse_net};

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

/// An address, with or without a port: `10.0.0.1`, `10.0.0.1:179`, `[fd00::1]:179`.
pub fn ip_with_port(text: &str) -> Verdict {
    must(
        parse_ip_with_port(text).is_some(),
        "must be an IP address, IPv4:PORT or [IPv6]:PORT with a port from 1 to 65535",
    )
}

/// Reads what [`ip_with_port`] accepts.
pub fn parse_ip_with_port(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse() {
        return Some((address, None));
    }
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once("]:").map(|(ip, port)| (ip.parse::<Ipv6Addr>().map(IpAddr::V6), port))?
        }
        None => text.split_once(':').map(|(ip, port)| (ip.parse::<Ipv4Addr>().map(IpAddr::V4), port))?,
    };
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = port.parse().ok().filter(|port| is_number && *port > 0)?;
    Some((address.ok()?, Some(port)))
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

/// An IPv4 network without host bits.
pub fn cidr_masked_v4(text: &str) -> Verdict {
    cidr_masked(text)?;
    must(text.parse::<Cidr>().is_ok_and(|cidr| cidr.network().is_ipv4()), "must be an IPv4 network")
}

/// An IPv6 network without host bits.
pub fn cidr_masked_v6(text: &str) -> Verdict {
    cidr_masked(text)?;
    must(text.parse::<Cidr>().is_ok_and(|cidr| cidr.network().is_ipv6()), "must be an IPv6 network")
}
