//! What a node's rules for packets do to those of pods.

pub(super) mod forwarding_dropped;
pub(super) mod nat_missing;
pub(super) mod peer_packets_dropped;
pub(super) mod pod_spoofing_possible;
pub(super) mod rules_not_loaded;
pub(super) mod rules_not_written;
mod ruleset;
pub(super) mod tunnel_dropped;
mod walk;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::{NodeName, ShellCommand};

use walk::Dropper;

use crate::{Case, Finding, Host};

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

/// Pods that stand for those of other nodes: of each version the first pod, and the first one on a node other than its own.
struct Remotes<'e> {
    v4: Vec<(&'e NodeName, IpAddr)>,
    v6: Vec<(&'e NodeName, IpAddr)>,
}

impl<'e> Remotes<'e> {
    fn of(case: &Case<'e>) -> Remotes<'e> {
        let mut remotes = Remotes { v4: Vec::new(), v6: Vec::new() };
        for endpoint in case.all_endpoints() {
            let Some(node) = &endpoint.seen.node else { continue };
            for address in &endpoint.seen.addresses {
                let known = if address.is_ipv4() { &mut remotes.v4 } else { &mut remotes.v6 };
                if known.len() < 2 && known.first().is_none_or(|(first, _)| *first != node) {
                    known.push((node, *address));
                }
            }
        }
        remotes
    }

    /// A pod of another node.
    fn seen_from(&self, host: &Host<'_>, is_ipv4: bool) -> Option<IpAddr> {
        let known = if is_ipv4 { &self.v4 } else { &self.v6 };
        known.iter().find(|(node, _)| *node != host.name()).map(|(_, address)| *address)
    }
}

/// The device by which packets to an address leave.
fn way_out<'e>(host: &Host<'e>, to: IpAddr) -> Option<&'e str> {
    host.route_for(to)?.seen.device.as_deref()
}

/// A match, in the words of iptables and in those of nft: an option or an expression, and its value.
struct Spared {
    iptables: (&'static str, String),
    nft: (&'static str, String),
}

/// Offers what lets packets through, in the words of the program that made the chains which drop them: the one's commands do not reach
/// the other's chains, and an accept in one chain does not keep the next from dropping.
fn advise(finding: &mut Finding, dropped_by: &BTreeSet<Dropper>, spared: &[Spared]) {
    let mut commands: Vec<ShellCommand> = Vec::new();
    for dropper in dropped_by {
        match dropper.rule {
            _ if is_of_iptables(dropper) => commands.extend(accept_with_iptables(dropper, spared)),
            Some(handle) => commands.push(nft("nft delete rule", dropper).plain("handle").value(handle)),
            None => commands.extend(spared.iter().map(|spared| {
                let (what, value) = &spared.nft;
                nft("nft insert rule", dropper).plain(what).value(value).plain("accept")
            })),
        }
    }
    commands.dedup();
    let deletes = |command: &ShellCommand| command.words().get(1).is_some_and(|word| word == "delete");
    finding.remedy(match commands.iter().any(deletes) {
        true => {
            "find out what created the rule and why. If it is not needed, delete it with the command below, \
             and make sure that it is not loaded again at the next boot"
        }
        false => {
            "accept the packets with the commands below, and save the rules so that they survive a reboot"
        }
    });
    for command in commands {
        finding.command(command);
    }
}

fn nft(words: &'static str, dropper: &Dropper) -> ShellCommand {
    ShellCommand::new(words).value(&dropper.family).value(&dropper.table).value(&dropper.chain)
}

/// In the very chain that drops them.
fn accept_with_iptables(dropper: &Dropper, spared: &[Spared]) -> Vec<ShellCommand> {
    let program = || ShellCommand::new(if dropper.family == "ip6" { "ip6tables" } else { "iptables" });
    // By which device packets leave is not known yet there, and iptables refuses to ask.
    let is_known = |spared: &&Spared| dropper.chain != "PREROUTING" || spared.iptables.0 != "-o";
    let accept = |spared: &Spared| {
        let table =
            if dropper.table == "filter" { program() } else { program().plain("-t").value(&dropper.table) };
        let (what, value) = &spared.iptables;
        table.plain("-I").value(&dropper.chain).plain(what).value(value).plain("-j ACCEPT")
    };
    spared.iter().filter(is_known).map(accept).collect()
}

/// A chain that `iptables` made, on a kernel where it is a face of nftables.
fn is_of_iptables(dropper: &Dropper) -> bool {
    let is_table = ["filter", "nat", "mangle", "raw", "security"].contains(&dropper.table.as_str());
    let is_upper = !dropper.chain.bytes().any(|byte| byte.is_ascii_lowercase());
    matches!(dropper.family.as_str(), "ip" | "ip6") && is_table && is_upper
}
