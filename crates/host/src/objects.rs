//! Reads the kernel's objects: links, addresses, routes, neighbours. Whatever is not understood is passed over.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{IpVersion, Mac};
use plan::between::BETWEEN_PROTOCOL;
use plan::{DeviceSetting, Neighbour, ObservedRoute, ROUTE_PROTOCOL, Route, RouteScope, Sysctl};

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

/// The settings of a device, as far as the kernel told them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings([Option<i32>; DeviceSetting::ALL.len()]);

impl Settings {
    /// The value of the setting at a path, if it is one of this device.
    pub(crate) fn get(&self, path: &str, device: &str) -> Option<i32> {
        let (setting, of) = DeviceSetting::at(path)?;
        self.0.get(setting as usize).copied().flatten().filter(|_| of == device)
    }

    /// The number by which a link message sets the setting at a path, where it can: that is with IPv4.
    pub(crate) fn number(path: &str, device: &str) -> Option<u16> {
        let (setting, of) = DeviceSetting::at(path)?;
        let is_settable = setting.version() == IpVersion::V4 && of == device;
        setting.position().filter(|_| is_settable).map(|position| position as u16 + 1)
    }

    /// Under the paths that they have while the device is called `device`.
    pub(crate) fn all(&self, device: &str) -> Vec<Sysctl> {
        let known = DeviceSetting::ALL.into_iter().zip(self.0);
        known
            .filter_map(|(setting, value)| {
                Some(Sysctl { path: setting.path(device), value: value?.to_string() })
            })
            .collect()
    }

    /// What the neighbour table says, which no link message carries. In hundredths of a second.
    pub(crate) fn with_proxy_delay(mut self, delay: Option<u64>) -> Settings {
        if let Some(slot) = self.0.get_mut(DeviceSetting::ProxyDelay as usize) {
            *slot = delay.and_then(|delay| i32::try_from(delay).ok());
        }
        self
    }

    fn read(&mut self, specific: &[u8]) {
        for (family, inside) in Attributes(specific) {
            for (kind, values) in Attributes(inside) {
                let version = match (family as u8, kind) {
                    (AF_INET, IFLA_INET_CONF) => IpVersion::V4,
                    (AF_INET6, IFLA_INET6_CONF) => IpVersion::V6,
                    _ => continue,
                };
                for (setting, value) in DeviceSetting::ALL.into_iter().zip(&mut self.0) {
                    if let Some(position) = setting.position().filter(|_| setting.version() == version) {
                        *value = read_u32(values, position * 4).map(u32::cast_signed);
                    }
                }
            }
        }
    }
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
