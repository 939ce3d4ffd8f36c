//! Which node a file speaks of, once all files are read.
//!
//! A prompt names the machine. Else the file's name up to its first dot may: it does if a node of that name (compared without
//! case) is known from anything that was read, or if no node is known at all. Otherwise what was read stays unplaced.

use std::collections::BTreeSet;

use evidence::{Evidence, Happening, Partial};
use model::NodeName;

use super::draft::{Draft, WholeLists};

pub(crate) fn place(drafts: Vec<Draft>) -> Evidence {
    let known = known_nodes(&drafts);
    let mut evidence = Evidence::default();
    let mut whole = WholeLists::default();
    for mut draft in drafts {
        let by_name = node_of_file(&draft.file, &known);
        name_log(&mut draft, by_name.as_ref());
        for (host, mut node) in std::mem::take(&mut draft.nodes) {
            match host.or_else(|| by_name.clone()) {
                Some(name) => {
                    node.name = known.get(&name).cloned().unwrap_or(name);
                    evidence.node_mut(&node.name).absorb(node);
                }
                None => evidence.unplaced.push(node),
            }
        }
        whole.pods |= draft.whole.pods;
        whole.kube_nodes |= draft.whole.kube_nodes;
        whole.endpoints |= draft.whole.endpoints;
        evidence.absorb(draft.cluster);
    }
    // What no text tells of is not told in part: somebody else may have listed it.
    evidence.partial = Partial {
        pods: evidence.pods.is_some() && !whole.pods,
        kube_nodes: evidence.kube_nodes.is_some() && !whole.kube_nodes,
        endpoints: evidence.endpoints.is_some() && !whole.endpoints,
    };
    evidence
}

/// Logs without a host of their own were written where the file says.
fn name_log(draft: &mut Draft, node: Option<&NodeName>) {
    let Some(node) = node else { return };
    for event in draft.cluster.log.iter_mut().flatten() {
        event.seen.node.get_or_insert_with(|| node.clone());
    }
}

/// `dir/slave-140.ip-route.txt` is slave-140's, if there is such a node. Logs are also called for what wrote them:
/// `kubelet-slave-140.log`.
fn node_of_file(file: &str, known: &BTreeSet<NodeName>) -> Option<NodeName> {
    let base = file.rsplit('/').next().unwrap_or(file);
    let (stem, rest) = base.split_once('.').unwrap_or((base, ""));
    let find = |name: &str| known.get(&NodeName::from(name)).cloned();
    let after_dash = || stem.split_once('-').and_then(|(_, after)| find(after));
    let is_named = known.is_empty() && rest.contains('.') && !stem.is_empty();
    find(stem).or_else(after_dash).or_else(|| is_named.then(|| stem.into()))
}

/// Every name of a node that anything tells, as it was spelled first.
fn known_nodes(drafts: &[Draft]) -> BTreeSet<NodeName> {
    let mut known = BTreeSet::new();
    let mut add = |name: &NodeName| {
        if !name.is_empty() {
            known.insert(name.clone());
        }
    };
    // Records spell names as they are; hosts in logs and prompts may be spelled otherwise, so they come last.
    for draft in drafts {
        let cluster = &draft.cluster;
        cluster.kube_nodes.iter().flatten().for_each(|node| add(&node.seen.name));
        cluster
            .records
            .all(model::Kind::Node)
            .iter()
            .for_each(|node| add(&node.seen.metadata.name.as_str().into()));
        cluster.pods.iter().flatten().filter_map(|pod| pod.seen.node.as_ref()).for_each(&mut add);
        cluster
            .endpoints
            .iter()
            .flatten()
            .filter_map(|endpoint| endpoint.seen.node.as_ref())
            .for_each(&mut add);
        cluster.events.iter().flatten().filter_map(|event| event.seen.node.as_ref()).for_each(&mut add);
    }
    for draft in drafts {
        draft.nodes.keys().flatten().for_each(&mut add);
        for event in draft.cluster.log.iter().flatten() {
            event.seen.node.as_ref().into_iter().for_each(&mut add);
            match &event.seen.what {
                Happening::EndpointWritten { endpoint } => {
                    endpoint.node.as_ref().into_iter().for_each(&mut add)
                }
                Happening::NodeCleaned { node, .. } => add(node),
                _ => {}
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    const ROUTE: &[u8] = b"default via 10.0.0.1 dev eth0\n";

    #[test]
    fn a_files_name_is_a_nodes_if_there_is_such_a_node() {
        let nodes = b"NAME     STATUS   ROLES    AGE   VERSION\nnode-a   Ready    master   33d   v1.18.2\n";
        let evidence =
            read([("nodes.txt", nodes.as_slice()), ("d/Node-A.route.txt", ROUTE), ("misc.route.txt", ROUTE)]);
        assert_eq!(evidence.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["node-a"]);
        assert_eq!(evidence.unplaced.len(), 1);
        assert_eq!(evidence.unplaced[0].name.as_str(), "misc.route.txt");
    }

    #[test]
    fn without_any_other_word_the_name_is_believed() {
        let evidence = read([("node-a.route.txt", ROUTE), ("routes.txt", ROUTE)]);
        assert_eq!(evidence.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["node-a"]);
        assert_eq!(evidence.unplaced.len(), 1);
    }

    #[test]
    fn a_files_name_may_have_any_letters() {
        for name in ["\u{130}\u{130}.\u{e9}.log", "\u{130}.x.y", "\u{e9}.\u{130}.y", "..", ".\u{130}", ""] {
            read([(name, ROUTE)]);
        }
        let evidence = read([("\u{130}\u{130}.\u{e9}.log", ROUTE)]);
        let names: Vec<&str> = evidence.nodes.values().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["\u{130}\u{130}"]);
    }

    #[test]
    fn a_prompt_names_the_machine() {
        let text = b"[root@n1 ~]# ip route\ndefault via 10.0.0.1 dev eth0\n[root@n2 ~]# ip route\n10.0.0.0/8 dev eth0\n";
        let evidence = read([("paste.txt", text.as_slice())]);
        assert_eq!(evidence.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>(), ["n1", "n2"]);
    }
}
