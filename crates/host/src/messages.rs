//! Our verbs as rtnetlink messages, each with the words for it should the kernel refuse.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use ipnet::IpNet;
use model::{DeviceName, Mac};
use plan::{Neighbour, Route};

use crate::netlink::numbers::*;
use crate::netlink::{Message, Request};

/// What a pair has from the beginning.
#[derive(Clone, Debug)]
pub(crate) struct NewPair<'a> {
    /// The node's end gets this number.
    pub(crate) index: u32,
    pub(crate) pod_device: &'a str,
    pub(crate) pod_mac: Mac,
    pub(crate) mtu: u32,
    pub(crate) pod_namespace: RawFd,
}

/// With one queue each way, which is what a veth has unless somebody asks for more. If it is not said, the kernel makes one
/// for each CPU, takes all but one back, and waits for its readers twice: nearly half of the time that a pair takes.
///
/// The answer is the new link, from which both ends' indices can be read (since Linux 6.2; before, there is none).
pub(crate) fn create_pair(name: &DeviceName, pair: &NewPair<'_>) -> Request {
    let peer = |message: Message| {
        message
            .with_text(IFLA_IFNAME, pair.pod_device)
            .with(IFLA_ADDRESS, &pair.pod_mac.0)
            .with_u32(IFLA_MTU, pair.mtu)
            .with_u32(IFLA_NUM_TX_QUEUES, 1)
            .with_u32(IFLA_NUM_RX_QUEUES, 1)
            .with(IFLA_NET_NS_FD, &pair.pod_namespace.to_ne_bytes())
    };
    let message = Message::link(RTM_NEWLINK, pair.index)
        .with_text(IFLA_IFNAME, name.as_str())
        .with(IFLA_ADDRESS, &Mac::HOST_END.0)
        .with_u32(IFLA_MTU, pair.mtu)
        .with_u32(IFLA_NUM_TX_QUEUES, 1)
        .with_u32(IFLA_NUM_RX_QUEUES, 1)
        .with_nested(IFLA_LINKINFO, |info| {
            info.with_text(IFLA_INFO_KIND, "veth")
                .with_nested(IFLA_INFO_DATA, |data| data.with_peer(VETH_INFO_PEER, peer))
        });
    let what = format!("create veth {name} with {} in the pod", pair.pod_device);
    Request::new(what, message, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO)
}

pub(crate) fn set_alias(name: &DeviceName, alias: &str) -> Request {
    let message = Message::link(RTM_SETLINK, 0)
        .with_text(IFLA_IFNAME, name.as_str())
        .with(IFLA_IFALIAS, alias.as_bytes());
    Request::new(format!("set the alias of {name}"), message, 0)
}

pub(crate) fn set_alias_of(index: u32, alias: &str) -> Request {
    let message = Message::link(RTM_SETLINK, index).with(IFLA_IFALIAS, alias.as_bytes());
    Request::new(format!("set the alias of device {index}"), message, 0)
}

/// By index: a name in the message would be the new one.
pub(crate) fn rename(index: u32, to: &DeviceName) -> Request {
    let message = Message::link(RTM_SETLINK, index).with_text(IFLA_IFNAME, to.as_str());
    Request::new(format!("name device {index} {to}"), message, 0)
}

/// Up, with these IPv4 settings.
pub(crate) fn start(device: &DeviceName, index: u32, settings: &[(u16, i32)]) -> Request {
    let mut message = Message::link_flags(RTM_SETLINK, index, IFF_UP, IFF_UP);
    let all = |message: Message| {
        let set =
            |message: Message, &(number, value): &(u16, i32)| message.with_u32(number, value.cast_unsigned());
        message.with_nested(IFLA_INET_CONF, |message| settings.iter().fold(message, set))
    };
    if !settings.is_empty() {
        message = message.with_nested(IFLA_AF_SPEC, |message| message.with_nested(AF_INET.into(), all));
    }
    Request::new(format!("start {device}"), message, 0)
}

