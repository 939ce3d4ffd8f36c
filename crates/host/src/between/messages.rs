//! Routes to other nodes and the ends of tunnels as rtnetlink messages.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{IpVersion, Mac};
use plan::between::{BETWEEN_PROTOCOL, FoundRoute, Hop, IPIP_DEVICE, NodeRoute, VxlanDevice, Way};

use crate::messages::{family, neighbour_message, octets};
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
pub(super) fn put_route(route: &NodeRoute, index: Option<u32>, flags: u16) -> Request {
    let kind = if route.way == Way::Blackhole { RTN_BLACKHOLE } else { RTN_UNICAST };
    let scope = match (route.way, route.version(), route.gateway()) {
        (Way::Via { .. }, IpVersion::V4, None) => RT_SCOPE_LINK,
        _ => RT_SCOPE_UNIVERSE,
    };
    let parts = RouteParts { destination: route.destination, kind, scope, metric: route.metric() };
    let message = parts.message(RTM_NEWROUTE, route.gateway(), index);
    Request::new(format!("set route {route}"), message, NLM_F_CREATE | flags)
}

pub(super) fn delete_route(route: &FoundRoute) -> Request {
    let (kind, gateway, index) = match route.hop {
        Hop::Blackhole => (RTN_BLACKHOLE, None, None),
        Hop::Device { index, gateway, .. } => (RTN_UNICAST, gateway, Some(index)),
        Hop::Odd => (0, None, None),
    };
    let FoundRoute { destination, metric, .. } = *route;
    let parts = RouteParts { destination, kind, scope: RT_SCOPE_NOWHERE, metric };
    Request::new(format!("delete route {destination}"), parts.message(RTM_DELROUTE, gateway, index), 0)
}

struct RouteParts {
    destination: IpNet,
    kind: u8,
    scope: u8,
    metric: u32,
}

impl RouteParts {
    fn message(&self, message: u16, gateway: Option<IpAddr>, index: Option<u32>) -> Message {
        let (address, prefix) = (self.destination.addr(), self.destination.prefix_len());
        let (scope, kind) = (self.scope, self.kind);
        let mut header =
            [family(address), prefix, 0, 0, RT_TABLE_MAIN, BETWEEN_PROTOCOL, scope, kind, 0, 0, 0, 0];
        if gateway.is_some() {
            // The kernel is not to look for a route to the gateway: it is on that device.
            header[8..].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
        }
        let mut message = Message::new(message, &header).with(RTA_DST, &octets(address));
        if let Some(gateway) = gateway {
            message = message.with(RTA_GATEWAY, &octets(gateway));
        }
        if self.metric > 0 {
            message = message.with_u32(RTA_PRIORITY, self.metric);
        }
        match index {
            Some(index) => message.with_u32(RTA_OIF, index),
            None => message,
        }
    }
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
