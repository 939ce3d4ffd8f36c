//! Records of the whole cluster: ClusterInformation, the tiers of policies, the default settings.

use model::cluster::{
    CLUSTER_INFORMATION, basic_settings, basic_tiers, complete_cluster_information, new_cluster_information,
};
use model::ipam::IpamConfig;
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use store::{Store, StoreError};
use uuid::Uuid;

use super::{Environment, Failure, ensure, find, is_in_kubernetes, replace};

/// What the type of a cluster says if its records are in Kubernetes.
const KUBERNETES_TYPE: &str = "kdd";

pub(super) async fn ensure_information(
    store: &dyn Store,
    environment: Environment<'_>,
) -> Result<(), Failure> {
    let is_in_kubernetes = is_in_kubernetes(store);
    let Some((record, mut information)) = find(store, Kind::ClusterInformation, CLUSTER_INFORMATION).await?
    else {
        let mut information = new_cluster_information(&new_guid());
        let configured = environment("CLUSTER_TYPE").unwrap_or_default();
        let cluster_type = if is_in_kubernetes { with_kubernetes(&configured) } else { configured };
        information.spec_mut().insert("clusterType".to_owned(), cluster_type.into());
        return Ok(ensure(store, information).await?);
    };
    let mut is_changed = complete_cluster_information(&mut information, new_guid);
    if is_in_kubernetes {
        let recorded = information.spec("clusterType").and_then(Value::as_str).unwrap_or_default().to_owned();
        let cluster_type = with_kubernetes(&recorded);
        is_changed |= cluster_type != recorded;
        information.spec_mut().insert("clusterType".to_owned(), cluster_type.into());
    }
    if is_changed {
        replace(store, record, &information).await?;
    }
    Ok(())
}

/// Calico's tools expect it at the end of the list.
fn with_kubernetes(cluster_type: &str) -> String {
    match cluster_type {
        "" => KUBERNETES_TYPE.to_owned(),
        listed if listed.split(',').any(|word| word == KUBERNETES_TYPE) => listed.to_owned(),
        listed => format!("{listed},{KUBERNETES_TYPE}"),
    }
}

pub(super) async fn ensure_tiers(store: &dyn Store) -> Result<(), Failure> {
    for tier in basic_tiers() {
        ensure(store, tier).await?;
    }
    Ok(())
}

/// Calico's defaults for a node that runs containers: no usage reports, and pods may reach their node.
pub(super) async fn ensure_settings(store: &dyn Store, node: &str) -> Result<(), Failure> {
    for settings in basic_settings() {
        ensure(store, settings).await?;
    }
    if !is_in_kubernetes(store) {
        // In Kubernetes, Calico's manifests set this for all nodes.
        let of_node = json!({"defaultEndpointToHostAction": "Return"});
        ensure(store, resource(Kind::FelixConfiguration, &format!("node.{node}"), of_node)).await?;
    }
    match ensure(store, resource(Kind::KubeControllersConfiguration, "default", controllers())).await {
        // No agent needs it, so a node's own role does not have it. An operator or the controllers create it.
        Err(StoreError::AccessDenied { .. } | StoreError::Unsupported { .. }) => {}
        outcome => outcome?,
    }
    if store.get(&Key::IpamConfig).await?.is_none() {
        match store.create(Key::IpamConfig, IpamConfig::default().encode()).await {
            Ok(_) | Err(StoreError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What Calico's controllers create when they start, because `calicoctl ipam check` stops without it. Complete: a controller whose
/// section is missing does not run.
fn controllers() -> Value {
    let five_minutes = || json!({"reconcilerPeriod": "5m0s"});
    json!({
        "logSeverityScreen": "Info",
        "healthChecks": "Enabled",
        "etcdV3CompactionPeriod": "10m0s",
        "controllers": {
            "node": {
                "reconcilerPeriod": "5m0s",
                "syncLabels": "Enabled",
                "hostEndpoint": {"autoCreate": "Disabled", "createDefaultHostEndpoint": "Enabled"},
                "leakGracePeriod": "15m0s",
            },
            "policy": five_minutes(),
            "workloadEndpoint": five_minutes(),
            "serviceAccount": five_minutes(),
            "namespace": five_minutes(),
            "loadBalancer": {"assignIPs": "AllServices"},
            "migration": {"policyNameMigrator": "Enabled"},
        },
    })
}

fn resource(kind: Kind, name: &str, spec: Value) -> Resource {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    resource
}

fn new_guid() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn what_is_missing_in_the_clusters_record_is_added_and_nothing_else_changes() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
        let spec = json!({"calicoVersion": "v3.30.0", "later": 9007199254740993u64});
        store
            .create(key, resource(Kind::ClusterInformation, CLUSTER_INFORMATION, spec).encode())
            .await
            .unwrap();
        ensure_information(store, &|_| None).await.unwrap();
        let (_, information) =
            find(store, Kind::ClusterInformation, CLUSTER_INFORMATION).await.unwrap().unwrap();
        assert_eq!(information.spec("datastoreReady"), Some(&json!(true)));
        assert_eq!(information.spec("later"), Some(&json!(9007199254740993u64)));
        assert_eq!(information.spec("clusterGUID").unwrap().as_str().unwrap().len(), 32);
    }

    #[test]
    fn a_cluster_in_kubernetes_is_marked_as_one() {
        for (recorded, expected) in
            [("", "kdd"), ("k8s,bgp", "k8s,bgp,kdd"), ("k8s,kdd,bgp", "k8s,kdd,bgp"), ("xkdd", "xkdd,kdd")]
        {
            assert_eq!(with_kubernetes(recorded), expected);
        }
    }

    #[tokio::test]
    async fn a_lock_stays() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
        let spec = json!({"clusterGUID": "0", "datastoreReady": false});
        store
            .create(key.clone(), resource(Kind::ClusterInformation, CLUSTER_INFORMATION, spec).encode())
            .await
            .unwrap();
        let before = store.get(&key).await.unwrap();
        ensure_information(store, &|_| None).await.unwrap();
        assert_eq!(store.get(&key).await.unwrap(), before);
    }
}
