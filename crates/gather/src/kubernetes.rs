//! What Kubernetes shows: its pods and nodes as witnesses, and as the records that they are where Kubernetes keeps the store. Each object is
//! read once for both, so that one look has one moment of it.

use book::load::Progress;
use evidence::kubernetes::lease_of_object;
use evidence::{Evidence, KubeList, KubeNode, Origin, Pod, Sighted, Unseen};
use model::kube::DecodeError;
use model::kube::views::{Shown, view};
use model::names::EndpointName;
use model::text::on_one_line;
use model::{Key, Kind, NodeName, as_attached};
use plan::USUAL_INTERFACE;
use serde_json::{Map, Value};
use store::StoreError;
use store::kube::{KubeObjects, ObjectKind};

use crate::records::Records;

/// How often a list is started over because the server has forgotten its moment.
const TRIES: usize = 3;

/// What of a list was kept so far.
#[derive(Default)]
pub(crate) struct Shows {
    /// What Kubernetes itself says.
    pub(crate) evidence: Evidence,
    /// The records that its objects show.
    pub(crate) records: Records,
}

/// What objects are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They are the store's records, too.
    WithRecords,
    WitnessesAlone,
}

/// Every pod.
pub(crate) async fn pods(
    objects: &KubeObjects,
    purpose: Purpose,
    progress: &Progress,
) -> Result<Shows, StoreError> {
    let mut shows = list(objects, ObjectKind::Pod, progress, |shows: &mut Shows, object| {
        shows.take(Shown::Pod, purpose, object);
    })
    .await?;
    shows.evidence.pods.get_or_insert_default();
    Ok(shows)
}

/// Every node, and when their kubelets renewed their leases. Leases tell more, and are not needed: one that may not read them sees the rest.
pub(crate) async fn nodes(
    objects: &KubeObjects,
    purpose: Purpose,
    progress: &Progress,
) -> Result<Shows, StoreError> {
    let nodes = list(objects, ObjectKind::Node, progress, |shows: &mut Shows, object| {
        shows.take(Shown::Node, purpose, object);
    });
    let leases = list(objects, ObjectKind::Lease, progress, |found: &mut Vec<_>, object| {
        found.extend(lease_of_object(&Value::Object(object)));
    });
    let (nodes, leases) = tokio::join!(nodes, leases);
    let mut shows = nodes?;
    let nodes = shows.evidence.kube_nodes.get_or_insert_default();
    match leases {
        Ok(mut leases) => {
            leases.sort();
            for node in nodes {
                let at = leases.binary_search_by(|(name, _)| name.cmp(&node.seen.name)).ok();
                node.seen.lease_renewed_at = at.and_then(|at| leases.get(at)).map(|(_, renewed)| *renewed);
            }
        }
        Err(error) => shows.evidence.unseen.push(unseen(KubeList::Leases, &error)),
    }
    Ok(shows)
}

/// Pods and nodes of a cluster that keeps no records of the store. What cannot be read is said, with how to be let in.
pub(crate) async fn witnesses(objects: &KubeObjects, progress: &Progress) -> Evidence {
    let (pods, nodes) = tokio::join!(
        pods(objects, Purpose::WitnessesAlone, progress),
        nodes(objects, Purpose::WitnessesAlone, progress),
    );
    let mut evidence = Evidence::default();
    for (list, shows) in [(KubeList::Pods, pods), (KubeList::Nodes, nodes)] {
        match shows {
            Ok(shows) => evidence.absorb(shows.evidence),
            Err(error) => evidence.unseen.push(unseen(list, &error)),
        }
    }
    evidence
}

