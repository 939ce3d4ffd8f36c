//! BGP: the two sides of a session name different AS numbers.

use std::net::IpAddr;

use model::{Kind, Resource};
use serde_json::Value;

use super::{node_at, sessions, tell};
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::{Sighted, Trouble};

/// Calico's, where nothing is configured.
const USUAL_AS: u64 = 64512;

pub(in crate::checks) const CHECK: Check = Check {
    title: "AS numbers of a BGP session do not match",
    explanation: "One side of a BGP session expects a different AS number from the one its peer uses, so \
                  every attempt is rejected immediately. BIRD reports Bad peer AS, or a BGPPeer record has a \
                  different AS number from the node it points to.",
    remedy: "correct asNumber in the BGPPeer, the Node or the BGPConfiguration, or on the router",
    needs: &[&[Need::Bgp], &[Need::Record(Kind::BgpPeer), Need::Record(Kind::Node)]],
    ..Check::error(FindingCode::BgpAsWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, session) in sessions(case).filter(|(_, session)| session.seen.info.contains("Bad peer AS")) {
        let peer = session.seen.peer;
        let expected = peer_records(case, peer).next();
        let summary = match (&expected, told_number(case, peer)) {
            (Some((record, number)), Some(told)) => {
                format!("{} expects AS {number} at {peer}, but {peer} has AS {told}", record.seen.key())
            }
            (Some((record, number)), None) => {
                format!("{} expects AS {number} at {peer}, but {peer} has another", record.seen.key())
            }
            (None, Some(told)) => format!("{node} expects another AS number at {peer} than its AS {told}"),
            (None, None) => format!("{node} and {peer} expect different AS numbers"),
        };
        tell(look, node, session, summary);
    }
    for peer in case.evidence.records.all(Kind::BgpPeer) {
        let address = peer.seen.spec("peerIP").and_then(Value::as_str).and_then(address_of);
        let expected = peer.seen.spec("asNumber").and_then(as_number);
        let (Some(address), Some(expected)) = (address, expected) else { continue };
        let Some(record) = node_at(case, address).and_then(|node| case.node_view(node)?.record) else {
            continue;
        };
        let real = as_of(case, &record.seen);
        if real != expected {
            let name = &record.seen.metadata.name;
            let summary = format!(
                "{} expects AS {expected} at {address}, but node {name} has AS {real}",
                peer.seen.key()
            );
            look.found(peer.seen.key(), summary)
                .seen(peer.exhibit(format!("asNumber {expected}")))
                .seen(record.exhibit(format!("AS {real}")));
        }
    }
}

/// The records of a peer, each with the AS number that it expects.
fn peer_records<'e>(case: &Case<'e>, peer: IpAddr) -> impl Iterator<Item = (&'e Sighted<Resource>, u64)> {
    case.evidence.records.all(Kind::BgpPeer).iter().filter_map(move |record| {
        let address = record.seen.spec("peerIP").and_then(Value::as_str).and_then(address_of)?;
        (address == peer).then_some((record, record.seen.spec("asNumber").and_then(as_number)?))
    })
}

/// What a peer says of itself, by BIRD's log: `Node_10_7_0_1: Error: Bad peer AS: 65001`.
fn told_number(case: &Case<'_>, peer: IpAddr) -> Option<u64> {
    let name = peer.to_string().replace(['.', ':'], "_");
    let told = case.told_of(Trouble::PeerAs).iter();
    let mut numbers = told.filter(|told| told.message.contains(&format!("_{name}:"))).filter_map(|told| {
        told.message.rsplit_once("Bad peer AS: ")?.1.split_whitespace().next()?.parse().ok()
    });
    numbers.next()
}

/// `10.0.0.1`, `10.0.0.1:1790`.
fn address_of(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| text.rsplit_once(':')?.0.trim_matches(['[', ']']).parse().ok())
}

fn as_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).filter(|number| *number != 0)
}

fn as_of(case: &Case<'_>, node: &Resource) -> u64 {
    let own = node.spec("bgp").and_then(|bgp| as_number(bgp.get("asNumber")?));
    let configuration = case.evidence.records.find(Kind::BgpConfiguration, "default");
    own.or_else(|| as_number(configuration?.seen.spec("asNumber")?)).unwrap_or(USUAL_AS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_what_bird_says() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let session = &mut evidence.node_mut("worker-0000").bgp.as_mut().unwrap().sessions[0].seen;
        session.info = "Idle BGP Error: Bad peer AS".to_owned();
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "BGP session worker-0000 to 172.16.0.2");
    }

    #[test]
    fn fires_for_records_that_disagree() {
        let mut evidence = small();
        evidence.records.add(record(
            Kind::BgpPeer,
            "right",
            json!({"peerIP": "172.16.0.2", "asNumber": 64512}),
        ));
        evidence.records.add(record(
            Kind::BgpPeer,
            "router",
            json!({"peerIP": "172.16.250.1", "asNumber": 65000}),
        ));
        silent(&CHECK, &evidence);
        evidence.records.add(record(
            Kind::BgpPeer,
            "wrong",
            json!({"peerIP": "172.16.0.2", "asNumber": 64513}),
        ));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "BGPPeer(wrong)");
    }
}
