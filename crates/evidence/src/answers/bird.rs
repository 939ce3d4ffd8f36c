//! BGP as `calicoctl node status` and BIRD's `show protocols` (also `all`) tell it.

use crate::node::{Bgp, BgpSession, BirdProtocol};
use crate::{Origin, Sighted};

use super::table::{Header, boxed};

/// What is told of a session in several rows is cut after this: a table can go on for as long as its text.
const INFO_BYTES_MAX: usize = 1 << 10;

/// Reads lines of both tools.
#[derive(Debug, Default)]
pub struct BgpReader {
    pub bgp: Option<Bgp>,
    /// The headings of the boxed table that is being read, in upper case.
    headings: Option<Vec<String>>,
    protocols: Option<Header>,
    /// Lines below a protocol, which `all` prints, say more of it.
    below: Below,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Below {
    #[default]
    Nothing,
    Protocol,
    /// A session under a name of its own, the last of the protocols. Its neighbour makes it one.
    SessionOfUnknownPeer,
}

impl BgpReader {
    /// Takes in a line. `false`: it is of neither tool.
    pub fn line(&mut self, text: &str, origin: impl FnOnce() -> Origin) -> bool {
        self.status(text) || self.peer(text, origin)
    }

    /// Lines of calicoctl around its tables.
    fn status(&mut self, text: &str) -> bool {
        let trimmed = text.trim();
        if trimmed.starts_with("Calico process is") {
            let bgp = self.bgp.get_or_insert_default();
            bgp.is_running = Some(trimmed == "Calico process is running.");
            return true;
        }
        // The agent runs, its BIRD does not.
        if trimmed.starts_with("The BGP backend process (BIRD) is not running") {
            self.bgp.get_or_insert_default().is_running = Some(false);
            return true;
        }
        if trimmed.ends_with("BGP status") {
            self.bgp.get_or_insert_default();
            return true;
        }
        if trimmed.starts_with("BIRD ") && trimmed.ends_with(" ready.") {
            return true;
        }
        let is_box = trimmed.starts_with("+-") && trimmed.ends_with("-+");
        self.bgp.is_some() && (is_box || trimmed.starts_with("No IPv"))
    }

    fn peer(&mut self, text: &str, origin: impl FnOnce() -> Origin) -> bool {
        if let Some(cells) = boxed(text) {
            return self.boxed_row(&cells, origin);
        }
        let is_header = |header: &Header| header.has(&["NAME", "PROTO", "TABLE", "STATE", "SINCE"]);
        if let Some(header) = Header::read(text).filter(is_header) {
            self.bgp.get_or_insert_default();
            self.protocols = Some(header);
            return true;
        }
        if self.below != Below::Nothing && text.starts_with([' ', '\t']) {
            self.detail(text);
            return true;
        }
        self.below = Below::Nothing;
        self.protocol(text, origin)
    }

    /// `    Neighbor address: 192.0.2.9` or, on a link, `fe80::1%eth0`.
    fn detail(&mut self, text: &str) {
        let Some(address) = text.trim().strip_prefix("Neighbor address:") else { return };
        let address = address.trim().split('%').next().unwrap_or_default().parse();
        let (Ok(peer), Below::SessionOfUnknownPeer) = (address, &self.below) else { return };
        self.below = Below::Protocol;
        let Some(bgp) = &mut self.bgp else { return };
        let Some(Sighted { seen, origin }) = bgp.protocols.pop() else { return };
        let BirdProtocol { name, state, since, info, .. } = seen;
        let session = BgpSession { peer, peer_type: name, state, since, info };
        bgp.sessions.push(Sighted::new(session, origin));
    }

    fn boxed_row(&mut self, cells: &[&str], origin: impl FnOnce() -> Origin) -> bool {
        if cells.contains(&"PEER ADDRESS") {
            self.headings = Some(cells.iter().map(|cell| cell.to_uppercase()).collect());
            return true;
        }
        let Some(headings) = &self.headings else { return false };
        let cell = |name: &str| {
            let at = headings.iter().position(|heading| heading == name);
            at.and_then(|at| cells.get(at)).map_or_else(String::new, |cell| (*cell).to_owned())
        };
        if cell("PEER ADDRESS").is_empty() {
            return self.wrapped(&cell("INFO"));
        }
        let Ok(peer) = cell("PEER ADDRESS").parse() else { return false };
        let session = BgpSession {
            peer,
            peer_type: cell("PEER TYPE"),
            state: cell("STATE"),
            since: cell("SINCE"),
            info: cell("INFO"),
        };
        self.bgp.get_or_insert_default().sessions.push(Sighted::new(session, origin()));
        true
    }

