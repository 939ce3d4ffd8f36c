//! `ip -br link` and `ip -br addr`: one line per device, without its index and MTU.

use std::net::IpAddr;

use ipnet::IpNet;

use evidence::kernel::{Address, Link};

/// A device, and those of its addresses that its line shows.
pub(super) struct Brief {
    pub(super) link: Link,
    /// `None`: the line is one of links, which tells no addresses.
    pub(super) addresses: Option<Vec<Address>>,
}

/// `is_in_list`: the line above was one of these, too. Without it a device and its state alone (`docker0 DOWN`) are too
/// little to go by.
pub(super) fn read(text: &str, is_in_list: bool) -> Option<Brief> {
    let mut words = text.split_whitespace();
    let (name, state) = (words.next()?, words.next()?);
    let (is_up, is_running) = state_of(state)?;
    let (name, peer) = name.split_once('@').unwrap_or((name, ""));
    if !is_device(name) {
        return None;
    }
    let peer_index = peer.strip_prefix("if").and_then(|index| index.parse().ok());
    let kind = peer_index.map(|_| "veth".to_owned());
    let mut link = Link { name: name.to_owned(), peer_index, kind, is_up, is_running, ..Link::default() };
    let rest: Vec<&str> = words.collect();
    match rest.as_slice() {
        [] => is_in_list.then_some(Brief { link, addresses: None }),
        [mac @ .., flags] if flags.starts_with('<') && mac.len() <= 1 => {
            let flags = flags.strip_prefix('<')?.strip_suffix('>')?;
            link.mac = mac.first().and_then(|word| word.parse().ok());
            link.is_up = Some(flags.split(',').any(|flag| flag == "UP"));
            link.is_running = Some(flags.split(',').any(|flag| flag == "LOWER_UP"));
            Some(Brief { link, addresses: None })
        }
        rest => {
            let addresses = Some(addresses(rest, name)?);
            Some(Brief { link, addresses })
        }
    }
}

/// Whether a device in this state is switched on, and whether it works. `DOWN` may be switched off or lack a carrier.
fn state_of(word: &str) -> Option<(Option<bool>, Option<bool>)> {
    Some(match word {
        "UP" | "UNKNOWN" => (Some(true), Some(true)),
        "DOWN" | "NOTPRESENT" => (None, Some(false)),
        "LOWERLAYERDOWN" | "DORMANT" | "TESTING" => (Some(true), Some(false)),
        _ => return None,
    })
}

fn is_device(name: &str) -> bool {
    const CHARS_MAX: usize = 15;
    (1..=CHARS_MAX).contains(&name.len()) && !name.contains(['/', ':'])
}

/// `10.0.0.5/24 metric 100 10.8.0.1 peer 10.8.0.2/32 fe80::1/64`; `None` if there is anything else among them.
fn addresses(words: &[&str], device: &str) -> Option<Vec<Address>> {
    let mut found = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if matches!(*word, "metric" | "peer") && !found.is_empty() {
            words.next()?;
            continue;
        }
        let net = word.parse().or_else(|_| word.parse::<IpAddr>().map(IpNet::from)).ok()?;
        found.push(Address {
            device: device.to_owned(),
            net,
            scope: scope_of(net.addr()).to_owned(),
            is_secondary: false,
            is_duplicate: false,
        });
    }
    Some(found)
}

/// The line does not tell it; the kernel gives these by the address.
fn scope_of(address: IpAddr) -> &'static str {
    match address {
        address if address.is_loopback() => "host",
        IpAddr::V6(address) if address.is_unicast_link_local() => "link",
        _ => "global",
    }
}
