//! Reads the kernel's objects: links, addresses, routes, neighbours. Whatever is not understood is passed over.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::Mac;
use plan::between::BETWEEN_PROTOCOL;
use plan::{Neighbour, ObservedRoute, ROUTE_PROTOCOL, Route, RouteScope, Sysctl};

use crate::netlink::message::{Attributes, read_text, read_u16, read_u32};
use crate::netlink::numbers::*;

pub(crate) const LINK_HEADER: usize = 16;
pub(crate) const ADDRESS_HEADER: usize = 8;
pub(crate) const ROUTE_HEADER: usize = 12;
pub(crate) const NEIGHBOUR_HEADER: usize = 12;
pub(crate) const NETCONF_HEADER: usize = 4;
const NEIGHBOUR_TABLE_HEADER: usize = 4;

/// What one link message says, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) peer_index: Option<u32>,
    /// The other end lies in another namespace than this one.
    pub(crate) peer_is_elsewhere: bool,
    pub(crate) alias: Option<String>,
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    pub(crate) group: u32,
    pub(crate) up: bool,
    pub(crate) running: bool,
    pub(crate) settings: Settings,
}

/// Those settings of a device that a link message carries and that matter to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings([Option<i32>; Settings::KNOWN.len()]);

impl Settings {
    /// Family, name below `net/ipv*/conf/DEVICE/`, and the position in the kernel's list, which never changes.
    const KNOWN: [(u8, &str, usize); 9] = [
        (AF_INET, "forwarding", 0),
        (AF_INET, "proxy_arp", 2),
        (AF_INET, "rp_filter", 7),
        (AF_INET, "route_localnet", 25),
        (AF_INET6, "forwarding", 0),
        (AF_INET6, "accept_ra", 3),
        (AF_INET6, "proxy_ndp", 22),
        (AF_INET6, "disable_ipv6", 26),
        (AF_INET6, "accept_dad", 27),
    ];

    /// The value of `net/ipv*/conf/DEVICE/NAME`; `None` for any other path.
    pub(crate) fn get(&self, path: &str, device: &str) -> Option<i32> {
        let (family, name) = setting_of(path, device)?;
        let known = Settings::KNOWN.iter().zip(self.0);
        known.into_iter().find(|((of, called, _), _)| (*of, *called) == (family, name))?.1
    }

    /// The number by which a link message sets `net/ipv4/conf/DEVICE/NAME`, where it can.
    pub(crate) fn number(path: &str, device: &str) -> Option<u16> {
        let (family, name) = setting_of(path, device)?;
        let known = Settings::KNOWN.iter().find(|(of, called, _)| (*of, *called) == (family, name))?;
        (family == AF_INET).then_some(known.2 as u16 + 1)
    }

    /// Under the paths that they have while the device is called `device`.
    pub(crate) fn all(&self, device: &str) -> Vec<Sysctl> {
        let sysctl = |((family, name, _), value): (&(u8, &str, usize), Option<i32>)| {
            let family = if *family == AF_INET { "ipv4" } else { "ipv6" };
            Some(Sysctl { path: format!("net/{family}/conf/{device}/{name}"), value: value?.to_string() })
        };
        Settings::KNOWN.iter().zip(self.0).filter_map(sysctl).collect()
    }

    fn read(&mut self, specific: &[u8]) {
        for (family, inside) in Attributes(specific) {
            for (kind, values) in Attributes(inside) {
                let is_list =
                    matches!((family as u8, kind), (AF_INET, IFLA_INET_CONF) | (AF_INET6, IFLA_INET6_CONF));
                for ((of, _, position), value) in Settings::KNOWN.iter().zip(&mut self.0) {
                    if is_list && u16::from(*of) == family {
                        *value = read_u32(values, position * 4).map(u32::cast_signed);
                    }
                }
            }
        }
    }
}

fn setting_of<'a>(path: &'a str, device: &str) -> Option<(u8, &'a str)> {
    let (family, rest) = match path.strip_prefix("net/ipv4/conf/") {
        Some(rest) => (AF_INET, rest),
        None => (AF_INET6, path.strip_prefix("net/ipv6/conf/")?),
    };
    let (of, name) = rest.split_once('/')?;
    (of == device).then_some((family, name))
}

