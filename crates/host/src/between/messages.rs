//! Routes to other nodes and the ends of tunnels as rtnetlink messages.

use std::net::IpAddr;

use model::{IpVersion, Mac};
use plan::between::{BETWEEN_PROTOCOL, IPIP_DEVICE, VxlanDevice};
use plan::{Route, RouteKind};

use crate::messages::{family, neighbour_message, octets, route_message};
use crate::netlink::numbers::*;
use crate::netlink::{Message, Request};

pub(super) fn create_vxlan(device: &VxlanDevice) -> Request {
    let data = |data: Message| {
        let local = match device.version {
            IpVersion::V4 => IFLA_VXLAN_LOCAL,
            IpVersion::V6 => IFLA_VXLAN_LOCAL6,
        };
        data.with_u32(IFLA_VXLAN_ID, device.vni)
            .with_u32(IFLA_VXLAN_LINK, device.parent)
            .with(local, &octets(device.local))
            .with(IFLA_VXLAN_PORT, &device.port.to_be_bytes())
            // Where packets come from is known from the records.
            .with(IFLA_VXLAN_LEARNING, &[0])
    };
    let message = Message::link(RTM_NEWLINK, 0)
        .with_text(IFLA_IFNAME, device.name())
        .with(IFLA_ADDRESS, &device.mac.0)
        .with_u32(IFLA_MTU, device.mtu)
        .with_nested(IFLA_LINKINFO, |info| {
            info.with_text(IFLA_INFO_KIND, "vxlan").with_nested(IFLA_INFO_DATA, data)
        });
    Request::new(format!("create {}", device.name()), message, NLM_F_CREATE | NLM_F_EXCL)
}

pub(super) fn create_ipip() -> Request {
    let message = Message::link(RTM_NEWLINK, 0)
        .with_text(IFLA_IFNAME, IPIP_DEVICE)
        .with_nested(IFLA_LINKINFO, |info| info.with_text(IFLA_INFO_KIND, "ipip"));
    Request::new(format!("create {IPIP_DEVICE}"), message, NLM_F_CREATE | NLM_F_EXCL)
}

/// In front of others of the same metric, or instead of one.
pub(super) fn put_route(route: &Route, flags: u16) -> Request {
    Request::new(format!("set route {route}"), route_message(RTM_NEWROUTE, route), NLM_F_CREATE | flags)
}

/// Of one of a sort that we do not make, whatever has its destination and metric.
pub(super) fn delete_route(route: &Route) -> Request {
    let (kind, gateway) = match is_odd(route) {
        true => (RouteKind::Other, None),
        false => (route.kind, route.gateway),
    };
    let meant = Route { kind, gateway, scope: RT_SCOPE_NOWHERE, source: None, ..*route };
    let what = format!("delete route {}", route.destination);
    Request::new(what, route_message(RTM_DELROUTE, &meant), 0)
}

/// Several next hops, or of a sort that we do not make.
pub(super) fn is_odd(route: &Route) -> bool {
    route.kind != RouteKind::Blackhole && (route.kind != RouteKind::Unicast || route.device.is_none())
}

/// Those of the main table and one family with our protocol.
pub(super) fn list_routes(family: u8) -> Message {
    Message::new(RTM_GETROUTE, &[family, 0, 0, 0, 0, BETWEEN_PROTOCOL, 0, 0, 0, 0, 0, 0])
        .with_u32(RTA_TABLE, RT_TABLE_MAIN.into())
}

pub(super) fn put_neighbour(index: u32, address: IpAddr, mac: Mac) -> Request {
    let message = neighbour_message(RTM_NEWNEIGH, family(address), index, NUD_PERMANENT)
        .with(NDA_DST, &octets(address))
        .with(NDA_LLADDR, &mac.0);
    Request::new(format!("set tunnel end {address} at {mac}"), message, NLM_F_CREATE | NLM_F_REPLACE)
}

pub(super) fn delete_neighbour(index: u32, address: IpAddr) -> Request {
    let message = neighbour_message(RTM_DELNEIGH, family(address), index, 0).with(NDA_DST, &octets(address));
    Request::new(format!("delete tunnel end {address}"), message, 0)
}

pub(crate) fn put_forward(index: u32, mac: Mac, node: IpAddr) -> Request {
    let what = format!("set tunnel end {mac} at node {node}");
    Request::new(what, forward(RTM_NEWNEIGH, index, mac, node), NLM_F_CREATE | NLM_F_REPLACE)
}

pub(crate) fn delete_forward(index: u32, mac: Mac, node: IpAddr) -> Request {
    Request::new(
        format!("delete tunnel end {mac} at node {node}"),
        forward(RTM_DELNEIGH, index, mac, node),
        0,
    )
}

/// An entry of the device's own table of hardware addresses.
fn forward(kind: u16, index: u32, mac: Mac, node: IpAddr) -> Message {
    let mut message = neighbour_message(kind, AF_BRIDGE, index, NUD_PERMANENT);
    message.body[10] = NTF_SELF;
    message.with(NDA_LLADDR, &mac.0).with(NDA_DST, &octets(node))
}

pub(crate) fn list_forwards(index: u32) -> Message {
    neighbour_message(RTM_GETNEIGH, AF_BRIDGE, 0, 0).with_u32(NDA_IFINDEX, index)
}
