//! Node set-up: a node chose an address on a network that the others are not on. The root of a whole chain: no session, no
//! routes, pods cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use model::NodeName;

use super::{cluster_addresses, node_names};
use crate::checks::bgp::{Missed, explain_sessions_at, missed_sessions};
use crate::checks::reach::explain_ways;
use crate::checks::reach::packets_lost::explain_losses;
use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, Finding, FindingCode, Look, Need, Subject};
use evidence::Exhibit;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node uses an address on the wrong network",
    explanation: "A node is registered with an address on a different network from the other nodes, although \
                  it also has one on their network. Calico's default takes the address of the first NIC it \
                  finds, so a second NIC, a VPN or a bridge can change the choice. The other nodes cannot \
                  reach it: no BGP session comes up, routes are missing, and its pods are cut off from pods \
                  on other nodes.",
    remedy: "set IP_AUTODETECTION_METHOD=kubernetes-internal-ip (or cidr=NETWORK) for the node's agent, \
             restart it, and check that the sessions are established (plumb node status)",
    needs: &[&[Need::KubeNodes], &[Need::Record(model::Kind::Node)], &[Need::Bgp], &[Need::Events]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::NodeAddressWrong, look)
};

/// An address that a node goes by, and how that is known.
struct Chosen {
    address: IpAddr,
    net: Option<IpNet>,
    exhibits: Vec<Exhibit>,
    /// By elimination only.
    reason: Option<String>,
}

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let missed = missed_sessions(case);
    let mut own: Own =
        node_names(case).into_iter().map(|name| (name.clone(), cluster_addresses(case, &name))).collect();
    let chosen = chosen(case, &own, &missed);
    // Where sessions are missed the kernel's word counts as well; else a node with two cards has its reasons.
    if !missed.is_empty() {
        add_kernels(case, &chosen, &mut own);
    }
    let others = others_on_their_cluster_address(&own, &chosen, &missed);
    for (node, choice) in &chosen {
        let Some(own) = own.get(node) else { continue };
        let is_v4 = choice.address.is_ipv4();
        let own: BTreeSet<IpAddr> = own.iter().copied().filter(|own| own.is_ipv4() == is_v4).collect();
        if own.is_empty() || own.contains(&choice.address) {
            continue;
        }
        let others: Vec<&(NodeName, IpAddr)> =
            others.iter().filter(|(_, other)| other.is_ipv4() == is_v4).collect();
        let net = choice.net.unwrap_or_else(|| guessed_net(case, choice.address));
        // All nodes on a second network is a choice, and so is a node that has no other address.
        if !others.is_empty() && others.iter().all(|(_, address)| !net.contains(address)) {
            tell(case, look, &Told { name: node, choice, own, others, missed: &missed });
        }
    }
}

/// What each node is known by apart from its network records.
type Own = BTreeMap<NodeName, BTreeSet<IpAddr>>;

/// What each node's own cards have on networks that other nodes go by.
fn add_kernels(case: &Case<'_>, chosen: &BTreeMap<NodeName, Chosen>, own: &mut Own) {
    let mut users: BTreeMap<IpNet, BTreeSet<&NodeName>> = BTreeMap::new();
    for (name, choice) in chosen {
        if let Some(net) = choice.net {
            users.entry(net).or_default().insert(name);
        }
    }
    for (name, own) in own {
        let Some(node) = case.node(name) else { continue };
        let of_others: Vec<IpNet> = users
            .iter()
            .filter(|(_, users)| users.iter().any(|user| *user != name))
            .map(|(net, _)| *net)
            .collect();
        let held = node.kernel.addresses.iter().flatten().filter(|held| !held.seen.is_secondary);
        own.extend(
            held.map(|held| held.seen.net.addr())
                .filter(|address| of_others.iter().any(|net| net.contains(address))),
        );
    }
}