/// `net/ipv4/neigh/DEVICE/proxy_delay`, in the hundredths of a second in which it is written there.
pub(crate) fn set_proxy_delay(device: &DeviceName, index: u32, hundredths: u64) -> Request {
    let message = Message::new(RTM_SETNEIGHTBL, &[AF_INET, 0, 0, 0])
        .with_text(NDTA_NAME, "arp_cache")
        .with_nested(NDTA_PARMS, |parameters| {
            parameters.with_u32(NDTPA_IFINDEX, index).with_u64(NDTPA_PROXY_DELAY, hundredths * 10)
        });
    Request::new(format!("set the proxy delay of {device}"), message, 0)
}

/// The settings that all devices share, or those that new ones start with.
pub(crate) fn get_settings(of: u32) -> Request {
    let message = Message::new(RTM_GETNETCONF, &[AF_INET, 0, 0, 0]).with_u32(NETCONFA_IFINDEX, of);
    Request::new("look at the settings of all devices", message, 0)
}

/// The settings of all devices for IPv4 neighbours.
pub(crate) fn list_neighbour_tables() -> Message {
    Message::new(RTM_GETNEIGHTBL, &[AF_INET, 0, 0, 0])
}

pub(crate) fn set_up(device: &DeviceName, index: u32) -> Request {
    let message = Message::link_flags(RTM_SETLINK, index, IFF_UP, IFF_UP);
    Request::new(format!("set {device} up"), message, 0)
}

pub(crate) fn set_down(name: &str, index: u32) -> Request {
    let message = Message::link_flags(RTM_SETLINK, index, 0, IFF_UP);
    Request::new(format!("set {name} down"), message, 0)
}

/// Into another namespace, under this name.
pub(crate) fn move_link(name: &str, index: u32, to: &DeviceName, namespace: RawFd) -> Request {
    let message = Message::link(RTM_SETLINK, index)
        .with_text(IFLA_IFNAME, to.as_str())
        .with(IFLA_NET_NS_FD, &namespace.to_ne_bytes());
    Request::new(format!("bring {name} back"), message, 0)
}

/// Another name and, if given, alias.
pub(crate) fn set_aside(name: &str, index: u32, to: &DeviceName, alias: Option<&str>) -> Request {
    let mut message = Message::link(RTM_SETLINK, index).with_text(IFLA_IFNAME, to.as_str());
    if let Some(alias) = alias {
        message = message.with(IFLA_IFALIAS, alias.as_bytes());
    }
    Request::new(format!("set {name} aside as {to}"), message, 0)
}

pub(crate) fn set_mac(device: &DeviceName, index: u32, mac: Mac) -> Request {
    let message = Message::link(RTM_SETLINK, index).with(IFLA_ADDRESS, &mac.0);
    Request::new(format!("give {device} hardware address {mac}"), message, 0)
}

pub(crate) fn set_mtu(device: &DeviceName, index: u32, mtu: u32) -> Request {
    let message = Message::link(RTM_SETLINK, index).with_u32(IFLA_MTU, mtu);
    Request::new(format!("give {device} MTU {mtu}"), message, 0)
}

pub(crate) fn delete_link(name: &str, index: u32) -> Request {
    Request::new(format!("delete {name}"), Message::link(RTM_DELLINK, index), 0)
}

pub(crate) fn set_group(name: &str, index: u32, group: u32) -> Request {
    let message = Message::link(RTM_SETLINK, index).with_u32(IFLA_GROUP, group);
    Request::new(format!("put {name} into group {group}"), message, 0)
}

/// Every link of the group, at once.
pub(crate) fn delete_group(group: u32) -> Request {
    let message = Message::link(RTM_DELLINK, 0).with_u32(IFLA_GROUP, group);
    Request::new("delete the links that wait for it", message, 0)
}

pub(crate) fn get_link_by_index(index: u32) -> Request {
    let message = Message::link(RTM_GETLINK, index).with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    Request::new(format!("look at device {index}"), message, 0)
}

