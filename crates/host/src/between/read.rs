//! Reads what the kernel says of routes and tunnels between nodes.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::net::IpAddr;

use model::Mac;
use plan::between::{BETWEEN_PROTOCOL, BetweenNotice};

use crate::netlink::message::{Attributes, read_u16, read_u32};
use crate::netlink::numbers::*;
use crate::objects::{NEIGHBOUR_HEADER, read_address, read_ip, read_link, read_neighbour, read_route};

/// A permanent entry of a device's own table of hardware addresses: device, hardware address, node.
pub(crate) fn forward(kind: u16, body: &[u8]) -> Option<(u32, Mac, IpAddr)> {
    if !matches!(kind, RTM_NEWNEIGH | RTM_DELNEIGH) || body.first() != Some(&AF_BRIDGE) {
        return None;
    }
    let is_permanent = read_u16(body, 8)? & NUD_PERMANENT != 0;
    let (mut mac, mut node) = (None, None);
    for (kind, value) in Attributes::after(body, NEIGHBOUR_HEADER) {
        match kind {
            NDA_LLADDR => mac = value.try_into().ok().map(Mac),
            NDA_DST => node = read_ip(if value.len() == 4 { AF_INET } else { AF_INET6 }, value),
            _ => {}
        }
    }
    Some((read_u32(body, 4)?, mac?, node?)).filter(|_| is_permanent)
}

pub(crate) fn notice(kind: u16, body: &[u8]) -> Option<BetweenNotice> {
    match kind {
        RTM_NEWLINK | RTM_DELLINK => {
            let link = read_link(kind, body)?;
            Some(BetweenNotice::Link { index: link.index, name: link.name, gone: kind == RTM_DELLINK })
        }
        RTM_NEWADDR | RTM_DELADDR => {
            let (index, address) = read_address(kind, body)?;
            Some(BetweenNotice::Address { index, address: address.addr() })
        }
        RTM_NEWROUTE | RTM_DELROUTE => {
            let found = read_route(kind, body)?;
            let (ours, gone) = (found.protocol == BETWEEN_PROTOCOL, kind == RTM_DELROUTE);
            Some(BetweenNotice::Route { destination: found.destination, ours, gone })
        }
        RTM_NEWNEIGH | RTM_DELNEIGH => {
            let gone = kind == RTM_DELNEIGH;
            if let Some((index, mac, node)) = forward(kind, body) {
                return Some(BetweenNotice::Forward { index, mac, node, gone });
            }
            let (index, address, mac) = read_neighbour(kind, body)?;
            Some(BetweenNotice::Neighbour { index, address, mac, gone })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_object_can_be_read(
            kind in 16u16..40,
            mut body in proptest::collection::vec(any::<u8>(), 0..120),
            family in prop_oneof![Just(AF_INET), Just(AF_INET6), Just(AF_BRIDGE), any::<u8>()],
        ) {
            if let Some(first) = body.first_mut() {
                *first = family;
            }
            let _ = (forward(kind, &body), notice(kind, &body));
        }
    }
}
