//! Objects of the Kubernetes API: pods, nodes, events.

use serde_json::Value;

use crate::draft::Draft;
use evidence::{Event, KubeNode, Origin, Pod, Sighted};

/// Takes in an object. `false`: it is none of these.
pub(super) fn object(value: &Value, origin: &Origin, draft: &mut Draft) -> bool {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let cluster = &mut draft.cluster;
    match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => {
            let pod = Sighted::new(Pod::of_object(value), origin.clone());
            cluster.pods.get_or_insert_default().push(pod);
        }
        ("v1", "Node") => {
            let node = Sighted::new(KubeNode::of_object(value), origin.clone());
            cluster.kube_nodes.get_or_insert_default().push(node);
        }
        ("v1" | "events.k8s.io/v1", "Event") => {
            let event = Sighted::new(Event::of_object(value), origin.clone());
            cluster.events.get_or_insert_default().push(event);
        }
        // Known, and not looked at: what it holds is nobody's business here.
        ("v1", "Secret" | "ConfigMap" | "Service" | "Endpoints" | "Namespace" | "ServiceAccount") => {}
        _ => return false,
    }
    true
}
