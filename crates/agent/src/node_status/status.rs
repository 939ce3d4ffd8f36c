//! The state of a node, in the form of Calico's records.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use evidence::node::{Bgp, BgpSession};
use host::survey::Survey;
use ipnet::IpNet;
use jiff::Timestamp;
use plan::Route;
use serde_json::{Value, json};
use tracing::debug;

use super::rib::{self, RibRoute};

/// `RTPROT_BIRD`, `RTPROT_STATIC`, `RTPROT_BOOT`.
const BY_BIRD: u8 = 12;
const BY_HAND: [u8; 2] = [3, 4];
/// Of each IP version. Stores limit a record to about a megabyte, and this one is written every few seconds.
const ROUTES_MAX: usize = 1_000;

/// What is read from BIRD and the kernel.
pub(super) struct NodeState {
    bgp: Option<Bgp>,
    /// BIRD's answer to `show status`.
    daemon: Option<String>,
    survey: Option<Survey>,
    /// BIRD's own routes.
    rib: Vec<RibRoute>,
}

impl NodeState {
    pub(super) fn read(node: &str, socket: Option<PathBuf>) -> NodeState {
        let sockets = socket.map_or_else(host::bird::sockets, |socket| vec![socket]);
        let daemon = sockets.iter().find_map(|socket| host::bird::ask(socket, "show status").ok());
        let rib = sockets.iter().filter_map(|socket| host::bird::ask(socket, "show route").ok());
        let rib = rib.flat_map(|text| rib::parse(&text)).collect();
        NodeState {
            bgp: gather::bird_sessions(&node.into(), &sockets).0,
            daemon,
            survey: Survey::here().ok(),
            rib,
        }
    }

    pub(super) fn status(&self, classes: &[Value], now: Timestamp) -> Value {
        let mut status = json!({"lastUpdated": now.to_string()});
        for class in classes.iter().filter_map(Value::as_str) {
            match class {
                "Agent" => status["agent"] = self.agent(),
                "BGP" => status["bgp"] = self.bgp(),
                "Routes" => status["routes"] = self.routes(),
                _ => {}
            }
        }
        status
    }

    /// One BIRD process serves both IP versions.
    fn agent(&self) -> Value {
        let Some(text) = &self.daemon else {
            return json!({"birdV4": {"state": "NotReady"}, "birdV6": {"state": "NotReady"}});
        };
        let after = |words: &str| {
            let found = text.lines().find_map(|line| line.trim().strip_prefix(words));
            found.map_or_else(String::new, |rest| rest.trim().to_owned())
        };
        let is_ready = text.contains("Daemon is up and running");
        let daemon = json!({
            "state": if is_ready { "Ready" } else { "NotReady" },
            "version": after("BIRD "),
            "routerID": after("Router ID is "),
            "lastBootTime": after("Last reboot on "),
            "lastReconfigurationTime": after("Last reconfiguration on "),
        });
        json!({"birdV4": daemon, "birdV6": daemon})
    }

    fn bgp(&self) -> Value {
        let sessions = || self.bgp.iter().flat_map(|bgp| &bgp.sessions).map(|session| &session.seen);
        let count = |is_ipv4: bool, is_established: bool| {
            let of_version = sessions().filter(|session| session.peer.is_ipv4() == is_ipv4);
            of_version.filter(|session| session.is_established() == is_established).count()
        };
        let peers = |is_ipv4: bool| -> Vec<Value> {
            sessions().filter(|session| session.peer.is_ipv4() == is_ipv4).map(peer).collect()
        };
        json!({
            "numberEstablishedV4": count(true, true), "numberNotEstablishedV4": count(true, false),
            "numberEstablishedV6": count(false, true), "numberNotEstablishedV6": count(false, false),
            "peersV4": peers(true), "peersV6": peers(false),
        })
    }

    /// Packets take the kernel's routes. BIRD's further routes are not in use, or only announced to peers.
    fn routes(&self) -> Value {
        let of_version = |is_ipv4: bool| -> Vec<Value> {
            let all = self.survey.iter().flat_map(|survey| {
                let routes = survey.routes.iter().map(move |route| (route.destination, survey, route));
                routes.filter(|(destination, ..)| destination.addr().is_ipv4() == is_ipv4)
            });
            let taken: BTreeSet<(IpNet, Option<IpAddr>)> =
                all.clone().map(|(destination, _, route)| (destination, route.gateway)).collect();
            let unused = self.rib.iter().filter(|route| {
                route.destination.addr().is_ipv4() == is_ipv4
                    && !taken.contains(&(route.destination, route.gateway))
            });
            let routes = all.map(|(_, survey, route)| self.route(survey, route));
            let routes: Vec<Value> = routes.chain(unused.map(|route| self.rib_route(route))).collect();
            let skipped = routes.len().saturating_sub(ROUTES_MAX);
            if skipped > 0 {
                debug!(skipped, "the node has too many routes for its status");
            }
            routes.into_iter().take(ROUTES_MAX).collect()
        };
        json!({"routesV4": of_version(true), "routesV6": of_version(false)})
    }