/// What every node is known by: its records, or, for the only node whose address is not known, what others look for in vain.
fn chosen(case: &Case<'_>, own: &Own, missed: &[Missed]) -> BTreeMap<NodeName, Chosen> {
    let mut chosen = BTreeMap::new();
    for (name, view) in case.node_views() {
        if let Some(recorded) = view.addresses.first() {
            let net = recorded.has_length.then_some(recorded.net.trunc());
            let exhibits = vec![recorded.exhibit()];
            chosen.insert(name.clone(), Chosen { address: recorded.address(), net, exhibits, reason: None });
        }
    }
    for session in missed {
        let is_known = chosen.values().any(|choice| choice.address == session.peer)
            || own.values().any(|own| own.contains(&session.peer))
            || case.is_node_address(session.peer);
        if is_known || case.partial.kube_nodes {
            continue;
        }
        let is_open = |name: &&NodeName| !chosen.contains_key(*name) && **name != session.node;
        let candidates: Vec<&NodeName> = own.keys().filter(is_open).collect();
        if let [only] = candidates[..] {
            let reason = format!(
                "{} tries to reach {}, which belongs to no other node: by elimination it belongs to {}",
                session.node, session.peer, only
            );
            let exhibits = session.exhibits.clone();
            let choice = Chosen { address: session.peer, net: None, exhibits, reason: Some(reason) };
            chosen.insert(only.clone(), choice);
        }
    }
    chosen
}

/// Nodes that go by an address the cluster knows them by.
fn others_on_their_cluster_address(
    own: &Own,
    chosen: &BTreeMap<NodeName, Chosen>,
    missed: &[Missed],
) -> Vec<(NodeName, IpAddr)> {
    let mut others = Vec::new();
    for (name, own) in own {
        let by_record = chosen.get(name).map(|choice| choice.address);
        // What a node is looked for by is what it goes by, too.
        let by_peers = || missed.iter().map(|session| session.peer).find(|peer| own.contains(peer));
        let goes_by = by_record.or_else(by_peers).filter(|address| own.contains(address));
        others.extend(goes_by.map(|address| (name.clone(), address)));
    }
    others
}

/// Where no length is told: the network of a device that has it, else the usual length.
fn guessed_net(case: &Case<'_>, address: IpAddr) -> IpNet {
    let nodes = case.evidence.nodes.values();
    let mut held = nodes.flat_map(|node| node.kernel.addresses.iter().flatten()).map(|held| held.seen.net);
    let usual = if address.is_ipv4() { 24 } else { 64 };
    held.find(|net| net.contains(&address)).map(|net| net.trunc()).unwrap_or_else(|| {
        IpNet::new(address, usual).map(|net| net.trunc()).unwrap_or_else(|_| IpNet::from(address))
    })
}

/// The network that the cluster's addresses are on, if a device tells.
fn common_net(case: &Case<'_>, told: &Told<'_>) -> Option<IpNet> {
    let nodes = case.evidence.nodes.values();
    let mut nets =
        nodes.flat_map(|node| node.kernel.addresses.iter().flatten()).map(|held| held.seen.net.trunc());
    nets.find(|net| {
        told.own.iter().any(|own| net.contains(own))
            && told.others.iter().any(|(_, other)| net.contains(other))
    })
}

/// Everything that the chain is told from.
struct Told<'a> {
    name: &'a NodeName,
    choice: &'a Chosen,
    own: BTreeSet<IpAddr>,
    others: Vec<&'a (NodeName, IpAddr)>,
    missed: &'a [Missed],
}

fn tell(case: &Case<'_>, look: &mut Look<'_>, told: &Told<'_>) {
    let (name, address) = (told.name, told.choice.address);
    let common = common_net(case, told);
    let whose = match common {
        Some(net) => format!("the nodes' common network {net}"),
        None => "the other nodes' network".to_owned(),
    };
    let summary = format!(
        "node {name} is registered with {address}, which is outside {whose}; its address there is {}",
        listed(&told.own)
    );
    let finding = look.found(name, summary);
    finding.seen_all(told.choice.exhibits.iter().cloned());
    if let Some(reason) = &told.choice.reason {
        finding.because(reason.clone());
    }
    let reached = listed(told.others.iter().map(|(other, address)| format!("{other} ({address})")));
    finding.because(format!(
        "{reached} probably cannot reach {address}, and without that no BGP session comes up"
    ));
    finding.explains(FindingCode::CalicoNodeNotReady, name);
    explain_sessions(case, finding, name, address, told.missed);
    explain_losses(case, finding, name);
    explain_ways(case, finding, name);
    tell_cut_off(case, finding, name);
    let method = match common {
        Some(net) => format!("IP_AUTODETECTION_METHOD=kubernetes-internal-ip (or cidr={net})"),
        None => "IP_AUTODETECTION_METHOD=kubernetes-internal-ip".to_owned(),
    };
    finding.remedy(format!(
        "set {method} for calico-node on {name}, restart it, and check that the sessions are established \
         (plumb node status)"
    ));
}

