//! Our verbs as rtnetlink messages, each with the words for it should the kernel refuse.

use std::net::IpAddr;
use std::os::fd::RawFd;

use ipnet::IpNet;
use model::{DeviceName, Mac};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use plan::{End, Neighbour, Route};

use crate::netlink::Request;

pub(crate) fn create_pair(name: &DeviceName, host: &End, pod: &End, pod_namespace: RawFd) -> Request {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(pod.device.to_string()),
        LinkAttribute::Address(pod.mac.0.to_vec()),
        LinkAttribute::Mtu(pod.mtu),
        LinkAttribute::NetNsFd(pod_namespace),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.to_string()),
        LinkAttribute::Address(host.mac.0.to_vec()),
        LinkAttribute::Mtu(host.mtu),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    let what = format!("create veth {name} with {} in the pod", pod.device);
    Request::new(what, RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
}

pub(crate) fn set_alias(name: &DeviceName, alias: &str) -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![LinkAttribute::IfName(name.to_string()), LinkAttribute::IfAlias(alias.to_owned())];
    Request::new(format!("set the alias of {name}"), RouteNetlinkMessage::SetLink(link), 0)
}

/// By index: a name in the message would be the new one.
pub(crate) fn rename(index: u32, to: &DeviceName) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![LinkAttribute::IfName(to.to_string())];
    Request::new(format!("name device {index} {to}"), RouteNetlinkMessage::SetLink(link), 0)
}

pub(crate) fn set_up(device: &DeviceName, index: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    Request::new(format!("set {device} up"), RouteNetlinkMessage::SetLink(link), 0)
}

pub(crate) fn set_mac(device: &DeviceName, index: u32, mac: Mac) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![LinkAttribute::Address(mac.0.to_vec())];
    Request::new(format!("give {device} hardware address {mac}"), RouteNetlinkMessage::SetLink(link), 0)
}

pub(crate) fn set_mtu(device: &DeviceName, index: u32, mtu: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![LinkAttribute::Mtu(mtu)];
    Request::new(format!("give {device} MTU {mtu}"), RouteNetlinkMessage::SetLink(link), 0)
}

pub(crate) fn delete_link(name: &str, index: u32) -> Request {
    let mut link = LinkMessage::default();
    link.header.index = index;
    Request::new(format!("delete {name}"), RouteNetlinkMessage::DelLink(link), 0)
}

pub(crate) fn get_link(device: &DeviceName) -> Request {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(device.to_string()),
        LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]),
    ];
    Request::new(format!("look at {device}"), RouteNetlinkMessage::GetLink(link), 0)
}

/// All veths of the namespace.
pub(crate) fn list_veths() -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
    ];
    RouteNetlinkMessage::GetLink(link)
}

pub(crate) fn add_address(device: &DeviceName, index: u32, address: IpNet) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    if address.addr().is_ipv6() {
        // Nobody else can have it, and a second of looking for somebody would be lost.
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes =
        vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    let what = format!("add address {address} to {device}");
    // Replaces: the kernel gives some addresses by itself, as soon as a device is up.
    Request::new(what, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
}

pub(crate) fn list_addresses(index: u32) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    RouteNetlinkMessage::GetAddress(message)
}

/// Never replaces: a route for the same destination that leads elsewhere is somebody's.
pub(crate) fn add_route(device: &DeviceName, index: u32, route: &Route) -> Request {
    let what = format!("add route {route} dev {device}");
    Request::new(what, RouteNetlinkMessage::NewRoute(route_message(index, route)), NLM_F_CREATE | NLM_F_EXCL)
}

pub(crate) fn delete_route(device: &DeviceName, index: u32, route: &Route) -> Request {
    let what = format!("delete route {route} dev {device}");
    Request::new(what, RouteNetlinkMessage::DelRoute(route_message(index, route)), 0)
}

fn route_message(index: u32, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.destination.addr());
    message.header.destination_prefix_length = route.destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.scope = match route.scope {
        plan::RouteScope::Universe => RouteScope::Universe,
        plan::RouteScope::Link => RouteScope::Link,
        plan::RouteScope::Other(scope) => RouteScope::from(scope),
    };
    message.header.kind = RouteType::Unicast;
    if route.destination.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route.destination.addr().into()));
    }
    if let Some(gateway) = route.gateway {
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

/// The main table's routes through one device.
pub(crate) fn list_routes(family: AddressFamily, index: u32) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.attributes =
        vec![RouteAttribute::Table(RouteHeader::RT_TABLE_MAIN.into()), RouteAttribute::Oif(index)];
    RouteNetlinkMessage::GetRoute(message)
}

/// Replaces, because the kernel makes entries of its own as soon as a packet passes.
pub(crate) fn set_neighbour(device: &DeviceName, index: u32, neighbour: &Neighbour) -> Request {
    let mut message = NeighbourMessage::default();
    message.header.family = family(neighbour.address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let destination = match neighbour.address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::LinkLayerAddress(neighbour.mac.0.to_vec()),
    ];
    let what = format!("set neighbour {neighbour} dev {device}");
    Request::new(what, RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

pub(crate) fn list_neighbours(index: u32) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.attributes = vec![NeighbourAttribute::IfIndex(index)];
    RouteNetlinkMessage::GetNeighbour(message)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
