//! Which part of a record comes from Kubernetes, and how it is put into one that another store keeps. No clock and no store here.
//!
//! What an object of Kubernetes is to Calico, `model::kube::views` says: where Kubernetes keeps the records that is all there is. Where etcd
//! keeps them, Calico's controllers write that part into records of their own, and so does this.

use std::collections::BTreeMap;

use model::{Kind, Resource};
use serde_json::json;

/// Which labels of a Node came from Kubernetes, so that those that are gone there can be told from Calico's own.
const KUBE_LABELS: &str = "projectcalico.org/kube-labels";
/// What a namespace asks for its pods.
const ASKED: &str = "cni.projectcalico.org/";

/// Kinds that are projected, each from its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Projected {
    /// Profiles of namespaces and service accounts. They are made and removed.
    Profiles,
    /// Labels and service accounts of endpoints that exist.
    Endpoints,
    /// Labels of nodes that exist.
    Nodes,
}

impl Projected {
    pub(super) fn kind(self) -> Kind {
        match self {
            Projected::Profiles => Kind::Profile,
            Projected::Endpoints => Kind::WorkloadEndpoint,
            Projected::Nodes => Kind::Node,
        }
    }

    /// Whether records are made and removed with their objects.
    pub(super) fn owns(self) -> bool {
        self == Projected::Profiles
    }

    /// Whether a record of the store is one that such an object would have. Operators may have profiles of their own.
    pub(super) fn is_ours(self, name: &str) -> bool {
        self != Projected::Profiles || name.starts_with("kns.") || name.starts_with("ksa.")
    }

    /// The record as it should be; `None` if it is so.
    pub(super) fn onto(self, view: &Resource, existing: Option<&Resource>) -> Option<Resource> {
        let wanted = match (self, existing) {
            (Projected::Profiles, _) => profile(view, existing),
            (Projected::Endpoints, Some(existing)) => endpoint(view, existing),
            (Projected::Nodes, Some(existing)) => node(view, existing),
            (Projected::Endpoints | Projected::Nodes, None) => return None,
        };
        (Some(&wanted) != existing).then_some(wanted)
    }
}

fn profile(view: &Resource, existing: Option<&Resource>) -> Resource {
    let mut wanted = match existing {
        Some(existing) => existing.clone(),
        None => {
            let mut new = Resource::new(Kind::Profile, view.metadata.name.as_str());
            new.metadata.uid.clone_from(&view.metadata.uid);
            new.metadata.creation_timestamp.clone_from(&view.metadata.creation_timestamp);
            new
        }
    };
    let spec = view.body.get("spec").cloned().unwrap_or_else(|| json!({}));
    wanted.body.insert("spec".to_owned(), spec);
    wanted.metadata.annotations.retain(|name, _| !name.starts_with(ASKED));
    let asked = view.metadata.annotations.iter().filter(|(name, _)| name.starts_with(ASKED));
    wanted.metadata.annotations.extend(asked.map(|(name, value)| (name.clone(), value.clone())));
    wanted
}

/// Only what Kubernetes can change of a pod that runs. Addresses and sandbox are the plugin's.
fn endpoint(view: &Resource, existing: &Resource) -> Resource {
    let mut wanted = existing.clone();
    wanted.metadata.labels.clone_from(&view.metadata.labels);
    if let Some(account) = view.spec("serviceAccountName") {
        wanted.spec_mut().insert("serviceAccountName".to_owned(), account.clone());
    }
    wanted
}

