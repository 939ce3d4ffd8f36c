//! Faults that a log names.

use model::FindingCode;

use super::Inject;
use evidence::sample::node_name;
use evidence::{Evidence, Happening, LogEvent, Origin, Sighted, Trouble};

pub(super) const FAULTS: &[(FindingCode, Inject)] = &[
    (FindingCode::AddressesExhausted, addresses_exhausted),
    (FindingCode::CniPluginMissing, cni_plugin_missing),
    (FindingCode::ConntrackFull, conntrack_full),
    (FindingCode::CredentialsRefused, credentials_refused),
    (FindingCode::DevicesManagedByOthers, devices_managed_by_others),
    (FindingCode::MartianPackets, martian_packets),
    (FindingCode::NeighbourTableFull, neighbour_table_full),
    (FindingCode::NetworkProgramKilled, network_program_killed),
    (FindingCode::NicFailing, nic_failing),
    (FindingCode::NodeAddressUndetected, node_address_undetected),
    (FindingCode::RightsMissing, rights_missing),
    (FindingCode::RulesNotWritten, rules_not_written),
    (FindingCode::StoreFull, store_full),
    (FindingCode::TunnelNotMade, tunnel_not_made),
    (FindingCode::TyphaUnreachable, typha_unreachable),
    (FindingCode::WatchesExhausted, watches_exhausted),
];

/// So many lines of a node's log say this.
pub(super) fn say(evidence: &mut Evidence, node: usize, count: u32, message: &str) {
    let trouble = Trouble::named_in(message).expect("a trouble with a name");
    let what = Happening::Named { trouble, pod: None, message: message.to_owned() };
    let event = LogEvent { at: None, node: Some(node_name(node).into()), what, count, last_at: None };
    let origin = Origin::line(format!("journal-{node}.log"), 1, message);
    evidence.log.get_or_insert_default().push(Sighted::new(event, origin));
}

pub(super) fn subject(node: usize) -> String {
    format!("node {}", node_name(node))
}

fn conntrack_full(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 1, "nf_conntrack: nf_conntrack: table full, dropping packet");
    subject(node)
}

fn neighbour_table_full(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 1, "neighbour: arp_cache: neighbor table overflow!");
    subject(node)
}

fn credentials_refused(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 2, "error getting ClusterInformation: connection is unauthorized: Unauthorized");
    subject(node)
}

fn rights_missing(evidence: &mut Evidence, node: usize) -> String {
    say(
        evidence,
        node,
        2,
        "clusterinformations.crd.projectcalico.org \"default\" is forbidden: User \"system:serviceaccount:kube-system:calico-node\" cannot get resource",
    );
    "cluster".to_owned()
}

fn cni_plugin_missing(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 2, "failed to find plugin \"calico\" in path [/opt/cni/bin]");
    subject(node)
}

fn store_full(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 1, "etcdserver: mvcc: database space exceeded");
    "cluster".to_owned()
}

fn typha_unreachable(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 2, "Failed to connect to Typha. Retrying...");
    subject(node)
}

fn node_address_undetected(evidence: &mut Evidence, node: usize) -> String {
    say(
        evidence,
        node,
        1,
        "Unable to auto-detect an IPv4 address using interface regexes [eth9]: no valid host interfaces found",
    );
    subject(node)
}

fn addresses_exhausted(evidence: &mut Evidence, node: usize) -> String {
    say(
        evidence,
        node,
        2,
        "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled",
    );
    subject(node)
}

fn tunnel_not_made(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 2, "Failed to configure VXLAN tunnel device, retrying... error=file exists");
    subject(node)
}

fn rules_not_written(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 3, "Failed to execute iptables-restore: exit status 2");
    subject(node)
}

fn network_program_killed(evidence: &mut Evidence, node: usize) -> String {
    say(
        evidence,
        node,
        1,
        "Memory cgroup out of memory: Killed process 4711 (calico-node) total-vm:1884308kB",
    );
    subject(node)
}

fn martian_packets(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 3, "IPv4: martian source 10.244.1.5 from 10.244.2.3, on dev eth1");
    subject(node)
}

fn nic_failing(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 1, "NETDEV WATCHDOG: eth0 (tg3): transmit queue 0 timed out");
    subject(node)
}

fn devices_managed_by_others(evidence: &mut Evidence, node: usize) -> String {
    say(
        evidence,
        node,
        1,
        "<info> [1700000000.1] device (cali1a2b3c4d5e6): Activation: starting connection 'Wired connection 3' (uuid)",
    );
    subject(node)
}

fn watches_exhausted(evidence: &mut Evidence, node: usize) -> String {
    say(evidence, node, 1, "failed to create fsnotify watcher: too many open files");
    subject(node)
}
