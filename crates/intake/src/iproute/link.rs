//! `ip link` and `ip addr`: a head line per device, then its details and addresses.

use evidence::Sighted;
use evidence::kernel::{Address, Link, Vxlan};

/// `57: cali69de609d5af@if3: <BROADCAST,UP> mtu 1500 qdisc noqueue state UP …`
pub(super) fn head(text: &str) -> Option<Link> {
    let (index, rest) = text.trim_start().split_once(": ")?;
    let index = index.parse().ok()?;
    let (name, rest) = rest.split_once(": ")?;
    let (flags, rest) = rest.strip_prefix('<')?.split_once('>')?;
    let (name, peer) = name.split_once('@').unwrap_or((name, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let mut link = Link {
        name: name.to_owned(),
        index: Some(index),
        peer_index: peer.strip_prefix("if").and_then(|index| index.parse().ok()),
        mtu: after(&words, "mtu").and_then(|word| word.parse().ok()),
        is_up: Some(flags.split(',').any(|flag| flag == "UP")),
        is_running: Some(flags.split(',').any(|flag| flag == "LOWER_UP")),
        master: after(&words, "master").map(str::to_owned),
        ..Link::default()
    };
    link.kind = link.peer_index.map(|_| "veth".to_owned());
    Some(link)
}

/// Lines below the head that say more about the device. `false`: this is none.
pub(super) fn detail(text: &str, link: Option<&mut Sighted<Link>>) -> bool {
    let Some(link) = link.map(|link| &mut link.seen) else { return false };
    let words: Vec<&str> = text.split_whitespace().collect();
    let Some(first) = words.first() else { return false };
    if !text.starts_with(' ') {
        return false;
    }
    if first.starts_with("link/") {
        link.mac = words.get(1).and_then(|word| word.parse().ok());
        if words.contains(&"link-netnsid") || words.contains(&"link-netns") {
            link.has_peer_elsewhere = Some(true);
        }
        return true;
    }
    match *first {
        "alias" => link.alias = Some(words.get(1..).unwrap_or_default().join(" ")),
        "veth" | "bridge" | "ipip" | "tun" | "bond" | "wireguard" => link.kind = Some((*first).to_owned()),
        "vxlan" => {
            link.kind = Some("vxlan".to_owned());
            link.vxlan = Some(Vxlan {
                vni: after(&words, "id").and_then(|word| word.parse().ok()),
                port: after(&words, "dstport").and_then(|word| word.parse().ok()),
                local: after(&words, "local").and_then(|word| word.parse().ok()),
                parent: after(&words, "dev").map(str::to_owned),
            });
        }
        "valid_lft" | "RX:" | "TX:" | "promiscuity" | "altname" | "bridge_slave" | "bond_slave" | "vlan" => {}
        // Counters, below their headings.
        _ if words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_digit())) => {}
        _ => return false,
    }
    true
}

/// `inet 172.17.73.66/22 brd … scope global ens18`. After a `grep` the device is only at the end of the line.
pub(super) fn address(text: &str, device: Option<&str>) -> Option<Address> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (family, net) = (words.first()?, words.get(1)?);
    if !matches!(*family, "inet" | "inet6") {
        return None;
    }
    let net = net.parse().or_else(|_| net.parse::<std::net::IpAddr>().map(ipnet::IpNet::from)).ok()?;
    let named = words.last().filter(|word| !is_flag(word) && words.len() > 3).copied();
    let device = if *family == "inet6" { device.or(named) } else { named.or(device) };
    Some(Address {
        // A label of an alias address: `eth0:1`.
        device: device?.split(':').next().unwrap_or_default().to_owned(),
        net,
        scope: after(&words, "scope").unwrap_or_default().to_owned(),
        is_secondary: words.contains(&"secondary"),
        is_duplicate: words.contains(&"dadfailed"),
    })
}

fn is_flag(word: &str) -> bool {
    const FLAGS: &str = "global link host secondary dynamic noprefixroute tentative dadfailed deprecated \
                         mngtmpaddr temporary nodad permanent";
    FLAGS.split(' ').any(|flag| flag == word)
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    let at = words.iter().position(|found| *found == word)?;
    words.get(at + 1).copied()
}