/// Drops what a cluster says that is another one: every pod of the store would seem to be gone there. It is the same if one of its nodes is a
/// node of the records, or one that was observed.
pub(crate) fn of_this_cluster(mut witnesses: Evidence, cluster: &Evidence) -> Evidence {
    let Some(nodes) = &witnesses.kube_nodes else {
        // Nothing tells whose pods they are.
        (witnesses.pods, witnesses.partial.pods) = (None, false);
        return witnesses;
    };
    let records = cluster.records.all(Kind::Node);
    let is_known = |node: &Sighted<KubeNode>| {
        let name = &node.seen.name;
        cluster.nodes.contains_key(name)
            || records.iter().any(|record| {
                let references = record.seen.spec("orchRefs").and_then(Value::as_array).into_iter().flatten();
                let mut names = references.filter_map(|reference| reference["nodeName"].as_str());
                name.is(&record.seen.metadata.name) || names.any(|of_record| name.is(of_record))
            })
    };
    if !nodes.iter().any(is_known) {
        let why = "it has no node in common with the store and the nodes that were observed, so it is another cluster";
        witnesses = Evidence {
            unseen: vec![Unseen::Kubernetes { list: KubeList::All, why: why.to_owned() }],
            ..Evidence::default()
        };
    }
    witnesses
}

/// What could not be read, why, and what to do about it.
pub(crate) fn unseen(list: KubeList, error: &StoreError) -> Unseen {
    Unseen::Kubernetes { list, why: with_hint(error) }
}

/// An error on one line, with the advice that belongs to it.
pub(crate) fn with_hint(error: &StoreError) -> String {
    let words = on_one_line(error);
    match error.hint() {
        Some(hint) => format!("{words}; {hint}"),
        None => words,
    }
}