/// All links of the namespace.
pub(crate) fn list_links() -> Message {
    Message::link(RTM_GETLINK, 0).with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
}

pub(crate) fn get_link(device: &DeviceName) -> Request {
    let message = Message::link(RTM_GETLINK, 0)
        .with_text(IFLA_IFNAME, device.as_str())
        .with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    Request::new(format!("look at {device}"), message, 0)
}

/// All veths of the namespace.
pub(crate) fn list_veths() -> Message {
    Message::link(RTM_GETLINK, 0)
        .with_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
        .with_nested(IFLA_LINKINFO, |info| info.with_text(IFLA_INFO_KIND, "veth"))
}

pub(crate) fn add_address(device: &DeviceName, index: u32, address: IpNet) -> Request {
    // Nobody else can have it, and a second of looking for somebody would be lost.
    let flags = if address.addr().is_ipv6() { IFA_F_NODAD } else { 0 };
    let message = address_message(RTM_NEWADDR, family(address.addr()), address.prefix_len(), flags, index)
        .with(IFA_LOCAL, &octets(address.addr()))
        .with(IFA_ADDRESS, &octets(address.addr()));
    let what = format!("add address {address} to {device}");
    // Replaces: the kernel gives some addresses by itself, as soon as a device is up.
    Request::new(what, message, NLM_F_CREATE | NLM_F_REPLACE)
}

pub(crate) fn delete_address(device: &str, index: u32, address: IpNet) -> Request {
    let message = address_message(RTM_DELADDR, family(address.addr()), address.prefix_len(), 0, index)
        .with(IFA_LOCAL, &octets(address.addr()));
    Request::new(format!("remove address {address} from {device}"), message, 0)
}

pub(crate) fn list_addresses(index: u32) -> Message {
    address_message(RTM_GETADDR, AF_UNSPEC, 0, 0, index)
}

/// `struct ifaddrmsg`.
fn address_message(kind: u16, family: u8, prefix: u8, flags: u8, index: u32) -> Message {
    let mut header = [family, prefix, flags, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&index.to_ne_bytes());
    Message::new(kind, &header)
}

/// Never replaces: a route for the same destination that leads elsewhere is somebody's.
pub(crate) fn add_route(device: &DeviceName, index: u32, route: &Route) -> Request {
    let what = format!("add route {route} dev {device}");
    Request::new(
        what,
        route_message(RTM_NEWROUTE, &Route { device: Some(index), ..*route }),
        NLM_F_CREATE | NLM_F_EXCL,
    )
}

/// Takes nothing away either: among IPv4 routes with one metric this one comes first.
pub(crate) fn prepend_route(device: &DeviceName, index: u32, route: &Route) -> Request {
    let what = format!("put route {route} dev {device} in front of others");
    Request::new(what, route_message(RTM_NEWROUTE, &Route { device: Some(index), ..*route }), NLM_F_CREATE)
}

pub(crate) fn delete_route(route: &Route) -> Request {
    Request::new(format!("delete route {route}"), route_message(RTM_DELROUTE, route), 0)
}

