//! The kernel's messages as a survey keeps them.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::IpAddr;

use ipnet::IpNet;
use model::Mac;

use super::{SurveyedAddress, SurveyedLink, SurveyedNeighbour, SurveyedRoute, SurveyedVxlan};
use crate::netlink::message::{Attributes, read_text, read_u16, read_u32};
use crate::netlink::numbers::*;
use crate::objects::{ADDRESS_HEADER, LINK_HEADER, NEIGHBOUR_HEADER, ROUTE_HEADER, read_ip, unspecified};

/// What a link message says besides what [`crate::objects::read_link`] reads.
pub(crate) fn link_details(body: &[u8]) -> SurveyedLink {
    let mut link = SurveyedLink::default();
    for (kind, value) in Attributes::after(body, LINK_HEADER) {
        match kind {
            IFLA_MASTER => link.master = read_u32(value, 0),
            IFLA_LINKINFO => read_info(value, &mut link),
            _ => {}
        }
    }
    link
}

fn read_info(info: &[u8], link: &mut SurveyedLink) {
    let mut data: &[u8] = &[];
    for (kind, value) in Attributes(info) {
        match kind {
            IFLA_INFO_KIND => link.kind = Some(read_text(value)),
            IFLA_INFO_DATA => data = value,
            _ => {}
        }
    }
    if link.kind.as_deref() == Some("vxlan") {
        link.vxlan = Some(vxlan(data));
    }
}

fn vxlan(data: &[u8]) -> SurveyedVxlan {
    let mut vxlan = SurveyedVxlan::default();
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

pub(crate) fn address(kind: u16, body: &[u8]) -> Option<SurveyedAddress> {
    if kind != RTM_NEWADDR {
        return None;
    }
    let &[family, prefix, flags, scope] = body.first_chunk()?;
    let (mut local, mut address) = (None, None);
    for (kind, value) in Attributes::after(body, ADDRESS_HEADER) {
        match kind {
            IFA_LOCAL => local = read_ip(family, value),
            IFA_ADDRESS => address = read_ip(family, value),
            _ => {}
        }
    }
    Some(SurveyedAddress {
        index: read_u32(body, 4)?,
        net: IpNet::new(local.or(address)?, prefix).ok()?,
        scope,
        is_secondary: family == AF_INET && flags & IFA_F_SECONDARY != 0,
        is_duplicate: flags & IFA_F_DADFAILED != 0,
    })
}

pub(crate) fn route(kind: u16, body: &[u8]) -> Option<SurveyedRoute> {
    let &[family, prefix, _, _, table, protocol, scope, route_kind] = body.first_chunk()?;
    let flags = read_u32(body, 8)?;
    if kind != RTM_NEWROUTE || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut table = u32::from(table);
    let mut destination = unspecified(family)?;
    let mut hop = Hop { flags, ..Hop::default() };
    let (mut source, mut metric) = (None, None);
    for (kind, value) in Attributes::after(body, ROUTE_HEADER) {
        match kind {
            RTA_DST => destination = read_ip(family, value)?,
            RTA_GATEWAY => hop.gateway = read_ip(family, value),
            RTA_VIA => hop.gateway = via(value),
            RTA_OIF => hop.index = read_u32(value, 0),
            RTA_PREFSRC => source = read_ip(family, value),
            RTA_PRIORITY => metric = read_u32(value, 0).filter(|metric| *metric != 0),
            RTA_MULTIPATH => hop = first_hop(family, value)?,
            RTA_TABLE => table = read_u32(value, 0)?,
            _ => {}
        }
    }
    (table == u32::from(RT_TABLE_MAIN)).then_some(SurveyedRoute {
        destination: IpNet::new(destination, prefix).ok()?,
        kind: route_kind,
        gateway: hop.gateway,
        index: hop.index,
        protocol,
        scope,
        source,
        metric,
        is_onlink: hop.flags & RTNH_F_ONLINK != 0,
        is_dead: hop.flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) != 0,
    })
}

