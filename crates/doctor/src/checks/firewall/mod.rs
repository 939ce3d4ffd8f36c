//! What a node's rules for packets do to those of pods.

pub(super) mod forwarding_dropped;
pub(super) mod nat_missing;
pub(super) mod pod_spoofing_possible;

use std::net::IpAddr;

use crate::{Case, Host};

/// How many pods of a node are tried. Rules that are meant for all hit these, too.
const PODS_MAX: usize = 16;

/// A pod of a node: its address, and the node's end of its device.
struct Local<'e> {
    address: IpAddr,
    device: Option<&'e str>,
}

fn locals<'e>(host: &Host<'e>, is_ipv4: bool) -> Vec<Local<'e>> {
    let addresses = host.endpoints.iter().flat_map(|endpoint| {
        let device = endpoint.seen.device.as_deref();
        endpoint.seen.addresses.iter().map(move |address| Local { address: *address, device })
    });
    addresses.filter(|local| local.address.is_ipv4() == is_ipv4).take(PODS_MAX).collect()
}

/// A pod of another node.
fn remote(case: &Case<'_>, host: &Host<'_>, is_ipv4: bool) -> Option<IpAddr> {
    let elsewhere = case.all_endpoints().iter().filter(|endpoint| {
        endpoint.seen.node.as_deref().is_some_and(|node| !node.eq_ignore_ascii_case(host.name()))
    });
    elsewhere
        .flat_map(|endpoint| &endpoint.seen.addresses)
        .copied()
        .find(|address| address.is_ipv4() == is_ipv4)
}

/// The device by which packets to an address leave.
fn way_out<'e>(host: &Host<'e>, to: IpAddr) -> Option<&'e str> {
    host.route_for(to)?.seen.device.as_deref()
}
