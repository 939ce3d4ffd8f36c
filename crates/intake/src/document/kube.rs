//! Objects of the Kubernetes API: pods, nodes, events.

use std::collections::BTreeMap;

use serde_json::Value;

use super::settings;
use crate::draft::Draft;
use evidence::{Event, KubeNode, Origin, Pod, Sighted};

/// Takes in an object. `false`: it is none of these.
pub(super) fn object(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => {
            let pod = Sighted::new(Pod::of_object(value), origin.clone());
            draft.keep(length(&pod.seen.annotations));
            settings::of_pod(value, origin, draft);
            draft.cluster.pods.get_or_insert_default().push(pod);
        }
        ("v1", "Node") => {
            let node = Sighted::new(KubeNode::of_object(value), origin.clone());
            draft.keep(length(&node.seen.annotations) + length(&node.seen.labels));
            draft.cluster.kube_nodes.get_or_insert_default().push(node);
        }
        ("v1" | "events.k8s.io/v1", "Event") => {
            let event = Sighted::new(Event::of_object(value), origin.clone());
            draft.cluster.events.get_or_insert_default().push(event);
        }
        ("v1", "ConfigMap") => settings::of_map(value, origin, draft),
        ("v1", "Service") => settings::of_service(value, origin, draft),
        ("networking.k8s.io/v1" | "networking.k8s.io/v1beta1", "ServiceCIDR") => {
            settings::of_range(value, origin, draft);
        }
        // Known, and not looked at: what it holds is nobody's business here.
        (api, kind) if is_other_kind(api, kind) => {}
        _ => return false,
    }
    true
}

fn length(texts: &BTreeMap<String, String>) -> usize {
    texts.iter().map(|(name, text)| name.len() + text.len()).sum()
}

/// An object of Kubernetes or of an operator that says nothing to the checks: a dump has many.
fn is_other_kind(api: &str, kind: &str) -> bool {
    let is_calico = api.ends_with("projectcalico.org/v3") || api.ends_with("projectcalico.org/v1");
    let is_version = |word: &str| word.starts_with('v') && word.len() > 1;
    let is_api = match api.split_once('/') {
        Some((group, version)) => !group.is_empty() && is_version(version),
        // Calico's of 2017 began in lower case.
        None => is_version(api),
    };
    is_api
        && !is_calico
        && kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind != "NodeEvidence"
}