pub(crate) fn read_link(kind: u16, body: &[u8]) -> Option<Link> {
    if !matches!(kind, RTM_NEWLINK | RTM_DELLINK) {
        return None;
    }
    let mut link = Link {
        index: read_u32(body, 4)?,
        name: String::new(),
        peer_index: None,
        peer_is_elsewhere: false,
        alias: None,
        mac: None,
        mtu: 0,
        group: 0,
        up: read_u32(body, 8)? & IFF_UP != 0,
        running: false,
        settings: Settings::default(),
    };
    for (kind, value) in Attributes::after(body, LINK_HEADER) {
        match kind {
            IFLA_IFNAME => link.name = read_text(value),
            IFLA_LINK => link.peer_index = read_u32(value, 0),
            IFLA_LINK_NETNSID => link.peer_is_elsewhere = true,
            IFLA_IFALIAS => link.alias = Some(read_text(value)),
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(Mac),
            IFLA_MTU => link.mtu = read_u32(value, 0)?,
            IFLA_GROUP => link.group = read_u32(value, 0)?,
            IFLA_OPERSTATE => link.running = value == [IF_OPER_UP],
            IFLA_AF_SPEC => link.settings.read(value),
            _ => {}
        }
    }
    Some(link)
}

/// An address that can be used, and the index of its device.
pub(crate) fn read_address(kind: u16, body: &[u8]) -> Option<(u32, IpNet)> {
    if !matches!(kind, RTM_NEWADDR | RTM_DELADDR) {
        return None;
    }
    let (&family, &prefix, &flags) = (body.first()?, body.get(1)?, body.get(2)?);
    if kind == RTM_NEWADDR && flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0 {
        return None;
    }
    let (mut local, mut address) = (None, None);
    for (kind, value) in Attributes::after(body, ADDRESS_HEADER) {
        match kind {
            // On IPv4 the device's own address; the other one is then the far end's.
            IFA_LOCAL => local = read_ip(family, value),
            IFA_ADDRESS => address = read_ip(family, value),
            _ => {}
        }
    }
    Some((read_u32(body, 4)?, IpNet::new(local.or(address)?, prefix).ok()?))
}

/// A route of the main table, and the index of its device if it has just one. Strangers' routes that throw packets
/// away are read, too, as routes without a device: they can be in the way. Ours that lead to other nodes are not: they give
/// way to those of pods.
pub(crate) fn read_route(kind: u16, body: &[u8]) -> Option<ObservedRoute> {
    let &[family, prefix, _, _, table, protocol, scope, route_kind] = body.first_chunk()?;
    let is_clone = read_u32(body, 8)? & RTM_F_CLONED != 0;
    let throws_away = (RTN_BLACKHOLE..=RTN_PROHIBIT).contains(&route_kind) && protocol != ROUTE_PROTOCOL;
    let is_route = route_kind == RTN_UNICAST || throws_away;
    let is_between = protocol == BETWEEN_PROTOCOL;
    if !matches!(kind, RTM_NEWROUTE | RTM_DELROUTE) || !is_route || is_clone || is_between {
        return None;
    }
    let mut table = u32::from(table);
    let (mut destination, mut gateway, mut device, mut metric) = (unspecified(family)?, None, None, 0);
    for (kind, value) in Attributes::after(body, ROUTE_HEADER) {
        match kind {
            RTA_DST => destination = read_ip(family, value)?,
            RTA_GATEWAY => gateway = read_ip(family, value),
            RTA_OIF => device = read_u32(value, 0),
            RTA_PRIORITY => metric = read_u32(value, 0)?,
            RTA_TABLE => table = read_u32(value, 0)?,
            _ => {}
        }
    }
    if table != u32::from(RT_TABLE_MAIN) {
        return None;
    }
    let scope = match scope {
        RT_SCOPE_UNIVERSE => RouteScope::Universe,
        RT_SCOPE_LINK => RouteScope::Link,
        other => RouteScope::Other(other),
    };
    let destination = IpNet::new(destination, prefix).ok()?;
    let route = Route { destination, gateway, scope, protocol, metric };
    Some(ObservedRoute { device: device.filter(|_| !throws_away), route })
}

