//! The Deployment of the controllers.

use serde_json::{Value, json};

use super::{Cluster, LABEL, PLUMBD, api_server, mount, requests, variable};

const NAME: &str = "plumb-controller";
/// Of the controllers, on the pod's address: nothing else listens there.
const HEALTH_PORT: u16 = 9094;
/// Where `plumb repair undo` finds what was removed. It ends with the pod.
const HISTORY: &str = "/var/lib/plumb/repairs";

/// Within the restricted profile: it talks to the API server, and touches no node.
pub(in crate::commands::install) fn deployment(cluster: &Cluster<'_>) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": cluster.metadata(NAME),
        "spec": {
            "replicas": cluster.options().controllers,
            "selector": { "matchLabels": { LABEL: NAME } },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 1 } },
            "template": {
                "metadata": { "labels": { LABEL: NAME } },
                "spec": pod(cluster),
            },
        },
    })
}

fn pod(cluster: &Cluster<'_>) -> Value {
    json!({
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "tolerations": [
            { "key": "CriticalAddonsOnly", "operator": "Exists" },
            { "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule", "operator": "Exists" },
        ],
        // Two controllers on one node are one power cut.
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { LABEL: NAME } },
            },
        }] } },
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(cluster)],
        "volumes": [{ "name": "history", "emptyDir": {} }],
    })
}

fn container(cluster: &Cluster<'_>) -> Value {
    let probe = |path: &str| {
        json!({
            "httpGet": { "port": HEALTH_PORT, "path": path },
            "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 5,
        })
    };
    let mut environment = vec![
        of_field("PLUMB_CONTROLLER_NAME", "metadata.name"),
        of_field("PLUMB_CONTROLLER_NAMESPACE", "metadata.namespace"),
        variable("DATASTORE_TYPE", "kubernetes"),
        variable("CALICO_API_GROUP", cluster.layout.api_version()),
        variable("PLUMB_CONTROLLER_HEALTH_ADDRESS", format!("[::]:{HEALTH_PORT}")),
    ];
    environment.extend(api_server(cluster.options()));
    json!({
        "name": "controller",
        "image": cluster.options().image,
        "command": [PLUMBD, "controller"],
        "env": environment,
        "resources": requests("20m", "64Mi"),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        "livenessProbe": probe("/liveness"),
        "readinessProbe": probe("/readiness"),
        "volumeMounts": [mount("history", HISTORY)],
    })
}

fn of_field(name: &str, field: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": field } } })
}