    fn rib_route(&self, route: &RibRoute) -> Value {
        let mut sessions = self.bgp.iter().flat_map(|bgp| &bgp.sessions).map(|session| &session.seen);
        let learned = match route.protocol.split_once('_') {
            Some(("Mesh" | "Global" | "Node", _)) => {
                let of_session = |session: &&BgpSession| protocol_ends_with(&route.protocol, session.peer);
                let peer = sessions.find(of_session).map(|session| session.peer).or(route.gateway);
                let sort = if route.protocol.starts_with("Mesh") { "NodeMesh" } else { "BGPPeer" };
                match peer {
                    Some(peer) => json!({"sourceType": sort, "peerIP": peer}),
                    None => json!({"sourceType": sort}),
                }
            }
            _ if route.protocol.starts_with("direct") => json!({"sourceType": "Direct"}),
            _ if route.protocol.starts_with("kernel") => json!({"sourceType": "Kernel"}),
            _ => json!({"sourceType": "Static"}),
        };
        route_value("RIB", route.destination, route.gateway, route.device.as_deref(), learned)
    }

    fn route(&self, survey: &Survey, route: &Route) -> Value {
        let device = route.device.and_then(|index| survey.device(index));
        let session = route.gateway.and_then(|gateway| self.session_with(gateway));
        let learned = match (route.protocol, session) {
            (BY_BIRD, Some(session)) if session.peer_type == "node-to-node mesh" => {
                json!({"sourceType": "NodeMesh", "peerIP": session.peer})
            }
            (BY_BIRD, Some(session)) => json!({"sourceType": "BGPPeer", "peerIP": session.peer}),
            (BY_BIRD, None) => json!({"sourceType": "BGPPeer"}),
            (protocol, _) if BY_HAND.contains(&protocol) => json!({"sourceType": "Static"}),
            (_, _) if route.gateway.is_none() => json!({"sourceType": "Direct"}),
            _ => json!({"sourceType": "Kernel"}),
        };
        route_value("FIB", route.destination, route.gateway, device, learned)
    }

    fn session_with(&self, peer: std::net::IpAddr) -> Option<&BgpSession> {
        let mut sessions = self.bgp.iter().flat_map(|bgp| &bgp.sessions).map(|session| &session.seen);
        sessions.find(|session| session.peer == peer)
    }
}

fn peer(session: &BgpSession) -> Value {
    const STATES: [&str; 6] = ["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established"];
    let kind = match session.peer_type.as_str() {
        "node-to-node mesh" => "NodeMesh",
        "node specific" => "NodePeer",
        _ => "GlobalPeer",
    };
    let word = session.info.split_whitespace().next().unwrap_or_default();
    // Calico has no state for a side that waits for the other to connect.
    let state = STATES.into_iter().find(|state| *state == word).unwrap_or("Idle");
    json!({"peerIP": session.peer.to_string(), "type": kind, "state": state, "since": session.since})
}

fn route_value(
    kind: &str,
    to: IpNet,
    gateway: Option<IpAddr>,
    device: Option<&str>,
    learned: Value,
) -> Value {
    let mut route = json!({"type": kind, "destination": to.to_string(), "learnedFrom": learned});
    if let Some(gateway) = gateway {
        route["gateway"] = json!(gateway.to_string());
    }
    if let Some(device) = device {
        route["interface"] = json!(device);
    }
    route
}

/// Sessions are named by their peers: `Mesh_10_0_0_2`, `Global_10_0_0_9_port_1790`.
fn protocol_ends_with(protocol: &str, peer: IpAddr) -> bool {
    let name = peer.to_string().replace(['.', ':'], "_");
    protocol.split_once('_').is_some_and(|(_, rest)| {
        rest.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with("_port_"))
    })
}

#[cfg(test)]
mod tests {
    use evidence::{Origin, Sighted};
    use model::Kind;

    use super::*;

    fn state() -> NodeState {
        let session = |peer: &str, info: &str| {
            let session = BgpSession {
                peer: peer.parse().unwrap(),
                peer_type: "node-to-node mesh".to_owned(),
                state: "up".to_owned(),
                since: "10:00:00".to_owned(),
                info: info.to_owned(),
            };
            Sighted::new(session, Origin::file("birdc"))
        };
        let sessions = vec![session("10.0.0.2", "Established"), session("fd00::2", "Passive")];
        let daemon = "BIRD 2.0.12\nRouter ID is 10.0.0.1\nLast reboot on 2026-01-01 10:00:00.000\nDaemon is up and running\n";
        NodeState {
            bgp: Some(Bgp { sessions, ..Bgp::default() }),
            daemon: Some(daemon.to_owned()),
            survey: None,
            rib: Vec::new(),
        }
    }

