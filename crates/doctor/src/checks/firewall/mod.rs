//! What a node's rules for packets do to those of pods.

pub(super) mod forwarding_dropped;
pub(super) mod nat_missing;
pub(super) mod pod_spoofing_possible;
pub(super) mod tunnel_dropped;

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::evidence::firewall::Dropper;
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

/// A match, in the words of iptables and in those of nft.
struct Spared {
    /// Of the chain that the packets come through.
    chain: &'static str,
    iptables: String,
    nft: String,
}

/// What lets packets through, in the words of the program that made the chains which drop them: the one's commands do not reach the
/// other's chains, and an accept in one chain does not keep the next from dropping.
fn advice(dropped_by: &BTreeSet<Dropper>, spared: &[Spared]) -> String {
    let mut commands: Vec<String> = Vec::new();
    for dropper in dropped_by {
        let Dropper { family, table, chain, rule } = dropper;
        let is_plain =
            |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if ![family, table, chain].into_iter().all(is_plain) {
            commands.push(format!("see {dropper} with nft -a list ruleset"));
        } else if is_of_iptables(dropper) {
            let program = if family == "ip6" { "ip6tables" } else { "iptables" };
            let table = if table == "filter" { String::new() } else { format!(" -t {table}") };
            let accept = |spared: &Spared| {
                format!("{program}{table} -I {} {} -j ACCEPT", spared.chain, spared.iptables)
            };
            commands.extend(spared.iter().map(accept));
        } else {
            match rule {
                Some(handle) => {
                    commands.push(format!("nft delete rule {family} {table} {chain} handle {handle}"));
                }
                None => {
                    let accept = |spared: &Spared| {
                        format!("nft insert rule {family} {table} {chain} {} accept", spared.nft)
                    };
                    commands.extend(spared.iter().map(accept));
                }
            }
        }
    }
    commands.dedup();
    commands.join("; ")
}

/// A chain that `iptables` made, on a kernel where it is a face of nftables.
fn is_of_iptables(dropper: &Dropper) -> bool {
    let is_table = ["filter", "nat", "mangle", "raw", "security"].contains(&dropper.table.as_str());
    let is_upper = !dropper.chain.bytes().any(|byte| byte.is_ascii_lowercase());
    matches!(dropper.family.as_str(), "ip" | "ip6") && is_table && is_upper
}
