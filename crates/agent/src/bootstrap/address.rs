//! Which IPv4 address this node has, as far as its own routing table tells.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use ipnet::{IpNet, Ipv4Net};

/// The source address of the default route, with the network it lies in. Nothing is sent to find out.
pub(super) fn of_default_route() -> Option<IpNet> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address that is nobody's, so only the default route leads there.
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() && !address.is_unspecified() => {
            Some(with_network(address))
        }
        _ => None,
    }
}

/// An address with the length of the network that it is on, if the kernel knows one.
pub(super) fn with_network(address: Ipv4Addr) -> IpNet {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let length = connected_networks(&routes)
        .into_iter()
        .filter(|network| network.contains(&address))
        .map(|network| network.prefix_len())
        .max();
    IpNet::new(address.into(), length.unwrap_or(32)).expect("at most 32")
}

/// Every address of this machine.
pub(super) fn own_addresses() -> Vec<Ipv4Addr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// The networks that can be reached without a gateway, out of `/proc/net/route`.
fn connected_networks(routes: &str) -> Vec<Ipv4Net> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let network = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, gateway, mask) = (number(words.get(1)?)?, number(words.get(2)?)?, number(words.get(7)?)?);
        let length = u8::try_from(mask.leading_ones()).ok()?;
        if gateway != 0 || length == 0 {
            return None;
        }
        Ipv4Net::new(Ipv4Addr::from(start), length).ok()
    };
    routes.lines().skip(1).filter_map(network).collect()
}

/// The addresses that `/proc/net/fib_trie` calls local to this machine.
fn local_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.ends_with("host LOCAL")
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn connected_networks_are_read() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let networks: Vec<String> = connected_networks(routes).iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.0.0.0/24"]);
    }

    #[test]
    fn local_addresses_are_read_once() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n\
                    Local:\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert_eq!(local_addresses(trie), ["10.0.0.7".parse::<Ipv4Addr>().unwrap()]);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "[0-9A-F\\t\\n |./-]{0,200}") {
            let _ = connected_networks(&text);
            let _ = local_addresses(&text);
        }
    }
}