/// Every object of a kind, page by page.
async fn list<T: Default>(
    objects: &KubeObjects,
    kind: ObjectKind,
    progress: &Progress,
    mut take: impl FnMut(&mut T, Map<String, Value>),
) -> Result<T, StoreError> {
    let mut tries = 1;
    loop {
        let mut found = T::default();
        match list_once(objects, kind, progress, |object| take(&mut found, object)).await {
            Ok(()) => return Ok(found),
            // Very long lists on a server that forgets fast.
            Err(StoreError::HistoryGone { .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn list_once(
    objects: &KubeObjects,
    kind: ObjectKind,
    progress: &Progress,
    mut take: impl FnMut(Map<String, Value>),
) -> Result<(), StoreError> {
    let mut next: Option<String> = None;
    loop {
        let page = objects.page(kind, next.as_deref()).await?;
        progress.add(page.objects.len());
        page.objects.into_iter().for_each(&mut take);
        match page.next {
            Some(after) => next = Some(after),
            None => return Ok(()),
        }
    }
}

impl Shows {
    fn take(&mut self, shown: Shown, purpose: Purpose, object: Map<String, Value>) {
        let object = Value::Object(object);
        if let (Purpose::WithRecords, Some(map)) = (purpose, object.as_object()) {
            match view(shown, map) {
                // What its status still reports the pod itself says, as a witness.
                Ok(Some(record)) => {
                    self.records.add(&record.key, &as_attached(&record.value), &record.revision);
                }
                Ok(None) => {}
                Err(undecodable) => self.refuse(&object, &undecodable.error),
            }
        }
        if shown == Shown::Pod {
            let pod = Pod::of_object(&object);
            let origin = Origin::Api(format!("pod/{}", pod.name).into());
            self.evidence.pods.get_or_insert_default().push(Sighted::new(pod, origin));
        } else {
            let node = KubeNode::of_object(&object);
            let origin = Origin::Api(format!("node/{}", node.name).into());
            self.evidence.kube_nodes.get_or_insert_default().push(Sighted::new(node, origin));
        }
    }
}

impl Shows {
    /// A pod with an annotation that makes no endpoint. What else it says counts.
    fn refuse(&mut self, object: &Value, error: &DecodeError) {
        let pod = Pod::of_object(object);
        let node = pod.node.as_ref().map_or("", NodeName::as_str);
        match EndpointName::of_pod(node, &pod.name.name, USUAL_INTERFACE).compute() {
            Ok(name) => {
                let namespace = pod.name.namespace.unwrap_or_default();
                let key = Key::namespaced(Kind::WorkloadEndpoint, namespace, name);
                self.records.refuse(&key, on_one_line(error));
            }
            Err(_) => {
                let why = on_one_line(error);
                self.evidence.unseen.push(Unseen::Kubernetes { list: KubeList::Pods, why });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Resource;

    use super::*;

    fn witnesses(node: &str) -> Evidence {
        let node = KubeNode { name: node.into(), ..KubeNode::default() };
        let nodes = vec![Sighted::new(node, Origin::Api("node".into()))];
        Evidence { pods: Some(Vec::new()), kube_nodes: Some(nodes), ..Evidence::default() }
    }

    #[test]
    fn another_cluster_is_no_witness() {
        let mut cluster = Evidence::default();
        let mut record = Resource::new(Kind::Node, "a.example");
        record.body.insert("spec".into(), serde_json::json!({ "orchRefs": [{ "nodeName": "a" }] }));
        cluster.records.add(Sighted::in_store(record));
        cluster.node_mut("b");
        for (node, is_known) in [("a", true), ("a.example", true), ("b", true), ("c", false)] {
            let kept = of_this_cluster(witnesses(node), &cluster);
            assert_eq!((kept.pods.is_some(), kept.unseen.is_empty()), (is_known, is_known), "{node}");
        }
        let unknown = Evidence { kube_nodes: None, ..witnesses("a") };
        assert!(of_this_cluster(unknown, &cluster).pods.is_none());
    }

    #[test]
    fn an_object_is_a_witness_and_a_record() {
        let pod = serde_json::json!({
            "metadata": { "namespace": "shop", "name": "web-0", "uid": "u", "resourceVersion": "7",
                "annotations": { "cni.projectcalico.org/podIP": "10.0.0.1/32", "cni.projectcalico.org/containerID": "c" } },
            "spec": { "nodeName": "a" }, "status": { "phase": "Running", "podIP": "10.0.0.1" },
        });
        let mut shows = Shows::default();
        shows.take(Shown::Pod, Purpose::WithRecords, pod.as_object().unwrap().clone());
        let (pods, records) = (shows.evidence.pods.unwrap(), shows.records.finish(true));
        assert_eq!(pods[0].exhibit("").file, "pod/shop/web-0");
        let endpoint = &records.endpoints.unwrap()[0].seen;
        assert_eq!((endpoint.pod.as_deref(), &endpoint.addresses), (Some("web-0"), &pods[0].seen.addresses));
        let mut emptied = pod.clone();
        emptied["metadata"]["annotations"]["cni.projectcalico.org/podIP"] = "".into();
        let mut shows = Shows::default();
        shows.take(Shown::Pod, Purpose::WithRecords, emptied.as_object().unwrap().clone());
        let (pods, records) = (shows.evidence.pods.unwrap(), shows.records.finish(true));
        assert_eq!(pods[0].seen.addresses.len(), 1, "the kubelet reports it");
        assert!(records.endpoints.unwrap()[0].seen.addresses.is_empty(), "and no attachment has it");
        let mut odd = pod.clone();
        odd["metadata"]["annotations"]["cni.projectcalico.org/floatingIPs"] = "no list".into();
        let mut shows = Shows::default();
        shows.take(Shown::Pod, Purpose::WithRecords, odd.as_object().unwrap().clone());
        let books = shows.records.finish(true).ipam.unwrap().books;
        assert_eq!(
            books.unreadable[0].key,
            Key::namespaced(Kind::WorkloadEndpoint, "shop", "a-k8s-web--0-eth0")
        );
        assert_eq!(shows.evidence.pods.unwrap().len(), 1);
        let mut shows = Shows::default();
        shows.take(Shown::Pod, Purpose::WitnessesAlone, pod.as_object().unwrap().clone());
        assert!(shows.records.finish(true).endpoints.unwrap().is_empty());
    }
}