#[derive(Default)]
struct Hop {
    gateway: Option<IpAddr>,
    index: Option<u32>,
    flags: u32,
}

/// `struct rtnexthop` and its attributes.
fn first_hop(family: u8, hops: &[u8]) -> Option<Hop> {
    const HEADER: usize = 8;
    let length = usize::from(read_u16(hops, 0)?);
    let hop = hops.get(..length)?;
    let mut found = Hop { gateway: None, index: read_u32(hop, 4), flags: u32::from(*hop.get(2)?) };
    for (kind, value) in Attributes::after(hop, HEADER) {
        match kind {
            RTA_GATEWAY => found.gateway = read_ip(family, value),
            RTA_VIA => found.gateway = via(value),
            _ => {}
        }
    }
    Some(found)
}

/// A gateway of another family than the destination's: the family, then the address.
fn via(value: &[u8]) -> Option<IpAddr> {
    read_ip(u8::try_from(read_u16(value, 0)?).ok()?, value.get(2..)?)
}

pub(crate) fn neighbour(kind: u16, body: &[u8]) -> Option<SurveyedNeighbour> {
    if kind != RTM_NEWNEIGH {
        return None;
    }
    let family = *body.first()?;
    let (mut address, mut mac) = (None, None);
    for (kind, value) in Attributes::after(body, NEIGHBOUR_HEADER) {
        match kind {
            NDA_DST => address = read_ip(family, value),
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(SurveyedNeighbour {
        address: address?,
        index: read_u32(body, 4)?,
        mac,
        state: read_u16(body, 8)?,
        is_proxy: body.get(10)? & NTF_PROXY != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::Message;

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
        let link = link_details(&message.body);
        let vxlan = link.vxlan.unwrap();
        assert_eq!((vxlan.vni, vxlan.port, link.master), (Some(4096), Some(4789), Some(3)));
        assert_eq!(vxlan.local, Some([10, 0, 0, 1].into()));
    }

    #[test]
    fn routes_of_all_sorts_are_read() {
        let header = |kind: u8| [AF_INET, 24, 0, 0, RT_TABLE_MAIN, 12, 0, kind, 0, 0, 0, 0];
        let blackhole = Message::new(RTM_NEWROUTE, &header(RTN_BLACKHOLE)).with(RTA_DST, &[10, 0, 1, 0]);
        let found = route(blackhole.kind, &blackhole.body).unwrap();
        assert_eq!(
            (found.destination.to_string().as_str(), found.kind, found.protocol),
            ("10.0.1.0/24", 6, 12)
        );
        let mut hop = vec![16, 0, 1, 0, 5, 0, 0, 0, 8, 0, 5, 0, 192, 0, 2, 9];
        hop.extend([8, 0, 0, 0, 6, 0, 0, 0]);
        let several = Message::new(RTM_NEWROUTE, &header(RTN_UNICAST))
            .with(RTA_DST, &[10, 0, 2, 0])
            .with(RTA_MULTIPATH, &hop);
        let found = route(several.kind, &several.body).unwrap();
        assert_eq!((found.gateway, found.index, found.is_dead), (Some([192, 0, 2, 9].into()), Some(5), true));
    }

    proptest! {
        #[test]
        fn any_object_can_be_read(
            kind in 16u16..90,
            mut body in proptest::collection::vec(any::<u8>(), 0..160),
            family in prop_oneof![Just(AF_INET), Just(AF_INET6), any::<u8>()],
        ) {
            if let Some(first) = body.first_mut() {
                *first = family;
            }
            let _ = link_details(&body);
            let _ = (address(kind, &body), route(kind, &body), neighbour(kind, &body));
            let _ = (address(RTM_NEWADDR, &body), route(RTM_NEWROUTE, &body), neighbour(RTM_NEWNEIGH, &body));
        }
    }
}
