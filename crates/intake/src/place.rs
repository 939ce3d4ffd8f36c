//! Which node a file speaks of, once all files are read.
//!
//! A prompt names the machine. Else the file's name or its directory's may: they do if a node of that name (compared without case), or
//! a pod on a node's network, is known from anything that was read; or if no node is known at all. Else the content may: a host name,
//! an address that a node has. Otherwise what was read stays unplaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use evidence::kernel::{Kernel, PodView};
use evidence::{Evidence, Happening, NodeEvidence, Partial};
use model::NodeName;

use super::draft::{Draft, LogOwner, WholeLists};

/// Names of files and directories are looked through up to here. No file system has longer ones.
const TEXT_BYTES_MAX: usize = 255;
/// `ip-10-0-1-23.eu-west-1.compute.internal` has ten.
const NAME_WORDS_MAX: usize = 24;

pub(crate) fn place(drafts: Vec<Draft>) -> Evidence {
    let known = Known::of(&drafts);
    let mut evidence = Evidence::default();
    let mut whole = WholeLists::default();
    for mut draft in drafts {
        let by_name = node_of_file(&draft.file, &known);
        let of_pods = log_owners(&draft, &known);
        name_log(&mut draft, &of_pods, by_name.as_ref());
        for (host, mut node) in std::mem::take(&mut draft.nodes) {
            let views = take_host_views(&mut node, &known);
            for (name, kernel) in views {
                evidence.node_mut(&name).kernel.absorb(kernel);
            }
            let has_more = !node.is_empty();
            let by_content = || node_of_content(&node, &known);
            match host.or_else(|| by_name.clone()).or_else(by_content) {
                _ if !has_more => {}
                Some(name) => {
                    node.name = known.nodes.get(&name).cloned().unwrap_or(name);
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

/// What was seen from inside a pod on its node's network is the node's own.
fn take_host_views(node: &mut NodeEvidence, known: &Known) -> Vec<(NodeName, Kernel)> {
    let Some(views) = node.pod_views.take() else { return Vec::new() };
    let host_of = |view: &PodView| known.host_pods.get(&view.pod.as_ref()?.name).cloned();
    let (of_nodes, of_pods): (Vec<PodView>, Vec<PodView>) =
        views.into_iter().partition(|view| host_of(view).is_some());
    node.pod_views = (!of_pods.is_empty()).then_some(of_pods);
    of_nodes.into_iter().filter_map(|view| Some((host_of(&view)?, view.kernel))).collect()
}

/// Logs without a host of their own were written where the file says.
fn name_log(draft: &mut Draft, owners: &[(usize, Option<NodeName>)], node: Option<&NodeName>) {
    for (index, event) in draft.cluster.log.iter_mut().flatten().enumerate() {
        // They come in the order of their events.
        let place = owners.partition_point(|(start, _)| *start <= index).checked_sub(1);
        let owner = place.and_then(|place| owners.get(place)?.1.as_ref()).or(node);
        if let (None, Some(owner)) = (&event.seen.node, owner) {
            event.seen.node = Some(owner.clone());
        }
    }
}

/// From which event on a log is whose, where `kubectl logs POD` says so.
fn log_owners(draft: &Draft, known: &Known) -> Vec<(usize, Option<NodeName>)> {
    let owner = |owner: &LogOwner| match &owner.pod {
        Some(pod) => known.host_pods.get(pod).cloned(),
        // A client's prompt names the client, who is no node.
        None => owner.host.as_ref().and_then(|host| known.nodes.get(host).cloned()),
    };
    draft.log_owners.iter().map(|of| (of.first, owner(of))).collect()
}

/// `dir/slave-140.ip-route.txt` is slave-140's, if there is such a node; so are `kubelet-slave-140.log`, `ip-route_slave-140.txt` and
/// whatever is in a directory of that name. A name that is part of a longer one does not count.
fn node_of_file(file: &str, known: &Known) -> Option<NodeName> {
    let mut parts = file.rsplit('/');
    let base = parts.next().unwrap_or(file);
    let (stem, rest) = base.split_once('.').unwrap_or((base, ""));
    let find = |name: &str| known.nodes.get(&NodeName::from(name)).cloned();
    let in_directory = || parts.find_map(|directory| find(directory).or_else(|| named_in(directory, known)));
    let is_named = known.nodes.is_empty() && rest.contains('.') && !stem.is_empty();
    find(stem)
        .or_else(|| named_in(base, known))
        .or_else(in_directory)
        .or_else(|| is_named.then(|| stem.into()))
}

/// The one node, or the node of the one pod on its node's network, whose name stands in a text by itself. The longest name counts.
///
/// What may be a name is looked up, word by word: there may be as many names as files.
fn named_in(text: &str, known: &Known) -> Option<NodeName> {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX))?.to_ascii_lowercase();
    let mut found: Vec<(usize, &NodeName)> = Vec::new();
    let words = words(&text);
    for (index, (start, _)) in words.iter().enumerate() {
        for (_, end) in words.iter().skip(index).take(NAME_WORDS_MAX) {
            let Some(name) = text.get(*start..*end) else { continue };
            found.extend(known.by_text.get(name).into_iter().flatten().map(|node| (name.len(), node)));
        }
    }
    let longest = found.iter().map(|(length, _)| *length).max()?;
    let mut best = found.iter().filter(|(length, _)| *length == longest).map(|(_, node)| *node);
    let first = best.next()?;
    best.all(|other| other == first).then(|| first.clone())
}

/// Where letters and digits stand together: names begin and end with them.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    for (offset, _) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric()) {
        match words.last_mut() {
            Some((_, end)) if *end == offset => *end = offset + 1,
            _ => words.push((offset, offset + 1)),
        }
    }
    words
}

/// The node that a text's own content names: its host name, or an address that only one node has.
fn node_of_content(node: &NodeEvidence, known: &Known) -> Option<NodeName> {
    let named = node.setup.hostname.as_ref().or(node.setup.nodename_file.as_ref());
    let named = named.and_then(|name| known.nodes.get(&NodeName::from(name.seen.as_str())).cloned());
    let held = node.kernel.addresses.iter().flatten().map(|held| held.seen.net.addr());
    named.or_else(|| held.into_iter().find_map(|address| known.addresses.get(&address).cloned()))
}

/// What the texts tell of nodes.
#[derive(Debug, Default)]
struct Known {
    /// Every name of a node that anything tells, as it was spelled first.
    nodes: BTreeSet<NodeName>,
    /// Nodes by their addresses in Kubernetes.
    addresses: BTreeMap<IpAddr, NodeName>,
    /// Pods on their nodes' network, which see what the node sees, by name.
    host_pods: BTreeMap<String, NodeName>,
    /// Both by the texts in which they stand in names of files; pods of different nodes may have one name.
    by_text: BTreeMap<String, Vec<NodeName>>,
}

impl Known {
    fn of(drafts: &[Draft]) -> Known {
        let mut known = Known { nodes: known_nodes(drafts), ..Known::default() };
        for node in drafts.iter().flat_map(|draft| draft.cluster.kube_nodes.iter().flatten()) {
            for address in &node.seen.internal_ips {
                known.addresses.insert(*address, node.seen.name.clone());
            }
        }
        for pod in drafts.iter().flat_map(|draft| draft.cluster.pods.iter().flatten()) {
            let pod = &pod.seen;
            let is_agent = ["calico-node-", "kube-proxy-", "plumbd-"]
                .iter()
                .any(|start| pod.name.name.starts_with(start));
            if let Some(node) = pod.node.as_ref().filter(|_| pod.host_network.unwrap_or(is_agent)) {
                known.host_pods.insert(pod.name.name.clone(), node.clone());
            }
        }
        let nodes = known.nodes.iter().map(|node| (node.folded().into_owned(), node));
        let pods = known.host_pods.iter().map(|(pod, node)| (pod.clone(), node));
        for (name, node) in nodes.chain(pods).filter(|(name, _)| name.len() > 1) {
            known.by_text.entry(name).or_default().push(node.clone());
        }
        known
    }
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

    /// The longest name counts, one that two nodes share does not, and a part of a word is none.
    #[test]
    fn names_of_nodes_are_found_in_names_of_files() {
        let nodes =
            b"NAME       STATUS   ROLES    AGE   VERSION\nn1         Ready    master   33d   v1.18.2\n\
            n1.example Ready    master   33d   v1.18.2\nn2         Ready    master   33d   v1.18.2\n";
        let place = |name: &str| {
            let evidence = read([("nodes.txt", nodes.as_slice()), (name, ROUTE)]);
            evidence.nodes.keys().next().map(|node| node.as_str().to_owned())
        };
        for (name, node) in [
            ("ip-route_N1.txt", Some("n1")),
            ("ip-route_n1.example.txt", Some("n1.example")),
            ("kubelet-n1-n2.log", None),
            ("kubelet-xn1.log", None),
            ("from-n2/kubelet-n10.log", Some("n2")),
        ] {
            assert_eq!(place(name).as_deref(), node, "{name}");
        }
    }

    /// Each event looked for its owner among all of them.
    #[test]
    fn events_between_prompts_are_their_machines() {
        let event = |n: usize| {
            format!(
                "time=\"2017-12-13T10:27:42+08:00\" level=info msg=\"Configured environment: [CNI_COMMAND=ADD \
                 CNI_CONTAINERID=a{n} CNI_IFNAME=eth0]\"\n"
            )
        };
        let text: String =
            (0..50).map(|n| format!("[root@n{} ~]# cat x\n{}[root@n9 ~]# date\n", n % 2, event(n))).collect();
        let nodes = b"NAME   STATUS   ROLES    AGE   VERSION\nn0     Ready    master   33d   v1.18.2\n\
            n1     Ready    master   33d   v1.18.2\nn9     Ready    master   33d   v1.18.2\n";
        let evidence = read([("nodes.txt", nodes.as_slice()), ("paste.txt", text.as_bytes())]);
        let owners: Vec<&str> =
            evidence.log.iter().flatten().map(|event| event.seen.node.as_ref().unwrap().as_str()).collect();
        let expected: Vec<String> = (0..50).map(|n| format!("n{}", n % 2)).collect();
        assert_eq!(owners, expected);
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