fn explain_sessions(
    case: &Case<'_>,
    finding: &mut Finding,
    name: &NodeName,
    address: IpAddr,
    missed: &[Missed],
) {
    for session in missed {
        let is_its_own = session.node == *name;
        if is_its_own || session.peer == address {
            let subject = Subject::session(&session.node, session.peer);
            finding.explains(FindingCode::BgpSessionDown, subject);
        }
    }
    explain_sessions_at(case, address, finding);
}

/// Pods that depend on routes which are never learned.
fn tell_cut_off(case: &Case<'_>, finding: &mut Finding, name: &NodeName) {
    let pods: Vec<_> = case
        .pods_on(name)
        .filter(|pod| {
            pod.seen.status == "Running"
                && !pod.seen.addresses.is_empty()
                && !case.is_on_host_network(&pod.seen)
        })
        .collect();
    if !pods.is_empty() {
        let names = listed(pods.iter().map(|pod| &pod.seen.name));
        finding.because(format!(
            "without routes, {} on {name} cannot be reached from other nodes and cannot reach their pods: \
             {names}",
            counted(pods.len(), "pod")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    fn with_addresses(addresses: &[&str]) -> evidence::Evidence {
        let mut evidence = small();
        evidence.records = Default::default();
        for (node, address) in evidence.kube_nodes.as_mut().unwrap().iter_mut().zip(addresses) {
            node.seen.annotations.insert("projectcalico.org/IPv4Address".to_owned(), (*address).to_owned());
        }
        evidence
    }

    #[test]
    fn fires_for_one_node_on_a_second_card() {
        silent(&CHECK, &small());
        let evidence = with_addresses(&["10.99.0.1/24", "172.16.0.2/16", "172.16.0.3/16"]);
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "node worker-0000 is registered with 10.99.0.1, which is outside the nodes' common network \
             172.16.0.0/16; its address there is 172.16.0.1"
        );
        assert!(
            finding.cause.iter().any(|step| step.contains("4 pods on worker-0000 cannot be reached")),
            "{:?}",
            finding.cause
        );
    }

    #[test]
    fn is_silent_where_all_nodes_are_on_a_second_network() {
        silent(&CHECK, &with_addresses(&["10.99.0.1/24", "10.99.0.2/24", "10.99.0.3/24"]));
        silent(&CHECK, &with_addresses(&["10.99.0.1/24", "10.99.1.2/24", "10.99.2.3/24"]));
        silent(&CHECK, &with_addresses(&["172.16.0.1/32", "172.16.0.2/32", "172.16.0.3/32"]));
    }

    /// Without Kubernetes the kernels tell which address would have been the right one.
    #[test]
    fn without_kubernetes_a_missed_session_and_the_kernel_tell() {
        let mut evidence = with_addresses(&["10.99.0.1/24", "172.16.0.2/16", "172.16.0.3/16"]);
        for node in evidence.kube_nodes.as_mut().unwrap() {
            node.seen.internal_ips.clear();
        }
        evidence.pods = None;
        silent(&CHECK, &evidence);
        let sessions = &mut evidence.node_mut("worker-0001").bgp.as_mut().unwrap().sessions;
        sessions.truncate(1);
        sessions[0].seen.peer = "10.99.0.1".parse().unwrap();
        sessions[0].seen.info = "Active".to_owned();
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "node worker-0000");
        assert!(finding.summary.ends_with("its address there is 172.16.0.1"), "{}", finding.summary);
    }

    #[test]
    fn by_elimination_it_is_the_one_nobody_else_is() {
        let mut evidence = with_addresses(&[]);
        let nodes = evidence.kube_nodes.as_mut().unwrap();
        nodes.remove(2);
        evidence.nodes.remove(&"worker-0002".into());
        let session = &mut evidence.node_mut("worker-0001").bgp.as_mut().unwrap().sessions;
        session.truncate(1);
        session[0].seen.peer = "10.99.0.66".parse().unwrap();
        session[0].seen.info = "Passive".to_owned();
        let sessions = &mut evidence.node_mut("worker-0000").bgp.as_mut().unwrap().sessions;
        sessions.truncate(1);
        sessions[0].seen.info = "Passive".to_owned();
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.subject.to_string(), "node worker-0000");
        assert!(finding.cause[0].starts_with("worker-0001 tries to reach 10.99.0.66"), "{:?}", finding.cause);
    }
}
