//! Reads what the kernel holds for one pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::Mac;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use plan::{End, Neighbour, ObservedEnd, ObservedWiring, PodWiring, Route, Sysctl};

use crate::links::find_link;
use crate::netlink::Netlink;
use crate::{Host, HostError, PodNamespace, messages, sysctl};

impl Host {
    /// What is there under the names of a wiring. Whose it is, the difference tells.
    pub fn observe(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<ObservedWiring, HostError> {
        let host =
            observe_end(&mut self.netlink, &wiring.host, || Ok(sysctl::read_all(&wiring.host.sysctls)))?;
        let PodNamespace { ns, netlink } = pod;
        let pod = observe_end(netlink, &wiring.pod, || ns.visit(|| sysctl::read_all(&wiring.pod.sysctls)))?;
        Ok(ObservedWiring { host, pod })
    }
}

fn observe_end(
    netlink: &mut Netlink,
    end: &End,
    read_sysctls: impl FnOnce() -> Result<Vec<Sysctl>, HostError>,
) -> Result<Option<ObservedEnd>, HostError> {
    let Some(link) = find_link(netlink, &end.device)? else { return Ok(None) };
    let device = &end.device;
    let mut list = |things: &str, message: RouteNetlinkMessage| {
        netlink.dump(&format!("list the {things} of {device}"), &message)
    };
    let addresses = list("addresses", messages::list_addresses(link.index))?;
    let mut routes = list("routes", messages::list_routes(AddressFamily::Inet, link.index))?;
    // Not asked for in vain: a kernel without IPv6 would refuse.
    if end.routes.iter().any(|route| route.destination.addr().is_ipv6()) {
        routes.extend(list("IPv6 routes", messages::list_routes(AddressFamily::Inet6, link.index))?);
    }
    let neighbours = list("neighbours", messages::list_neighbours(link.index))?;
    Ok(Some(ObservedEnd {
        index: link.index,
        peer_index: link.peer_index,
        alias: link.alias,
        mac: link.mac,
        mtu: link.mtu,
        up: link.up,
        running: link.running,
        addresses: addresses.into_iter().filter_map(|object| read_address(object, link.index)).collect(),
        routes: routes.into_iter().filter_map(|object| read_route(object, link.index)).collect(),
        neighbours: neighbours.into_iter().filter_map(|object| read_neighbour(object, link.index)).collect(),
        sysctls: read_sysctls()?,
    }))
}

fn read_address(object: RouteNetlinkMessage, index: u32) -> Option<IpNet> {
    let RouteNetlinkMessage::NewAddress(AddressMessage { header, attributes, .. }) = object else {
        return None;
    };
    let mut found = None;
    for attribute in attributes {
        match attribute {
            // On IPv4 the device's own address; `Address` is then the other end's.
            AddressAttribute::Local(address) => found = Some(address),
            AddressAttribute::Address(address) if found.is_none() => found = Some(address),
            _ => {}
        }
    }
    if header.index == index { IpNet::new(found?, header.prefix_len).ok() } else { None }
}

fn read_route(object: RouteNetlinkMessage, index: u32) -> Option<Route> {
    let RouteNetlinkMessage::NewRoute(RouteMessage { header, attributes, .. }) = object else { return None };
    let (mut destination, mut gateway, mut device) = (None, None, None);
    let mut table = u32::from(header.table);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = Some(ip(address)?),
            RouteAttribute::Gateway(address) => gateway = Some(ip(address)?),
            RouteAttribute::Oif(oif) => device = Some(oif),
            RouteAttribute::Table(number) => table = number,
            _ => {}
        }
    }
    let is_ours = device == Some(index)
        && table == u32::from(RouteHeader::RT_TABLE_MAIN)
        && header.kind == RouteType::Unicast;
    if !is_ours {
        return None;
    }
    let destination = destination.unwrap_or(match header.address_family {
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    });
    Some(Route {
        destination: IpNet::new(destination, header.destination_prefix_length).ok()?,
        gateway,
        scope: match header.scope {
            RouteScope::Universe => plan::RouteScope::Universe,
            RouteScope::Link => plan::RouteScope::Link,
            other => plan::RouteScope::Other(other.into()),
        },
        protocol: header.protocol.into(),
    })
}

fn ip(address: RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(address.into()),
        RouteAddress::Inet6(address) => Some(address.into()),
        _ => None,
    }
}

fn read_neighbour(object: RouteNetlinkMessage, index: u32) -> Option<Neighbour> {
    let RouteNetlinkMessage::NewNeighbour(NeighbourMessage { header, attributes, .. }) = object else {
        return None;
    };
    if header.ifindex != index || header.state != NeighbourState::Permanent {
        return None;
    }
    let (mut found, mut mac) = (None, None);
    for attribute in attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => found = Some(address.into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => found = Some(address.into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(Neighbour { address: found?, mac: mac? })
}
