//! BGP sessions, as BIRD tells them.

use std::path::PathBuf;

use doctor::evidence::NodeEvidence;
use doctor::evidence::node::Bgp;
use doctor::text;

/// The same question that operators ask with `birdc`, and the same reader for its answer.
const QUESTION: &str = "show protocols";

/// `None` if there is no BIRD; and what went wrong, in words.
pub(super) fn sessions(node: &str) -> (Option<Bgp>, Vec<String>) {
    sessions_at(node, &host::bird::sockets())
}

/// The same at sockets that are known.
pub fn sessions_at(node: &str, sockets: &[PathBuf]) -> (Option<Bgp>, Vec<String>) {
    let (mut found, mut problems) = (None, Vec::new());
    for socket in sockets {
        match host::bird::ask(socket, QUESTION) {
            Ok(answer) => {
                let bgp: &mut Bgp = found.get_or_insert_default();
                bgp.is_running = Some(true);
                if let Some(read) = read(node, &answer) {
                    bgp.sessions.extend(read.sessions);
                    bgp.protocols.extend(read.protocols);
                }
            }
            // It left its socket and nobody is behind it: killed, or crashed. A BIRD that was stopped takes its socket along.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                found.get_or_insert_with(|| Bgp { is_running: Some(false), ..Bgp::default() });
            }
            Err(error) => {
                problems
                    .push(format!("node {node}: BIRD at {} could not be asked: {error}", socket.display()));
            }
        }
    }
    (found, problems)
}

fn read(node: &str, answer: &str) -> Option<Bgp> {
    // A name without a dot is no node's.
    let name = format!("birdc {QUESTION} on {node}").replace('.', "-");
    let evidence = text::read([(name.as_str(), answer.as_bytes())]);
    let nodes: Vec<NodeEvidence> = evidence.nodes.into_values().chain(evidence.unplaced).collect();
    nodes.into_iter().find_map(|node| node.bgp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_serves_is_a_bird_that_died() {
        let folder = tempfile::tempdir().unwrap();
        let (left, never) = (folder.path().join("bird.ctl"), folder.path().join("never.ctl"));
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        let (bgp, problems) = sessions_at("node-a", &[left]);
        assert_eq!((bgp.unwrap().is_running, problems.len()), (Some(false), 0));
        let (bgp, problems) = sessions_at("node-a", &[never]);
        assert_eq!((bgp, problems.len()), (None, 1));
        assert_eq!(sessions_at("node-a", &[]), (None, Vec::new()));
    }

    #[test]
    fn the_answer_is_read_as_if_it_was_pasted() {
        let answer = "Name       Proto      Table      State  Since         Info\n\
                      kernel1    Kernel     master4    up     10:00:00.000  \n\
                      Mesh_192_0_2_9 BGP        ---        start  10:00:01.000  Active        Socket: Connection refused\n";
        let bgp = read("node-a.example", answer).unwrap();
        assert_eq!((bgp.sessions.len(), bgp.protocols.len()), (1, 1), "{bgp:?}");
        assert!(!bgp.sessions[0].seen.is_established());
    }
}
