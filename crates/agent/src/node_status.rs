//! `CalicoNodeStatus` records that ask about this node, kept up to date: what its BIRD says, its sessions, its routes. So anybody who
//! may read the store can look at a node without being root on it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use doctor::evidence::node::{Bgp, BgpSession};
use host::survey::{Survey, SurveyedRoute};
use jiff::Timestamp;
use model::{Key, KeyRange, Kind};
use serde_json::{Value, json};
use store::{Record, Store};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use crate::follow::{Told, decode, follow};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// `RTPROT_BIRD`, `RTPROT_STATIC`, `RTPROT_BOOT`.
const BY_BIRD: u8 = 12;
const BY_HAND: [u8; 2] = [3, 4];

/// Records about this node, and when each was last written.
type Asked = Mutex<BTreeMap<Key, (Record, Option<Instant>)>>;

/// Never ends. `socket`: BIRD's, if this node speaks BGP; else the usual ones are asked.
pub(crate) async fn keep(node: &str, store: &dyn Store, socket: Option<PathBuf>) {
    let asked: Asked = Mutex::default();
    let changed = Notify::new();
    let following = follow(store, KeyRange::Kind(Kind::CalicoNodeStatus), "statuses of nodes", |told| {
        let mut asked = lock(&asked);
        match told {
            Told::Listing => asked.clear(),
            Told::Listed(record) | Told::Put(record) => {
                let last = asked.remove(&record.key).and_then(|(_, last)| last);
                if asks_about(&record, node) {
                    asked.insert(record.key.clone(), (record, last));
                }
            }
            Told::Deleted(key) => drop(asked.remove(&key)),
            Told::Complete | Told::Lost => {}
        }
        if !asked.is_empty() {
            changed.notify_one();
        }
    });
    let writing = async {
        loop {
            // On most nodes nobody asks, and then there is no reason to wake up.
            if lock(&asked).is_empty() {
                changed.notified().await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            for record in due(&asked) {
                write(store, node, &asked, record, socket.clone()).await;
            }
        }
    };
    tokio::join!(following, writing);
}

fn lock(asked: &Asked) -> MutexGuard<'_, BTreeMap<Key, (Record, Option<Instant>)>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn asks_about(record: &Record, node: &str) -> bool {
    decode(record, Kind::CalicoNodeStatus)
        .is_some_and(|asked| asked.spec("node").and_then(Value::as_str) == Some(node))
}

/// Those whose period is over. A period of nought is a record that shall stay as it is.
fn due(asked: &Asked) -> Vec<Record> {
    let asked = lock(asked);
    let is_due = |(record, last): &&(Record, Option<Instant>)| {
        let period = decode(record, Kind::CalicoNodeStatus)
            .and_then(|asked| asked.spec("updatePeriodSeconds")?.as_u64())
            .unwrap_or(0);
        period > 0 && last.is_none_or(|last| last.elapsed() >= Duration::from_secs(period))
    };
    asked.values().filter(is_due).map(|(record, _)| record.clone()).collect()
}

async fn write(store: &dyn Store, node: &str, asked: &Asked, record: Record, socket: Option<PathBuf>) {
    let Some(mut resource) = decode(&record, Kind::CalicoNodeStatus) else { return };
    let name = node.to_owned();
    let looked = tokio::task::spawn_blocking(move || Seen::look(&name, socket)).await;
    let Ok(seen) = looked else { return };
    let classes = resource.spec("classes").and_then(Value::as_array).cloned().unwrap_or_default();
    resource.body.insert("status".to_owned(), seen.status(&classes, Timestamp::now()));
    // Somebody else's change comes by the watch, and the next look writes onto that.
    if let Err(error) = store.update(record.key.clone(), resource.encode(), record.revision).await {
        debug!("{} was not written: {error}", record.key);
        return;
    }
    let mut asked = lock(asked);
    if let Some((_, last)) = asked.get_mut(&record.key) {
        *last = Some(Instant::now());
    }
}

/// What there is to tell.
struct Seen {
    bgp: Option<Bgp>,
    /// What BIRD answers to `show status`.
    daemon: Option<String>,
    survey: Option<Survey>,
}

impl Seen {
    fn look(node: &str, socket: Option<PathBuf>) -> Seen {
        let sockets = socket.map_or_else(host::bird::sockets, |socket| vec![socket]);
        let daemon = sockets.iter().find_map(|socket| host::bird::ask(socket, "show status").ok());
        Seen { bgp: gather::bird_sessions(node, &sockets).0, daemon, survey: Survey::here().ok() }
    }

    fn status(&self, classes: &[Value], now: Timestamp) -> Value {
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

    /// One daemon speaks for both IP versions.
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

    fn routes(&self) -> Value {
        let of_version = |is_ipv4: bool| -> Vec<Value> {
            let Some(survey) = &self.survey else { return Vec::new() };
            let routes = survey.routes.iter().filter(|route| route.destination.addr().is_ipv4() == is_ipv4);
            routes.map(|route| self.route(survey, route)).collect()
        };
        json!({"routesV4": of_version(true), "routesV6": of_version(false)})
    }

    fn route(&self, survey: &Survey, route: &SurveyedRoute) -> Value {
        let device = route.index.and_then(|index| survey.device(index));
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
        let mut told =
            json!({"type": "FIB", "destination": route.destination.to_string(), "learnedFrom": learned});
        if let Some(gateway) = route.gateway {
            told["gateway"] = json!(gateway.to_string());
        }
        if let Some(device) = device {
            told["interface"] = json!(device);
        }
        told
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
    // A side that waits for the other to connect has no word in Calico's list.
    let state = STATES.into_iter().find(|state| *state == word).unwrap_or("Idle");
    json!({"peerIP": session.peer.to_string(), "type": kind, "state": state, "since": session.since})
}

#[cfg(test)]
mod tests {
    use doctor::{Origin, Sighted};

    use super::*;

    fn seen() -> Seen {
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
        Seen { bgp: Some(Bgp { sessions, ..Bgp::default() }), daemon: Some(daemon.to_owned()), survey: None }
    }

    #[test]
    fn only_what_is_asked_for_is_told() {
        let status = seen().status(&[json!("BGP")], Timestamp::UNIX_EPOCH);
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
    fn a_daemon_that_is_not_there_is_not_ready() {
        let told = seen().status(&[json!("Agent")], Timestamp::UNIX_EPOCH);
        assert_eq!(told["agent"]["birdV4"]["version"], "2.0.12");
        assert_eq!(told["agent"]["birdV4"]["state"], "Ready");
        let gone = Seen { daemon: None, ..seen() };
        assert_eq!(
            gone.status(&[json!("Agent")], Timestamp::UNIX_EPOCH)["agent"]["birdV4"]["state"],
            "NotReady"
        );
    }

    #[test]
    fn what_is_written_is_what_calico_takes() {
        let mut resource = model::Resource::new(Kind::CalicoNodeStatus, "a");
        let classes = json!(["Agent", "BGP", "Routes"]);
        resource
            .body
            .insert("spec".to_owned(), json!({"node": "a", "classes": classes, "updatePeriodSeconds": 10}));
        let seen = Seen { survey: Survey::here().ok(), ..seen() };
        resource
            .body
            .insert("status".to_owned(), seen.status(classes.as_array().unwrap(), Timestamp::UNIX_EPOCH));
        assert_eq!(model::validate::validate(&resource), Vec::new());
    }
}
