//! BGP: sessions that should be established, and why they are not.

pub(super) mod bgp_as_wrong;
pub(super) mod bgp_mesh_off;
pub(super) mod bgp_not_running;
pub(super) mod bgp_password_wrong;
pub(super) mod bgp_peer_selects_nobody;
pub(super) mod bgp_port_closed;
pub(super) mod bgp_record_unfit;
pub(super) mod bgp_session_down;

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Kind, NodeName};

use crate::{Case, Finding, FindingCode, Look, Subject};
use evidence::node::BgpSession;
use evidence::{Event, Exhibit, Happening, NodeEvidence, Sighted};

/// What is wrong with BGP on a node explains why nobody has a session with it.
pub(super) fn explain_sessions_to(case: &Case<'_>, node: &NodeName, finding: &mut Finding) {
    for recorded in case.node_view(node).iter().flat_map(|view| &view.addresses) {
        explain_sessions_at(case, recorded.address(), finding);
    }
}

/// The same for a node that is known by this address.
pub(super) fn explain_sessions_at(case: &Case<'_>, peer: IpAddr, finding: &mut Finding) {
    for node in case.evidence.nodes.values() {
        finding.explains(FindingCode::BgpSessionDown, Subject::session(&node.name, peer));
    }
}

/// And why a node has none itself.
pub(super) fn explain_own_sessions(node: &NodeEvidence, finding: &mut Finding) {
    for session in node.bgp.iter().flat_map(|bgp| &bgp.sessions) {
        finding.explains(FindingCode::BgpSessionDown, Subject::session(&node.name, session.seen.peer));
    }
}

/// Reports why a session does not come up, by what BIRD says of it.
fn tell(look: &mut Look<'_>, node: &NodeName, session: &Sighted<BgpSession>, summary: String) {
    let subject = Subject::session(node, session.seen.peer);
    look.found(subject.clone(), summary)
        .seen(session.exhibit(described(&session.seen)))
        .explains(FindingCode::BgpSessionDown, subject);
}

/// A session that is not established, by everything that tells of it.
pub(super) struct Missed {
    pub node: NodeName,
    pub peer: IpAddr,
    pub exhibits: Vec<Exhibit>,
    /// What BIRD says, and how often a probe failed.
    pub words: Vec<String>,
}

/// From BIRD's own words, from readiness probes and from logs.
pub(super) fn missed_sessions(case: &Case<'_>) -> Vec<Missed> {
    let mut missed: BTreeMap<(NodeName, IpAddr), Missed> = BTreeMap::new();
    let mut note = |node: &NodeName, peer: IpAddr, exhibit: Exhibit, words: String| {
        let entry = missed.entry((node.clone(), peer)).or_insert_with(|| {
            let node = case.node(node).map_or(node, |known| &known.name);
            Missed { node: node.clone(), peer, exhibits: Vec::new(), words: Vec::new() }
        });
        entry.exhibits.push(exhibit);
        if !entry.words.contains(&words) {
            entry.words.push(words);
        }
    };
    for (node, session) in sessions(case).filter(|(_, session)| !session.seen.is_established()) {
        note(node, session.seen.peer, session.exhibit(described(&session.seen)), told_by_bird(&session.seen));
    }
    for event in case.events.iter().flatten() {
        let Some(peers) = evidence::readiness::peers_without_session(&event.seen.message) else { continue };
        let Some(node) = event.seen.node.as_ref() else { continue };
        for peer in peers {
            note(node, peer, event.exhibit(event.seen.message.clone()), failures(&event.seen));
        }
    }
    for event in case.log.iter().flatten() {
        if let (Happening::BgpDown { peers, message }, Some(node)) =
            (&event.seen.what, event.seen.node.as_ref())
        {
            for peer in peers {
                note(node, *peer, event.exhibit(message.clone()), "its log reports it".to_owned());
            }
        }
    }
    missed.into_values().collect()
}

/// How often a readiness probe failed.
fn failures(event: &Event) -> String {
    match event.first_age {
        Some(first) if event.count > 1 => {
            format!("the readiness probe failed {} times in {}", event.count, days(first))
        }
        _ if event.count > 1 => format!("the readiness probe failed {} times", event.count),
        _ => "the readiness probe failed".to_owned(),
    }
}

/// A node by its name, or by the text that does not tell it.
fn called(case: &Case<'_>, node: &NodeName) -> String {
    let is_nameless = case.evidence.unplaced.iter().any(|unplaced| unplaced.name == *node);
    if is_nameless { format!("the node of {node}") } else { node.to_string() }
}

/// Every session that anybody looked at.
fn sessions<'e>(case: &Case<'e>) -> impl Iterator<Item = (&'e NodeName, &'e Sighted<BgpSession>)> + use<'e> {
    case.all_nodes()
        .flat_map(|node| node.bgp.iter().flat_map(|bgp| &bgp.sessions).map(|session| (&node.name, session)))
}

fn described(session: &BgpSession) -> String {
    format!("{} {} {} {}", session.peer, session.state, session.since, session.info)
}

fn told_by_bird(session: &BgpSession) -> String {
    let since = if session.since.is_empty() { String::new() } else { format!(" since {}", session.since) };
    let meaning = match session.info.as_str() {
        info if info.starts_with("Passive") => ", that is, waiting for the other side to connect",
        info if info.contains("refused") => {
            ": no process listens on the BGP port there, or a firewall \
                                             rejects it"
        }
        info if info.contains("unreachable") || info.contains("No route") => {
            ": there is no route to that address"
        }
        info if info.contains("timed out") => ": that address does not answer",
        _ => "",
    };
    let info = if session.info.is_empty() { "no further information" } else { &session.info };
    format!(
        "BIRD reports state {}, {info:?}{since}{meaning}",
        if session.state.is_empty() { "not up" } else { &session.state }
    )
}

fn days(age: jiff::SignedDuration) -> String {
    let hours = age.as_hours();
    if hours >= 48 { format!("{} days", hours / 24) } else { format!("{hours} hours") }
}

/// The node that goes by an address.
fn node_at<'c>(case: &'c Case<'_>, address: IpAddr) -> Option<&'c NodeName> {
    let mut views = case.node_views().values();
    let view = views.find(|view| {
        view.addresses.iter().any(|recorded| recorded.address() == address)
            || view.internal_ips().any(|ip| ip == address)
    });
    view.map(|view| &view.name)
}

/// Whether anything but the missing daemon speaks of BGP: a pool without VXLAN, a peer, a session, routes that BIRD wrote. A cluster
/// whose pools all go through VXLAN, or that takes its routes from elsewhere, runs no daemon on purpose.
pub(in crate::checks) fn needs_bgp(case: &Case<'_>) -> bool {
    let mut pools = case.pools().iter().filter(|(pool, _)| pool.is_enabled()).peekable();
    if pools.peek().is_some() {
        return pools.any(|(pool, _)| !pool.has_vxlan());
    }
    let records = &case.evidence.records;
    let has_peers = [Kind::BgpPeer, Kind::BgpConfiguration].iter().any(|kind| !records.all(*kind).is_empty());
    let has_tunnel = |node: &NodeEvidence| {
        node.kernel.links.iter().flatten().any(|link| link.seen.name == "vxlan.calico")
            || node
                .kernel
                .routes
                .iter()
                .flatten()
                .any(|route| route.seen.device.as_deref() == Some("vxlan.calico"))
    };
    has_peers || !case.all_nodes().any(has_tunnel)
}