    #[test]
    fn only_the_requested_classes_are_filled() {
        let status = state().status(&[json!("BGP")], Timestamp::UNIX_EPOCH);
        assert_eq!(status["lastUpdated"], "1970-01-01T00:00:00Z");
        assert_eq!(status["bgp"]["numberEstablishedV4"], 1);
        assert_eq!(status["bgp"]["numberNotEstablishedV6"], 1);
        assert_eq!(
            status["bgp"]["peersV4"],
            json!([{"peerIP": "10.0.0.2", "type": "NodeMesh", "state": "Established", "since": "10:00:00"}])
        );
        assert_eq!(status["bgp"]["peersV6"][0]["state"], "Idle");
        assert!(status.get("agent").is_none() && status.get("routes").is_none());
    }

    #[test]
    fn a_missing_bird_is_not_ready() {
        let status = state().status(&[json!("Agent")], Timestamp::UNIX_EPOCH);
        assert_eq!(status["agent"]["birdV4"]["version"], "2.0.12");
        assert_eq!(status["agent"]["birdV4"]["state"], "Ready");
        let gone = NodeState { daemon: None, ..state() };
        assert_eq!(
            gone.status(&[json!("Agent")], Timestamp::UNIX_EPOCH)["agent"]["birdV4"]["state"],
            "NotReady"
        );
    }

    #[test]
    fn the_status_is_valid_for_calico() {
        let mut resource = model::Resource::new(Kind::CalicoNodeStatus, "a");
        let classes = json!(["Agent", "BGP", "Routes"]);
        resource
            .body
            .insert("spec".to_owned(), json!({"node": "a", "classes": classes, "updatePeriodSeconds": 10}));
        let state = NodeState { survey: Survey::here().ok(), ..state() };
        resource
            .body
            .insert("status".to_owned(), state.status(classes.as_array().unwrap(), Timestamp::UNIX_EPOCH));
        assert_eq!(model::validate::validate(&resource), Vec::new());
    }

    #[test]
    fn routes_that_only_bird_has_are_marked() {
        let text = "Table master4:\n\
            10.9.0.0/16          unicast [Mesh_10_0_0_2 10:00:00] * (100) [i]\n\
            \tvia 10.0.0.2 on eth0\n\
            10.9.0.0/16          unicast [Global_10_0_0_7_port_1790 10:00:00] (100) [AS1i]\n\
            \tvia 10.0.0.9 on eth0\n\
            10.96.0.0/12         blackhole [services_v4 10:00:00] * (200)\n";
        let survey = Survey {
            routes: vec![Route {
                gateway: "10.0.0.2".parse().ok(),
                protocol: BY_BIRD,
                ..Route::to("10.9.0.0/16".parse().unwrap())
            }],
            ..Survey::default()
        };
        let state = NodeState { rib: rib::parse(text), survey: Some(survey), ..state() };
        assert_eq!(
            state.routes()["routesV4"],
            json!([
                {"type": "FIB", "destination": "10.9.0.0/16", "gateway": "10.0.0.2",
                    "learnedFrom": {"sourceType": "NodeMesh", "peerIP": "10.0.0.2"}},
                {"type": "RIB", "destination": "10.9.0.0/16", "gateway": "10.0.0.9", "interface": "eth0",
                    "learnedFrom": {"sourceType": "BGPPeer", "peerIP": "10.0.0.9"}},
                {"type": "RIB", "destination": "10.96.0.0/12", "learnedFrom": {"sourceType": "Static"}},
            ])
        );
    }

    #[test]
    fn a_record_does_not_grow_without_bound() {
        let one =
            rib::parse("10.9.0.0/16 unicast [Mesh_10_0_0_2 10:00:00] * (100)\n\tvia 10.0.0.2 on eth0\n");
        let state = NodeState { rib: vec![one[0].clone(); ROUTES_MAX + 5], ..state() };
        assert_eq!(state.routes()["routesV4"].as_array().unwrap().len(), ROUTES_MAX);
    }

    #[test]
    fn sessions_are_matched_by_name() {
        let check = |name: &str, peer: &str| protocol_ends_with(name, peer.parse().unwrap());
        assert!(check("Mesh_10_0_0_2", "10.0.0.2"));
        assert!(check("Global_10_0_0_2_port_1790", "10.0.0.2"));
        assert!(check("Node_fd00__2", "fd00::2"));
        assert!(!check("Mesh_10_0_0_21", "10.0.0.2"));
    }
}
