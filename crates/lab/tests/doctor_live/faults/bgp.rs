//! Faults of BGP, with real BIRDs.

use anyhow::Result;
use model::{FindingCode, Kind};
use serde_json::json;

use crate::bird::{self, Habits};
use crate::injection::{Fault, Injection, Takes};
use crate::scene::{NODES, address_of};

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::BgpAsWrong, takes: Takes::Cluster, inject: as_wrong_at_bird },
    Fault { code: FindingCode::BgpAsWrong, takes: Takes::Pod, inject: as_wrong_in_record },
    Fault { code: FindingCode::BgpNotRunning, takes: Takes::Cluster, inject: bgp_not_running },
    Fault { code: FindingCode::BgpPortClosed, takes: Takes::Cluster, inject: bgp_port_closed },
    Fault { code: FindingCode::BgpRecordUnfit, takes: Takes::Pod, inject: record_unfit },
    Fault { code: FindingCode::BgpSessionDown, takes: Takes::Cluster, inject: session_blocked },
    Fault { code: FindingCode::BgpSessionDown, takes: Takes::Cluster, inject: session_without_password },
];

/// Sessions that are left when one is gone, each counted at both ends.
const ALL: usize = NODES.len() * (NODES.len() - 1);

fn session(node: &str, peer: &str) -> String {
    format!("BGP session {node} to {}", address_of(peer))
}

/// Starts the node's BIRD anew with other habits; the undo waits until all is as it was.
fn restart(i: &mut Injection<'_>, habits: Habits) -> Result<()> {
    let again = format!("{}; {}", bird::kill(), bird::start(i.node, Habits::default()));
    i.on_node(format!("{}; {}", bird::kill(), bird::start(i.node, habits)), again)?;
    i.undo_waits_for_bgp();
    Ok(())
}

fn expect_both_ends(i: &mut Injection<'_>) -> Result<()> {
    let (node, other) = (i.node, i.other_node());
    i.expect(session(node, other))?;
    i.expect(session(other, node))
}

/// Both ends miss the session, and it is one finding: of the end that comes first.
fn expect_one_session(i: &mut Injection<'_>) -> Result<()> {
    let (first, second) = (i.node.min(i.other_node()), i.node.max(i.other_node()));
    i.expect_symptom(FindingCode::BgpSessionDown, session(second, first));
    i.expect(session(first, second))
}

fn as_wrong_at_bird(i: &mut Injection<'_>) -> Result<()> {
    let (node, other) = (i.node, i.other_node());
    restart(i, Habits { wrong_as_of: Some(other), ..Habits::default() })?;
    bird::wait_for_words(i.scene, node, other, "Bad peer AS")?;
    bird::wait_for_words(i.scene, other, node, "Bad peer AS")?;
    bird::wait_for_sessions(i.scene, ALL - 2)?;
    i.expect_symptom(FindingCode::BgpSessionDown, session(node, other));
    expect_both_ends(i)
}

/// A peering that expects of a node what that node's record does not say.
fn as_wrong_in_record(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("peer-{}", i.lot());
    let spec = json!({"peerIP": address_of(i.node), "asNumber": 65001});
    i.put_resource(Kind::BgpPeer, &name, spec)?;
    i.expect(format!("BGPPeer({name})"))
}

/// Calico stores it, and BIRD would refuse it.
fn record_unfit(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("odd-{}", i.lot());
    let spec = json!({"peerIP": "172.30.0.250", "asNumber": 65001, "keepaliveTime": "24h"});
    i.put_resource(Kind::BgpPeer, &name, spec)?;
    i.expect(format!("BGPPeer({name})"))
}

fn bgp_not_running(i: &mut Injection<'_>) -> Result<()> {
    let (node, other) = (i.node, i.other_node());
    i.on_node(bird::kill(), bird::start(node, Habits::default()))?;
    i.undo_waits_for_bgp();
    bird::wait_for_sessions(i.scene, ALL - 4)?;
    i.expect_symptom(FindingCode::BgpSessionDown, session(other, node));
    i.expect(format!("node {node}"))
}

/// It listens where nobody calls; it calls the others, so sessions are established all the same.
fn bgp_port_closed(i: &mut Injection<'_>) -> Result<()> {
    restart(i, Habits { port: Some(1790), ..Habits::default() })?;
    bird::wait_for_sessions(i.scene, ALL)?;
    i.expect(format!("node {}", i.node))
}

/// A firewall between two nodes.
fn session_blocked(i: &mut Injection<'_>) -> Result<()> {
    let other = i.other_node();
    let rule = |direction: &str| format!("tcp {direction} 179");
    let peer = address_of(other);
    let chain = "type filter hook input priority 0;";
    i.on_node(
        format!(
            "nft 'table ip fault {{ chain blocked {{ {chain} ip saddr {peer} {} drop; ip saddr {peer} {} drop; }}; }}'; \
             birdc -s /run/bird/bird.ctl restart Mesh_{}",
            rule("dport"),
            rule("sport"),
            peer.replace('.', "_")
        ),
        "nft delete table ip fault",
    )?;
    i.undo_waits_for_bgp();
    bird::wait_for_sessions(i.scene, ALL - 2)?;
    expect_one_session(i)
}

/// The kernel drops what has no signature without a word to BIRD, so nobody can tell that this is why.
fn session_without_password(i: &mut Injection<'_>) -> Result<()> {
    let other = i.other_node();
    restart(i, Habits { password_of: Some(other), ..Habits::default() })?;
    bird::wait_for_sessions(i.scene, ALL - 2)?;
    expect_one_session(i)
}
