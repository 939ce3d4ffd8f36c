//! Reads the kernel's objects: links, addresses, routes, neighbours. Whatever is not understood is passed over.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{IpVersion, Mac};
use plan::between::BETWEEN_PROTOCOL;
use plan::{DeviceSetting, DeviceSettings, Link, Neighbour, ROUTE_PROTOCOL, Route, RouteKind, Vxlan};

use crate::netlink::message::{Attributes, read_text, read_u16, read_u32};
use crate::netlink::numbers::*;
use crate::survey::read;

pub(crate) const LINK_HEADER: usize = 16;
pub(crate) const ADDRESS_HEADER: usize = 8;
pub(crate) const ROUTE_HEADER: usize = 12;
pub(crate) const NEIGHBOUR_HEADER: usize = 12;
pub(crate) const NETCONF_HEADER: usize = 4;
const NEIGHBOUR_TABLE_HEADER: usize = 4;

/// The number by which a link message sets the setting at a path, where it can: that is with IPv4.
pub(crate) fn setting_number(path: &str, device: &str) -> Option<u16> {
    let (setting, of) = DeviceSetting::at(path)?;
    let is_settable = setting.version() == IpVersion::V4 && of == device;
    setting.position().filter(|_| is_settable).map(|position| position as u16 + 1)
}

fn read_settings(specific: &[u8], settings: &mut DeviceSettings) {
    for (family, inside) in Attributes(specific) {
        for (kind, values) in Attributes(inside) {
            let version = match (family as u8, kind) {
                (AF_INET, IFLA_INET_CONF) => IpVersion::V4,
                (AF_INET6, IFLA_INET6_CONF) => IpVersion::V6,
                _ => continue,
            };
            for setting in DeviceSetting::ALL.into_iter().filter(|setting| setting.version() == version) {
                if let Some(position) = setting.position() {
                    settings.set(setting, read_u32(values, position * 4).map(u32::cast_signed));
                }
            }
        }
    }
}

pub(crate) fn read_link(kind: u16, body: &[u8]) -> Option<Link> {
    if !matches!(kind, RTM_NEWLINK | RTM_DELLINK) {
        return None;
    }
    let (index, up) = (read_u32(body, 4)?, read_u32(body, 8)? & IFF_UP != 0);
    let mut link = Link { index, up, ..Link::default() };
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
            IFLA_MASTER => link.master = read_u32(value, 0),
            IFLA_LINKINFO => read_info(value, &mut link),
            IFLA_AF_SPEC => read_settings(value, &mut link.settings),
            _ => {}
        }
    }
    Some(link)
}

fn read_info(info: &[u8], link: &mut Link) {
    let mut data: &[u8] = &[];
    for (kind, value) in Attributes(info) {
        match kind {
            IFLA_INFO_KIND => link.kind = Some(read_text(value)),
            IFLA_INFO_DATA => data = value,
            _ => {}
        }
    }
    if link.kind.as_deref() == Some("vxlan") {
        link.vxlan = Some(read_vxlan(data));
    }
}

fn read_vxlan(data: &[u8]) -> Vxlan {
    let mut vxlan = Vxlan::default();
    for (kind, value) in Attributes(data) {
        match kind {
            IFLA_VXLAN_ID => vxlan.vni = read_u32(value, 0),
            IFLA_VXLAN_LINK => vxlan.parent = read_u32(value, 0).filter(|index| *index != 0),
            IFLA_VXLAN_LOCAL => vxlan.local = read_ip(AF_INET, value),
            IFLA_VXLAN_LOCAL6 => vxlan.local = read_ip(AF_INET6, value),
            IFLA_VXLAN_LEARNING => vxlan.learns = value.first().is_some_and(|flag| *flag != 0),
            // In the order of the network, unlike nearly everything else.
            IFLA_VXLAN_PORT => vxlan.port = value.first_chunk().map(|port| u16::from_be_bytes(*port)),
            _ => {}
        }
    }
    vxlan
}

/// An address that can be used, and the index of its device.
pub(crate) fn read_address(kind: u16, body: &[u8]) -> Option<(u32, IpNet)> {
    let held = read::address(kind, body)?;
    let is_unfit = kind == RTM_NEWADDR && body.get(2)? & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0;
    (!is_unfit).then_some((held.index, held.net))
}

