//! BGP sessions, as BIRD tells them.

use doctor::evidence::NodeEvidence;
use doctor::evidence::node::Bgp;
use doctor::text;

/// The same question that operators ask with `birdc`, and the same reader for its answer.
const QUESTION: &str = "show protocols";

/// `None` if there is no BIRD; and what went wrong, in words.
pub(super) fn sessions(node: &str) -> (Option<Bgp>, Vec<String>) {
    let (mut found, mut problems) = (None, Vec::new());
    for socket in host::bird::sockets() {
        match host::bird::ask(&socket, QUESTION) {
            Ok(answer) => {
                let bgp: &mut Bgp = found.get_or_insert_default();
                bgp.is_running = Some(true);
                if let Some(read) = read(node, &answer) {
                    bgp.sessions.extend(read.sessions);
                    bgp.protocols.extend(read.protocols);
                }
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
    fn the_answer_is_read_as_if_it_was_pasted() {
        let answer = "Name       Proto      Table      State  Since         Info\n\
                      kernel1    Kernel     master4    up     10:00:00.000  \n\
                      Mesh_192_0_2_9 BGP        ---        start  10:00:01.000  Active        Socket: Connection refused\n";
        let bgp = read("node-a.example", answer).unwrap();
        assert_eq!((bgp.sessions.len(), bgp.protocols.len()), (1, 1), "{bgp:?}");
        assert!(!bgp.sessions[0].seen.is_established());
    }
}
