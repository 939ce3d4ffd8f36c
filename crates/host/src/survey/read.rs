//! The kernel's messages as a survey keeps them.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use ipnet::IpNet;
use model::Mac;
use plan::Route;

use super::{SurveyedAddress, SurveyedNeighbour};
use crate::netlink::message::{Attributes, read_u16, read_u32};
use crate::netlink::numbers::*;
use crate::objects::{ADDRESS_HEADER, NEIGHBOUR_HEADER, ROUTE_HEADER, read_ip, read_route, read_via};

pub(crate) fn address(kind: u16, body: &[u8]) -> Option<SurveyedAddress> {
    if !matches!(kind, RTM_NEWADDR | RTM_DELADDR) {
        return None;
    }
    let &[family, prefix, flags, scope] = body.first_chunk()?;
    let (mut local, mut address) = (None, None);
    for (kind, value) in Attributes::after(body, ADDRESS_HEADER) {
        match kind {
            // On IPv4 the device's own address; the other one is then the far end's.
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

/// Of several next hops, the first.
pub(crate) fn route(kind: u16, body: &[u8]) -> Option<Route> {
    let route = read_route(kind, body)?;
    match Attributes::after(body, ROUTE_HEADER).find(|(kind, _)| *kind == RTA_MULTIPATH) {
        Some((_, hops)) => by_first_hop(route, *body.first()?, hops),
        None => Some(route),
    }
}

/// `struct rtnexthop` and its attributes.
fn by_first_hop(route: Route, family: u8, hops: &[u8]) -> Option<Route> {
    const HEADER: usize = 8;
    let hop = hops.get(..usize::from(read_u16(hops, 0)?))?;
    let flags = u32::from(*hop.get(2)?);
    let mut gateway = None;
    for (kind, value) in Attributes::after(hop, HEADER) {
        match kind {
            RTA_GATEWAY => gateway = read_ip(family, value),
            RTA_VIA => gateway = read_via(value),
            _ => {}
        }
    }
    let (is_onlink, is_dead) = (flags & RTNH_F_ONLINK != 0, flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) != 0);
    Some(Route { gateway, device: read_u32(hop, 4), is_onlink, is_dead, ..route })
}

pub(crate) fn neighbour(kind: u16, body: &[u8]) -> Option<SurveyedNeighbour> {
    if !matches!(kind, RTM_NEWNEIGH | RTM_DELNEIGH) {
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

    use plan::RouteKind;

    use super::*;
    use crate::netlink::Message;

    #[test]
    fn routes_of_all_sorts_are_read() {
        let header = |kind: u8| [AF_INET, 24, 0, 0, RT_TABLE_MAIN, 12, 0, kind, 0, 0, 0, 0];
        let blackhole =
            Message::new(RTM_NEWROUTE, &header(RouteKind::Blackhole.number())).with(RTA_DST, &[10, 0, 1, 0]);
        let found = route(blackhole.kind, &blackhole.body).unwrap();
        assert_eq!(
            (found.destination.to_string().as_str(), found.kind, found.protocol),
            ("10.0.1.0/24", RouteKind::Blackhole, 12)
        );
        let mut hop = vec![16, 0, 1, 0, 5, 0, 0, 0, 8, 0, 5, 0, 192, 0, 2, 9];
        hop.extend([8, 0, 0, 0, 6, 0, 0, 0]);
        let several = Message::new(RTM_NEWROUTE, &header(RouteKind::Unicast.number()))
            .with(RTA_DST, &[10, 0, 2, 0])
            .with(RTA_MULTIPATH, &hop);
        let found = route(several.kind, &several.body).unwrap();
        assert_eq!(
            (found.gateway, found.device, found.is_dead),
            (Some([192, 0, 2, 9].into()), Some(5), true)
        );
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
            let _ = (address(kind, &body), route(kind, &body), neighbour(kind, &body));
            let _ = (address(RTM_NEWADDR, &body), route(RTM_NEWROUTE, &body), neighbour(RTM_NEWNEIGH, &body));
        }
    }
}