/// A route of the main table.
pub(crate) fn read_route(kind: u16, body: &[u8]) -> Option<Route> {
    let &[family, prefix, _, _, table, protocol, scope, route_kind] = body.first_chunk()?;
    let flags = read_u32(body, 8)?;
    if !matches!(kind, RTM_NEWROUTE | RTM_DELROUTE) || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let (mut table, mut destination) = (u32::from(table), unspecified(family)?);
    let mut route = Route {
        kind: RouteKind::of(route_kind),
        protocol,
        scope,
        metric: 0,
        is_onlink: flags & RTNH_F_ONLINK != 0,
        is_dead: flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) != 0,
        ..Route::to(IpNet::from(destination))
    };
    for (kind, value) in Attributes::after(body, ROUTE_HEADER) {
        route.has_more |= matches!(kind, RTA_METRICS | RTA_MULTIPATH | RTA_VIA | RTA_ENCAP | RTA_NH_ID);
        match kind {
            RTA_DST => destination = read_ip(family, value)?,
            RTA_GATEWAY => route.gateway = read_ip(family, value),
            RTA_VIA => route.gateway = read_via(value),
            RTA_OIF => route.device = read_u32(value, 0),
            RTA_PREFSRC => route.source = read_ip(family, value),
            RTA_PRIORITY => route.metric = read_u32(value, 0)?,
            RTA_TABLE => table = read_u32(value, 0)?,
            _ => {}
        }
    }
    // Of a black hole the kernel says lo, which means nothing.
    route.device = route.device.filter(|_| !route.kind.leads_nowhere());
    route.destination = IpNet::new(destination, prefix).ok()?;
    (table == u32::from(RT_TABLE_MAIN)).then_some(route)
}

/// A gateway of another family than the destination's: the family, then the address.
pub(crate) fn read_via(value: &[u8]) -> Option<IpAddr> {
    read_ip(u8::try_from(read_u16(value, 0)?).ok()?, value.get(2..)?)
}

/// A route that concerns pods. Strangers' routes that throw packets away do: they can be in the way. Ours that lead to other
/// nodes do not: they give way to those of pods.
pub(crate) fn read_pod_route(kind: u16, body: &[u8]) -> Option<Route> {
    let route = read_route(kind, body)?;
    let matters = match route.kind {
        RouteKind::Unicast => route.protocol != BETWEEN_PROTOCOL,
        kind => kind.leads_nowhere() && ![ROUTE_PROTOCOL, BETWEEN_PROTOCOL].contains(&route.protocol),
    };
    matters.then_some(route)
}

/// Whether packets to the address that was asked for end here.
pub(crate) fn is_local_route(body: &[u8]) -> bool {
    body.get(7) == Some(&RTN_LOCAL)
}

/// A neighbour's device and address, and its hardware address if the entry is permanent.
pub(crate) fn read_neighbour(kind: u16, body: &[u8]) -> Option<(u32, IpAddr, Option<Mac>)> {
    let known = read::neighbour(kind, body)?;
    Some((known.index, known.address, known.mac.filter(|_| known.state & NUD_PERMANENT != 0)))
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

/// What the neighbour table says, which no link message carries. In hundredths of a second.
pub(crate) fn set_proxy_delay(settings: &mut DeviceSettings, delay: Option<u64>) {
    settings.set(DeviceSetting::ProxyDelay, delay.and_then(|delay| i32::try_from(delay).ok()));
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
        let get = |path| link.settings.at(path, "cali1");
        assert_eq!(get("net/ipv4/conf/cali1/route_localnet"), Some(25));
        assert_eq!(get("net/ipv6/conf/cali1/accept_dad"), Some(27));
        assert_eq!(get("net/ipv4/conf/cali2/route_localnet"), None);
        assert_eq!(get("net/ipv4/neigh/cali1/proxy_delay"), None);
        assert_eq!(setting_number("net/ipv4/conf/cali1/proxy_arp", "cali1"), Some(3));
        assert_eq!(setting_number("net/ipv6/conf/cali1/proxy_ndp", "cali1"), None);
    }

    #[test]
    fn a_vxlan_device_is_read() {
        let message =
            Message::link(RTM_NEWLINK, 7).with_u32(IFLA_MASTER, 3).with_nested(IFLA_LINKINFO, |info| {
                info.with_text(IFLA_INFO_KIND, "vxlan").with_nested(IFLA_INFO_DATA, |data| {
                    data.with_u32(IFLA_VXLAN_ID, 4096)
                        .with(IFLA_VXLAN_PORT, &4789u16.to_be_bytes())
                        .with(IFLA_VXLAN_LOCAL, &[10, 0, 0, 1])
                })
            });
        let link = read_link(message.kind, &message.body).unwrap();
        let vxlan = link.vxlan.unwrap();
        assert_eq!((vxlan.vni, vxlan.port, link.master), (Some(4096), Some(4789), Some(3)));
        assert_eq!(vxlan.local, Some([10, 0, 0, 1].into()));
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
            let _ = (read_route(kind, &body), read_pod_route(RTM_NEWROUTE, &body));
            let _ = read_neighbour(kind, &body);
            let _ = read_proxy_delay(RTM_NEWNEIGHTBL, &body);
        }
    }
}