fn node(view: &Resource, existing: &Resource) -> Resource {
    let of_kubernetes = |record: &Resource| -> BTreeMap<String, String> {
        let text = record.metadata.annotations.get(KUBE_LABELS);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let (new, old) = (of_kubernetes(view), of_kubernetes(existing));
    let mut wanted = existing.clone();
    let labels = &mut wanted.metadata.labels;
    labels.retain(|name, value| old.get(name) != Some(value) || new.contains_key(name));
    labels.extend(new.iter().map(|(name, value)| (name.clone(), value.clone())));
    if new != old {
        wanted.metadata.annotations.insert(KUBE_LABELS.to_owned(), json!(new).to_string());
    }
    wanted
}

/// The node of Kubernetes that a Node of Calico names.
pub(super) fn kubernetes_node(node: &Resource) -> Option<&str> {
    let references = node.spec("orchRefs")?.as_array()?;
    let reference = references.iter().find(|reference| reference["orchestrator"] == "k8s")?;
    reference["nodeName"].as_str()
}

/// What a record is compared by, without what the store adds.
pub(super) fn without_revision(mut record: Resource) -> Resource {
    record.metadata.resource_version = None;
    record
}

#[cfg(test)]
mod tests {
    use model::kube::views::{Shown, view};
    use serde_json::Value;

    use super::*;

    fn view_of(shown: Shown, object: &Value) -> Resource {
        let decoded = view(shown, object.as_object().unwrap()).unwrap().unwrap();
        let kind = decoded.key.kind();
        without_revision(Resource::decode(&decoded.key, kind, &decoded.value, "7").unwrap())
    }

    #[test]
    fn a_profile_is_made_of_its_namespace_and_keeps_what_is_not() {
        let namespace = json!({ "metadata": { "name": "shop", "uid": "01234567-89ab-4def-8123-456789abcdef",
            "labels": { "team": "a" }, "annotations": { "cni.projectcalico.org/ipv4pools": "[]", "x": "y" } } });
        let view = view_of(Shown::Namespace, &namespace);
        let mut made = Projected::Profiles.onto(&view, None).unwrap();
        assert_eq!(made.metadata.name, "kns.shop");
        assert_eq!(made.metadata.uid.as_deref(), Some("80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7"));
        assert_eq!(
            made.body["spec"]["labelsToApply"],
            json!({ "pcns.team": "a", "pcns.projectcalico.org/name": "shop" })
        );
        assert_eq!(made.body["spec"]["ingress"], json!([{ "action": "Allow" }]));
        assert_eq!(made.metadata.annotations.len(), 1);
        assert_eq!(Projected::Profiles.onto(&view, Some(&made)), None, "it is so");
        made.body.insert("later".to_owned(), json!(1));
        made.metadata.annotations.insert("operators".to_owned(), "own".to_owned());
        assert_eq!(Projected::Profiles.onto(&view, Some(&made)), None, "what is not projected is kept");
        made.spec_mut().insert("labelsToApply".to_owned(), json!({}));
        let corrected = Projected::Profiles.onto(&view, Some(&made)).unwrap();
        assert_eq!((&corrected.body["later"], corrected.metadata.annotations.len()), (&json!(1), 2));
        assert!(Projected::Profiles.is_ours("ksa.a.b") && !Projected::Profiles.is_ours("operators"));
    }

    #[test]
    fn an_endpoint_gets_labels_and_account_and_keeps_its_addresses() {
        let pod = json!({ "metadata": { "namespace": "shop", "name": "web", "labels": { "app": "web" } },
            "spec": { "nodeName": "a", "serviceAccountName": "till" },
            "status": { "phase": "Running", "podIP": "10.0.0.9" } });
        let view = view_of(Shown::Pod, &pod);
        assert_eq!(Projected::Endpoints.onto(&view, None), None, "the plugin makes endpoints");
        let mut existing = Resource::new(Kind::WorkloadEndpoint, view.metadata.name.as_str());
        existing.metadata.labels.insert("old".to_owned(), "1".to_owned());
        existing.body.insert("spec".to_owned(), json!({ "ipNetworks": ["10.0.0.1/32"], "containerID": "c" }));
        let wanted = Projected::Endpoints.onto(&view, Some(&existing)).unwrap();
        assert_eq!(wanted.metadata.labels["app"], "web");
        assert!(!wanted.metadata.labels.contains_key("old"));
        assert_eq!(
            wanted.body["spec"],
            json!({ "ipNetworks": ["10.0.0.1/32"], "containerID": "c", "serviceAccountName": "till" })
        );
        assert_eq!(Projected::Endpoints.onto(&view, Some(&wanted)), None);
    }

    #[test]
    fn a_node_loses_the_labels_that_kubernetes_took_and_keeps_calicos() {
        let with =
            |labels: Value| view_of(Shown::Node, &json!({ "metadata": { "name": "a", "labels": labels } }));
        let mut existing = Resource::new(Kind::Node, "a");
        existing.metadata.labels.insert("rack".to_owned(), "calicos".to_owned());
        let first =
            Projected::Nodes.onto(&with(json!({ "zone": "1", "old": "x" })), Some(&existing)).unwrap();
        assert_eq!((first.metadata.labels.len(), first.metadata.labels["zone"].as_str()), (3, "1"));
        let second = Projected::Nodes.onto(&with(json!({ "zone": "2" })), Some(&first)).unwrap();
        let labels: Vec<_> =
            second.metadata.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["rack=calicos", "zone=2"]);
        assert_eq!(Projected::Nodes.onto(&with(json!({ "zone": "2" })), Some(&second)), None);
        second.metadata.annotations.get(KUBE_LABELS).unwrap();
    }

    #[test]
    fn a_node_names_its_node_of_kubernetes() {
        let mut node = Resource::new(Kind::Node, "calico-a");
        assert_eq!(kubernetes_node(&node), None);
        node.body.insert(
            "spec".to_owned(),
            json!({ "orchRefs": [{ "orchestrator": "mesos" }, { "orchestrator": "k8s", "nodeName": "a" }] }),
        );
        assert_eq!(kubernetes_node(&node), Some("a"));
    }
}