/// Whether packets to the address that was asked for end here.
pub(crate) fn is_local_route(body: &[u8]) -> bool {
    body.get(7) == Some(&RTN_LOCAL)
}

/// A neighbour's device and address, and its hardware address if the entry is permanent.
pub(crate) fn read_neighbour(kind: u16, body: &[u8]) -> Option<(u32, IpAddr, Option<Mac>)> {
    if !matches!(kind, RTM_NEWNEIGH | RTM_DELNEIGH) {
        return None;
    }
    let family = *body.first()?;
    let is_permanent = read_u16(body, 8)? & NUD_PERMANENT != 0;
    let (mut address, mut mac) = (None, None);
    for (kind, value) in Attributes::after(body, NEIGHBOUR_HEADER) {
        match kind {
            NDA_DST => address = read_ip(family, value),
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some((read_u32(body, 4)?, address?, mac.filter(|_| is_permanent)))
}

pub(crate) fn read_permanent_neighbour(kind: u16, body: &[u8]) -> Option<(u32, Neighbour)> {
    let (index, address, mac) = read_neighbour(kind, body)?;
    Some((index, Neighbour { address, mac: mac? }))
}

/// A device's index and its `proxy_delay`, in the hundredths of a second in which the file has it.
pub(crate) fn read_proxy_delay(kind: u16, body: &[u8]) -> Option<(u32, u64)> {
    let parameters = Attributes::after(body, NEIGHBOUR_TABLE_HEADER).find(|(kind, _)| *kind == NDTA_PARMS)?.1;
    let (mut index, mut delay) = (None, None);
    for (kind, value) in Attributes(parameters) {
        match kind {
            NDTPA_IFINDEX => index = read_u32(value, 0),
            NDTPA_PROXY_DELAY => delay = value.try_into().ok().map(u64::from_ne_bytes),
            _ => {}
        }
    }
    (kind == RTM_NEWNEIGHTBL).then_some((index?, delay? / 10))
}

pub(crate) fn read_ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        AF_INET6 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}

pub(crate) fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Message;

    #[test]
    fn settings_are_found_by_their_path() {
        let values: Vec<u8> = (0u32..40).flat_map(u32::to_ne_bytes).collect();
        let message =
            Message::link(RTM_NEWLINK, 7).with_text(IFLA_IFNAME, "cali1").with_nested(IFLA_AF_SPEC, |all| {
                all.with_nested(AF_INET.into(), |inside| inside.with(IFLA_INET_CONF, &values))
                    .with_nested(AF_INET6.into(), |inside| inside.with(IFLA_INET6_CONF, &values))
            });
        let link = read_link(message.kind, &message.body).unwrap();
        assert_eq!((link.index, link.name.as_str()), (7, "cali1"));
        let get = |path| link.settings.get(path, "cali1");
        assert_eq!(get("net/ipv4/conf/cali1/route_localnet"), Some(25));
        assert_eq!(get("net/ipv6/conf/cali1/accept_dad"), Some(27));
        assert_eq!(get("net/ipv4/conf/cali2/route_localnet"), None);
        assert_eq!(get("net/ipv4/neigh/cali1/proxy_delay"), None);
        assert_eq!(Settings::number("net/ipv4/conf/cali1/proxy_arp", "cali1"), Some(3));
        assert_eq!(Settings::number("net/ipv6/conf/cali1/proxy_ndp", "cali1"), None);
    }

    proptest! {
        #[test]
        fn any_object_can_be_read(
            kind in 16u16..90,
            mut body in proptest::collection::vec(any::<u8>(), 0..120),
            family in prop_oneof![Just(AF_INET), Just(AF_INET6), any::<u8>()],
        ) {
            if let Some(first) = body.first_mut() {
                *first = family;
            }
            let _ = read_link(kind, &body);
            let _ = read_address(kind, &body);
            let _ = read_route(kind, &body);
            let _ = read_neighbour(kind, &body);
            let _ = read_proxy_delay(RTM_NEWNEIGHTBL, &body);
        }
    }
}
