//! calico-kube-controllers: another program that collects. Two that do not know each other's second look must not both remove.

use serde_json::{Map, Value};
use store::StoreError;
use store::kube::KubeObjects;

/// How Calico's manifests and its operator name it.
const NAME: &str = "calico-kube-controllers";
const PODS: &str = "/api/v1/pods?labelSelector=k8s-app%3Dcalico-kube-controllers";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dcalico-kube-controllers";

/// What of it runs or is to run, in words; `None`: nothing.
pub(crate) async fn find(objects: &KubeObjects) -> Result<Option<String>, StoreError> {
    for (path, is_active) in [(PODS, is_running as fn(&Value) -> bool), (DEPLOYMENTS, is_wanted)] {
        let found = objects.read(path).await?;
        if let Some(name) = found.as_ref().and_then(|list| first(list, is_active)) {
            return Ok(Some(format!("{NAME} ({name})")));
        }
    }
    Ok(None)
}

fn first(list: &Map<String, Value>, is_active: fn(&Value) -> bool) -> Option<String> {
    let items = list.get("items")?.as_array()?;
    let found = items.iter().find(|item| is_active(item))?;
    let text = |path: &str| found.pointer(path).and_then(Value::as_str).unwrap_or_default();
    Some(format!("{}/{}", text("/metadata/namespace"), text("/metadata/name")))
}

/// A pod that has not ended.
fn is_running(pod: &Value) -> bool {
    !matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"))
}

/// A Deployment of which there is to be at least one pod. Without a number there is one.
fn is_wanted(deployment: &Value) -> bool {
    deployment.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1) > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_ended_and_deployments_without_replicas_do_not_count() {
        assert!(is_running(&json!({ "status": { "phase": "Pending" } })) && is_running(&json!({})));
        assert!(!is_running(&json!({ "status": { "phase": "Failed" } })));
        assert!(is_wanted(&json!({})) && is_wanted(&json!({ "spec": { "replicas": 1 } })));
        assert!(!is_wanted(&json!({ "spec": { "replicas": 0 } })));
        let list = json!({ "items": [
            { "metadata": { "namespace": "a", "name": "ended" }, "status": { "phase": "Succeeded" } },
            { "metadata": { "namespace": "b", "name": "runs" } }] });
        assert_eq!(first(list.as_object().unwrap(), is_running).as_deref(), Some("b/runs"));
        assert_eq!(first(&Map::new(), is_running), None);
    }
}