    /// Long words go on in the row below.
    fn wrapped(&mut self, info: &str) -> bool {
        let Some(session) = self.bgp.as_mut().and_then(|bgp| bgp.sessions.last_mut()) else { return false };
        let known = &mut session.seen.info;
        let room = INFO_BYTES_MAX.saturating_sub(known.len());
        if !info.is_empty() && room > 1 {
            known.push(' ');
            known.push_str(info.get(..info.floor_char_boundary(room - 1)).unwrap_or_default());
        }
        true
    }

    /// `Mesh_172_17_73_65 BGP --- start 2020-05-21 Passive`
    fn protocol(&mut self, text: &str, origin: impl FnOnce() -> Origin) -> bool {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, kind, _table, state, since, info @ ..] = words.as_slice() else { return false };
        if self.protocols.is_none() || !matches!(*state, "up" | "start" | "down" | "stop" | "feed" | "flush")
        {
            return false;
        }
        // Newer ones print date and time apart.
        let (more, info) = match info {
            [time, info @ ..] if time.contains(':') && time.starts_with(|c: char| c.is_ascii_digit()) => {
                (format!(" {time}"), info)
            }
            info => (String::new(), info),
        };
        let since = format!("{since}{more}");
        let bgp = self.bgp.get_or_insert_default();
        // One that is down was switched off by hand: nobody misses its session.
        let is_wanted = *kind == "BGP" && *state != "down";
        self.below = Below::Protocol;
        match peer_of(name).filter(|_| *kind == "BGP") {
            Some(peer) => {
                let session = BgpSession {
                    peer,
                    peer_type: peer_type(name),
                    state: (*state).to_owned(),
                    since,
                    info: info.join(" "),
                };
                bgp.sessions.push(Sighted::new(session, origin()));
            }
            None => {
                if is_wanted {
                    self.below = Below::SessionOfUnknownPeer;
                }
                let protocol = BirdProtocol {
                    name: (*name).to_owned(),
                    kind: (*kind).to_owned(),
                    state: (*state).to_owned(),
                    since,
                    info: info.join(" "),
                };
                bgp.protocols.push(Sighted::new(protocol, origin()));
            }
        }
        true
    }
}

/// Calico names protocols for their peers: `Mesh_10_0_0_1`, `Node_fd00__1_port_179`, `Global_…`.
fn peer_of(name: &str) -> Option<std::net::IpAddr> {
    let (_, peer) = name.split_once('_').filter(|(kind, _)| matches!(*kind, "Mesh" | "Node" | "Global"))?;
    let peer = peer.split_once("_port_").map_or(peer, |(peer, _)| peer);
    peer.replace('_', ".").parse().ok().or_else(|| peer.replace('_', ":").parse().ok())
}