pub(crate) fn route_message(kind: u16, route: &Route) -> Message {
    let (destination, prefix) = (route.destination.addr(), route.destination.prefix_len());
    let (protocol, scope, route_kind) = (route.protocol, route.scope, route.kind.number());
    let mut header =
        [family(destination), prefix, 0, 0, RT_TABLE_MAIN, protocol, scope, route_kind, 0, 0, 0, 0];
    let flags = if route.is_onlink { RTNH_F_ONLINK } else { 0 };
    header[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut message = Message::new(kind, &header);
    if prefix > 0 {
        message = message.with(RTA_DST, &octets(destination));
    }
    if let Some(gateway) = route.gateway {
        message = message.with(RTA_GATEWAY, &octets(gateway));
    }
    if let Some(source) = route.source {
        message = message.with(RTA_PREFSRC, &octets(source));
    }
    if route.metric > 0 {
        message = message.with_u32(RTA_PRIORITY, route.metric);
    }
    match route.device {
        Some(device) => message.with_u32(RTA_OIF, device),
        None => message,
    }
}

/// The families that routes can be listed of: a kernel without IPv6 would refuse to.
pub(crate) fn families() -> impl Iterator<Item = u8> {
    let has_ipv6 = std::path::Path::new("/proc/sys/net/ipv6").exists();
    [AF_INET, AF_INET6].into_iter().take(if has_ipv6 { 2 } else { 1 })
}

/// The main table's routes of one family.
pub(crate) fn list_routes(family: u8) -> Message {
    // Only what the kernel filters by may be set.
    Message::new(RTM_GETROUTE, &[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .with_u32(RTA_TABLE, RT_TABLE_MAIN.into())
}

/// The route that a packet to this network would take. For the default route, that is a packet to an address that is
/// nobody's: the documentation's.
pub(crate) fn match_route(destination: IpNet) -> Request {
    match destination.addr() {
        IpAddr::V4(_) if destination.prefix_len() == 0 => match_address(Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) if destination.prefix_len() == 0 => {
            match_address(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
        address => match_address(address),
    }
}

fn match_address(address: IpAddr) -> Request {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let mut header = [family(address), prefix, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let message = Message::new(RTM_GETROUTE, &header).with(RTA_DST, &octets(address));
    Request::new(format!("look up the route to {address}"), message, 0)
}

/// The same for a packet that arrives on a device: is it for us?
pub(crate) fn match_local(address: IpAddr, index: u32) -> Request {
    let Request { what, message, flags } = match_address(address);
    // IPv4 knows its own addresses on all devices, and would look for a way out of this one.
    let message = if address.is_ipv6() { message.with_u32(RTA_OIF, index) } else { message };
    Request { what, message, flags }
}

/// Replaces, because the kernel makes entries of its own as soon as a packet passes.
pub(crate) fn set_neighbour(device: &DeviceName, index: u32, neighbour: &Neighbour) -> Request {
    let message = neighbour_message(RTM_NEWNEIGH, family(neighbour.address), index, NUD_PERMANENT)
        .with(NDA_DST, &octets(neighbour.address))
        .with(NDA_LLADDR, &neighbour.mac.0);
    let what = format!("set neighbour {neighbour} dev {device}");
    Request::new(what, message, NLM_F_CREATE | NLM_F_REPLACE)
}

pub(crate) fn delete_neighbour(device: &DeviceName, index: u32, address: IpAddr) -> Request {
    let message = neighbour_message(RTM_DELNEIGH, family(address), index, 0).with(NDA_DST, &octets(address));
    Request::new(format!("delete neighbour {address} dev {device}"), message, 0)
}

pub(crate) fn get_neighbour(device: &DeviceName, index: u32, address: IpAddr) -> Request {
    let message = neighbour_message(RTM_GETNEIGH, family(address), index, 0).with(NDA_DST, &octets(address));
    Request::new(format!("look at neighbour {address} dev {device}"), message, 0)
}

/// All neighbours, or those on one device.
pub(crate) fn list_neighbours(index: Option<u32>) -> Message {
    let message = neighbour_message(RTM_GETNEIGH, AF_UNSPEC, 0, 0);
    match index {
        Some(index) => message.with_u32(NDA_IFINDEX, index),
        None => message,
    }
}

/// Addresses that the node answers for.
pub(crate) fn list_proxies() -> Message {
    let mut message = neighbour_message(RTM_GETNEIGH, AF_UNSPEC, 0, 0);
    message.body[10] = NTF_PROXY;
    message
}

/// `struct ndmsg`.
pub(crate) fn neighbour_message(kind: u16, family: u8, index: u32, state: u16) -> Message {
    let mut header = [family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    Message::new(kind, &header)
}

pub(crate) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { AF_INET6 }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
