//! What several texts say about one thing becomes one piece of evidence: a table and a description of the same node,
//! a list and the full record of the same endpoint.

use std::collections::BTreeMap;

use evidence::{Endpoint, Evidence, KubeNode, Pod, Sighted};

pub(crate) fn tidy(mut evidence: Evidence) -> Evidence {
    evidence.kube_nodes =
        evidence.kube_nodes.map(|nodes| merge(nodes, |node| node.name.clone(), |_, _| true, join_nodes));
    evidence.pods = evidence.pods.map(|pods| merge(pods, |pod| pod.name.clone(), same_pod, join_pods));
    let endpoint_key = |endpoint: &Endpoint| {
        (endpoint.node.clone(), endpoint.namespace.clone(), endpoint.name.clone(), endpoint.interface.clone())
    };
    evidence.endpoints =
        evidence.endpoints.map(|endpoints| merge(endpoints, endpoint_key, same_endpoint, join_endpoints));
    evidence
}

/// With no more versions of one thing than this another one is compared: texts contradict each other two or three times, not a
/// million times.
const VERSIONS_MAX: usize = 50;

/// In the order of the first sighting, whose place is kept. `same` says whether two that go by one key can be one: where they
/// contradict each other both are kept, for the checks to see.
fn merge<T, K: Ord>(
    items: Vec<Sighted<T>>,
    key: impl Fn(&T) -> K,
    same: impl Fn(&T, &T) -> bool,
    join: impl Fn(&mut T, T),
) -> Vec<Sighted<T>> {
    let mut places: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    let mut merged: Vec<Sighted<T>> = Vec::with_capacity(items.len());
    for item in items {
        let places = places.entry(key(&item.seen)).or_default();
        let is_same = |place: &&usize| merged.get(**place).is_some_and(|known| same(&known.seen, &item.seen));
        let place = places.iter().take(VERSIONS_MAX).find(is_same).copied();
        match place.and_then(|place| merged.get_mut(place)) {
            Some(known) => join(&mut known.seen, item.seen),
            None => {
                places.push(merged.len());
                merged.push(item);
            }
        }
    }
    merged
}

/// Both known and different.
fn differ<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
    a.is_some() && b.is_some() && a != b
}

fn same_pod(a: &Pod, b: &Pod) -> bool {
    let addresses_differ = !a.addresses.is_empty()
        && !b.addresses.is_empty()
        && !a.addresses.iter().any(|address| b.addresses.contains(address));
    !differ(&a.uid, &b.uid) && !differ(&a.node, &b.node) && !addresses_differ
}

fn same_endpoint(a: &Endpoint, b: &Endpoint) -> bool {
    let addresses_differ = !a.addresses.is_empty() && !b.addresses.is_empty() && a.addresses != b.addresses;
    !differ(&a.container_id, &b.container_id)
        && !differ(&a.device, &b.device)
        && !differ(&a.mac, &b.mac)
        && !addresses_differ
}

fn fill<T>(mine: &mut Option<T>, theirs: Option<T>) {
    if mine.is_none() {
        *mine = theirs;
    }
}

fn longer<T>(mine: &mut Vec<T>, theirs: Vec<T>) {
    if theirs.len() > mine.len() {
        *mine = theirs;
    }
}

fn join_nodes(mine: &mut KubeNode, theirs: KubeNode) {
    if mine.status.is_empty() {
        mine.status = theirs.status;
    }
    if mine.provider.is_empty() {
        mine.provider = theirs.provider;
    }
    longer(&mut mine.taints, theirs.taints);
    longer(&mut mine.internal_ips, theirs.internal_ips);
    longer(&mut mine.conditions, theirs.conditions);
    mine.annotations.extend(theirs.annotations);
    mine.labels.extend(theirs.labels);
    fill(&mut mine.lease_renewed_at, theirs.lease_renewed_at);
    fill(&mut mine.created_at, theirs.created_at);
    fill(&mut mine.age, theirs.age);
    mine.places.extend(theirs.places);
}

fn join_pods(mine: &mut Pod, theirs: Pod) {
    if mine.status.is_empty() {
        mine.status = theirs.status;
    }
    longer(&mut mine.addresses, theirs.addresses);
    mine.annotations.extend(theirs.annotations);
    fill(&mut mine.uid, theirs.uid);
    fill(&mut mine.node, theirs.node);
    fill(&mut mine.host_network, theirs.host_network);
    fill(&mut mine.created_at, theirs.created_at);
    fill(&mut mine.age, theirs.age);
    fill(&mut mine.deleted_at, theirs.deleted_at);
    fill(&mut mine.ready, theirs.ready);
}

fn join_endpoints(mine: &mut Endpoint, theirs: Endpoint) {
    fill(&mut mine.device, theirs.device);
    fill(&mut mine.mac, theirs.mac);
    fill(&mut mine.container_id, theirs.container_id);
    fill(&mut mine.created_at, theirs.created_at);
    longer(&mut mine.addresses, theirs.addresses);
    mine.unread.extend(theirs.unread);
}