fn peer_type(name: &str) -> String {
    match name.split('_').next() {
        Some("Mesh") => "node-to-node mesh",
        Some("Node") => "node specific",
        _ => "global",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Bgp {
        let mut reader = BgpReader::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            assert!(reader.line(line, || Origin::file("f")), "{line}");
        }
        reader.bgp.unwrap()
    }

    #[test]
    fn node_status() {
        let bgp = read(include_str!("../../../../tests/incidents/wrong-nic/k8smater1.bgp-status.txt"));
        assert_eq!(bgp.is_running, Some(true));
        let session = &bgp.sessions[0].seen;
        assert_eq!((session.peer.to_string().as_str(), session.info.as_str()), ("172.17.73.65", "Passive"));
        assert!(!session.is_established());
        let after =
            read(include_str!("../../../../tests/incidents/wrong-nic-after/k8smater1.bgp-status.txt"));
        assert!(after.sessions[0].seen.is_established());
        assert_eq!(read("Calico process is not running.").is_running, Some(false));
    }

    #[test]
    fn words_that_go_on_below_are_joined() {
        let bgp = read(
            "Calico process is running.\nIPv4 BGP status\n\
             +--------------+-------------------+-------+------------+--------------------------------+\n\
             | PEER ADDRESS |     PEER TYPE     | STATE |   SINCE    |              INFO              |\n\
             +--------------+-------------------+-------+------------+--------------------------------+\n\
             | 10.0.0.11    | node-to-node mesh | up    | 2023-05-01 | Established                    |\n\
             | 10.0.0.13    | node-to-node mesh | start | 2023-05-01 | Active Socket: Connection      |\n\
             |              |                   |       |            | refused                        |\n\
             +--------------+-------------------+-------+------------+--------------------------------+\n\
             IPv6 BGP status\nNo IPv6 peers found.",
        );
        assert_eq!(bgp.sessions[1].seen.info, "Active Socket: Connection refused");
        assert_eq!(bgp.sessions.len(), 2);
        let stopped = read("Calico process is running.\nThe BGP backend process (BIRD) is not running.");
        assert_eq!(stopped.is_running, Some(false));
    }

    /// Each row was copied together with all before it.
    #[test]
    fn what_goes_on_without_an_end_is_cut() {
        let mut reader = BgpReader::default();
        let row = |peer: &str, info: &str| format!("| {peer} | global | up | 10:00 | {info} |");
        let mut lines = vec!["| PEER ADDRESS | PEER TYPE | STATE | SINCE | INFO |".to_owned()];
        lines.push(row("10.0.0.11", "Active"));
        lines.extend((0..1_000).map(|_| "|  |  |  |  | \u{e9}t\u{e9} |".to_owned()));
        lines.push(row("10.0.0.12", "Established"));
        for line in &lines {
            assert!(reader.line(line, || Origin::file("f")), "{line}");
        }
        let sessions = reader.bgp.unwrap().sessions;
        let cut = &sessions[0].seen.info;
        assert!(cut.starts_with("Active \u{e9}t\u{e9} \u{e9}t\u{e9} "), "{cut}");
        assert!((INFO_BYTES_MAX - 4..=INFO_BYTES_MAX).contains(&cut.len()), "{}", cut.len());
        assert_eq!(sessions[1].seen.info, "Established");
    }

    #[test]
    fn show_protocols() {
        let bgp = read(
            "BIRD v0.3.3+birdv1.6.8 ready.\nname     proto    table    state  since       info\n\
             static1  Static   master   up     2020-05-21\nkernel1  Kernel   master   up     2020-05-21\n\
             Mesh_172_17_73_65 BGP      master   start  2020-05-21  Passive\n\
             Node_fd00__1 BGP        ---        up     2024-01-01 10:00:00  Established",
        );
        assert_eq!((bgp.protocols.len(), bgp.sessions.len()), (2, 2));
        assert_eq!(bgp.sessions[0].seen.peer_type, "node-to-node mesh");
        assert_eq!(bgp.sessions[1].seen.peer.to_string(), "fd00::1");
        assert!(bgp.sessions[1].seen.is_established());
    }

    #[test]
    fn protocols_with_names_of_their_own() {
        let bgp = read(ALL);
        let sessions: Vec<_> = bgp
            .sessions
            .iter()
            .map(|session| {
                (
                    session.seen.peer.to_string(),
                    session.seen.peer_type.as_str(),
                    session.seen.is_established(),
                )
            })
            .collect();
        assert_eq!(
            sessions,
            [
                ("192.0.2.9".to_owned(), "uplink", false),
                ("10.0.0.2".to_owned(), "node-to-node mesh", true),
                ("fe80::1".to_owned(), "rack", true)
            ]
        );
        assert_eq!(bgp.sessions[0].seen.info, "Active Socket: Connection refused");
        let others: Vec<&str> = bgp.protocols.iter().map(|protocol| protocol.seen.name.as_str()).collect();
        assert_eq!(others, ["device1", "spare"], "what was switched off is no session that is missed");
    }

    /// As BIRD 2 prints it, shortened.
    const ALL: &str = "BIRD 2.0.12 ready.\n\
        Name       Proto      Table      State  Since         Info\n\
        device1    Device     ---        up     10:00:00.000  \n\n\
        uplink     BGP        ---        start  10:00:00.000  Active        Socket: Connection refused\n  \
          BGP state:          Active\n    Neighbor address: 192.0.2.9\n    Neighbor AS:      65001\n    Local AS:         65002\n  \
          Channel ipv4\n    State:          DOWN\n    Table:          master4\n\n\
        Mesh_10_0_0_2 BGP        ---        up     10:00:00.000  Established   \n  \
          BGP state:          Established\n    Neighbor address: 10.0.0.2\n\n\
        rack       BGP        ---        up     10:00:00.000  Established   \n  \
          BGP state:          Established\n    Neighbor address: fe80::1%eth0\n\n\
        spare      BGP        ---        down   10:00:00.000  \n  \
          BGP state:          Down\n    Neighbor address: 192.0.2.10\n";

    proptest! {
        #[test]
        fn damaged_answers_are_survived(from in 0..ALL.len(), to in 0..ALL.len()) {
            let mut reader = BgpReader::default();
            reader.line("name proto table state since info", || Origin::file("f"));
            for line in ALL.get(from.min(to)..from.max(to)).unwrap_or_default().lines() {
                reader.line(line, || Origin::file("f"));
            }
        }

        #[test]
        fn any_line_can_be_tried(lines in prop::collection::vec("\\PC{0,60}", 0..6)) {
            let mut reader = BgpReader::default();
            reader.line("name proto table state since info", || Origin::file("f"));
            for line in &lines {
                reader.line(line, || Origin::file("f"));
            }
        }
    }
}
