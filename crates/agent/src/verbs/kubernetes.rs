//! What Kubernetes says of a pod and of this node, where the records are elsewhere: the network configuration names the API server.
//!
//! With `policy.type` `k8s` the endpoint of a pod has the pod's labels, ports and profiles, and the annotations of pod and namespace count,
//! as where Kubernetes keeps the records.

use std::collections::BTreeMap;

use ipnet::IpNet;
use model::kube::views::{self, Shown};
use model::{Key, Kind, Resource};
use serde_json::{Map, Value};
use store::StoreError;
use store::kube::{KubeConfig, KubeObjects, KubeSettings, ObjectName};

use super::Call;
use super::endpoint::Described;
use super::error::CniError;
use super::netconf::{KubernetesConf, NetConf, PodCidr, PolicyType, with_pod_cidrs};
use super::pod;
use crate::namespaces::Annotations;
use crate::services::Services;

/// Of the pod's endpoint, what does not depend on its network.
const COPIED: [&str; 3] = ["serviceAccountName", "ports", "qosControls"];

/// A pod and its namespace.
#[derive(Debug)]
pub(super) struct Facts {
    /// The pod as an endpoint.
    endpoint: Resource,
    /// All of the pod's.
    pub(super) annotations: Annotations,
    pub(super) of_namespace: Annotations,
    pub(super) namespace_labels: BTreeMap<String, String>,
}

impl Facts {
    pub(super) fn described(&self) -> Described {
        let texts = |field: &str| {
            let listed = self.endpoint.spec(field).and_then(Value::as_array)?;
            listed.iter().map(|entry| entry.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let copied = COPIED.into_iter().filter_map(|name| {
            let value = self.endpoint.spec(name)?;
            Some((name.to_owned(), value.clone()))
        });
        let generate_name = self.endpoint.metadata.extra.get("generateName").and_then(Value::as_str);
        Described {
            labels: Some(self.endpoint.metadata.labels.clone()),
            generate_name: generate_name.map(str::to_owned),
            profiles: texts("profiles"),
            fields: copied.collect(),
            floating: Vec::new(),
        }
    }
}

/// What Kubernetes says of the call's pod; `None` if the configuration does not have it asked.
pub(super) async fn facts(
    call: &Call,
    node: &str,
    services: Services<'_>,
) -> Result<Option<Facts>, CniError> {
    let Some(name) = call.request.pod.as_ref().filter(|_| asks(&call.netconf)) else { return Ok(None) };
    pod::check_names(name, node)?;
    let reading = ObjectName::Pod { namespace: &name.namespace, name: &name.name };
    let found = read(&call.netconf, reading, services).await?;
    let mut object = found.ok_or_else(|| pod::gone(name, node))?;
    // A pod that has no node yet, or another one than this, is an endpoint all the same.
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), node.into());
    }
    let endpoint = endpoint_of(&object)?.ok_or_else(|| pod::gone(name, node))?;
    if !pod::is_meant(name, &endpoint) {
        return Err(pod::is_another(name, &endpoint));
    }
    let namespace = namespace_of(&call.netconf, &name.namespace, services).await?;
    Ok(Some(Facts {
        endpoint,
        annotations: texts(&object, "annotations"),
        of_namespace: texts(&namespace, "annotations"),
        namespace_labels: texts(&namespace, "labels"),
    }))
}

/// The labels of the namespace that the call's pod is in, which may decide about pools; none if nobody says where to ask.
pub(super) async fn namespace_labels(
    call: &Call,
    services: Services<'_>,
) -> Result<BTreeMap<String, String>, CniError> {
    let Some(name) = call.request.pod.as_ref().filter(|_| asks(&call.netconf)) else {
        return Ok(BTreeMap::new());
    };
    Ok(texts(&namespace_of(&call.netconf, &name.namespace, services).await?, "labels"))
}

async fn namespace_of(
    netconf: &NetConf,
    name: &str,
    services: Services<'_>,
) -> Result<Map<String, Value>, CniError> {
    let found = read(netconf, ObjectName::Namespace(name), services).await?;
    found.ok_or_else(|| CniError::environment(format!("Kubernetes has no namespace {name}")))
}

fn asks(netconf: &NetConf) -> bool {
    netconf.calico.policy == PolicyType::Kubernetes
}

fn endpoint_of(pod: &Map<String, Value>) -> Result<Option<Resource>, CniError> {
    let unreadable = |error: &dyn std::error::Error| {
        CniError::configuration("cannot make an endpoint of the pod in Kubernetes").because(error).outside()
    };
    let decoded = match views::view(Shown::Pod, pod) {
        Ok(decoded) => decoded,
        Err(undecodable) => match undecodable.stand_in {
            // What is asked for in an annotation is read, and refused, where it counts.
            Some(stand_in) => Some(*stand_in),
            None => return Err(unreadable(&undecodable.error)),
        },
    };
    let Some(decoded) = decoded else { return Ok(None) };
    let key: &Key = &decoded.key;
    let read = Resource::decode(key, Kind::WorkloadEndpoint, &decoded.value, &decoded.revision);
    read.map(Some).map_err(|error| unreadable(&error))
}

fn texts(object: &Map<String, Value>, field: &str) -> BTreeMap<String, String> {
    let listed = object.get("metadata").and_then(|metadata| metadata.get(field)?.as_object());
    let texts = listed.into_iter().flatten();
    texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// The configuration for `host-local` with the networks of the Kubernetes node in the place of the words for them.
pub(super) async fn configuration_with_pod_cidrs(
    call: &Call,
    node: &str,
    services: Services<'_>,
) -> Result<String, CniError> {
    let name = call.netconf.calico.kubernetes.node_name.as_deref().unwrap_or(node);
    let found = read(&call.netconf, ObjectName::Node(name), services).await?;
    let found =
        found.ok_or_else(|| CniError::environment(format!("Kubernetes has no node {name}")).outside())?;
    let networks = PodCidrs::of(&found, name)?;
    let document = with_pod_cidrs(&call.netconf.document, |meant| networks.get(meant))?;
    Ok(Value::Object(document).to_string())
}

/// The same for a DEL: `host-local` finds its addresses by the container's ID, but wants to see networks.
pub(super) fn configuration_with_any_cidrs(netconf: &NetConf) -> Result<String, CniError> {
    let any = |meant| {
        Ok(match meant {
            PodCidr::V4 => "0.0.0.0/0".to_owned(),
            PodCidr::V6 => "::/0".to_owned(),
        })
    };
    Ok(Value::Object(with_pod_cidrs(&netconf.document, any)?).to_string())
}

/// The networks that Kubernetes gave a node.
#[derive(Debug, PartialEq, Eq)]
struct PodCidrs {
    node: String,
    v4: Option<String>,
    v6: Option<String>,
}

impl PodCidrs {
    fn of(node: &Map<String, Value>, name: &str) -> Result<PodCidrs, CniError> {
        let spec = node.get("spec");
        let listed = spec.and_then(|spec| spec.get("podCIDRs")?.as_array().cloned()).unwrap_or_default();
        let mut networks = PodCidrs { node: name.to_owned(), v4: None, v6: None };
        for entry in &listed {
            let text = entry.as_str().unwrap_or_default();
            let network: IpNet = text.parse().map_err(|_| {
                CniError::configuration(format!("{entry} in podCIDRs of node {name} is not a network"))
                    .outside()
            })?;
            let place = if network.addr().is_ipv4() { &mut networks.v4 } else { &mut networks.v6 };
            if let Some(other) = place.replace(text.to_owned()) {
                let message =
                    format!("node {name} has two pod networks of one IP version, {other} and {text}");
                return Err(CniError::configuration(message).outside());
            }
        }
        if listed.is_empty() {
            return Err(CniError::configuration(format!(
                "node {name} has no pod network (podCIDRs) in Kubernetes"
            ))
            .hint("have the controller manager allocate them (--allocate-node-cidrs), or use IP pools")
            .outside());
        }
        Ok(networks)
    }

    fn get(&self, meant: PodCidr) -> Result<String, CniError> {
        let (found, version) = match meant {
            PodCidr::V4 => (&self.v4, "IPv4"),
            PodCidr::V6 => (&self.v6, "IPv6"),
        };
        found.clone().ok_or_else(|| {
            let message =
                format!("ipam asks for the {version} pod network of node {}, which has none", self.node);
            CniError::configuration(message).outside()
        })
    }
}

/// Reads an object. A connection that the server no longer lets in is made again: tokens in a kubeconfig are replaced while an agent runs.
async fn read(
    netconf: &NetConf,
    name: ObjectName<'_>,
    services: Services<'_>,
) -> Result<Option<Map<String, Value>>, CniError> {
    let config = config_of(&netconf.calico.kubernetes)?;
    if let Some(known) = services.known_kubernetes(&config) {
        match known.get(name).await {
            Err(StoreError::AccessDenied { .. }) => services.forget_kubernetes(&config),
            outcome => return outcome.map_err(CniError::from),
        }
    }
    let objects = connect(&config).await?;
    let found = objects.get(name).await?;
    services.know_kubernetes(config, objects);
    Ok(found)
}

/// Whether the API server answers, if the configuration names one.
pub(super) async fn check(netconf: &NetConf) -> Result<(), CniError> {
    if !netconf.calico.kubernetes.names_a_server() {
        return Ok(());
    }
    connect(&config_of(&netconf.calico.kubernetes)?)
        .await?
        .server_version()
        .await
        .map(drop)
        .map_err(CniError::from)
}

async fn connect(config: &KubeConfig) -> Result<KubeObjects, CniError> {
    KubeObjects::connect(config).await.map_err(CniError::from)
}

/// In a pod with a service account of its own, nothing needs to be named.
fn config_of(conf: &KubernetesConf) -> Result<KubeConfig, CniError> {
    if !conf.names_a_server() && !KubeConfig::is_in_pod() {
        let message = "policy.type is k8s, but the network configuration names no API server";
        return Err(
            CniError::configuration(message).hint("set kubernetes.kubeconfig or kubernetes.k8s_api_root")
        );
    }
    Ok(KubeConfig {
        kubeconfig: conf.kubeconfig.clone().map(Into::into),
        settings: KubeSettings {
            server: conf.server.clone(),
            authority_file: conf.authority.clone(),
            certificate_file: conf.certificate.clone(),
            key_file: conf.key.clone(),
            token: conf.token.clone(),
            ..KubeSettings::default()
        },
        ..KubeConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cidrs(listed: Value) -> Result<PodCidrs, CniError> {
        PodCidrs::of(json!({"spec": {"podCIDRs": listed}}).as_object().unwrap(), "n")
    }

    #[test]
    fn a_node_has_one_network_of_each_version() {
        let both = cidrs(json!(["10.1.0.0/24", "fd01::/64"])).unwrap();
        assert_eq!(both.get(PodCidr::V4).unwrap(), "10.1.0.0/24");
        assert_eq!(both.get(PodCidr::V6).unwrap(), "fd01::/64");
        assert!(cidrs(json!(["10.1.0.0/24"])).unwrap().get(PodCidr::V6).is_err());
        for wrong in [json!([]), json!(["x"]), json!([5]), json!(["10.1.0.0/24", "10.2.0.0/24"]), json!(null)]
        {
            let error = cidrs(wrong).unwrap_err();
            assert!(!error.is_permanent(), "the node may get another one: {error}");
        }
    }

    #[test]
    fn a_pod_is_described_as_calico_does() {
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "generateName": "web-", "labels": {"app": "web"},
                "annotations": {"cni.projectcalico.org/hwAddr": "02:00:00:00:00:01", "other": "x"}},
            "spec": {"nodeName": "n", "serviceAccountName": "robot", "containers": [
                {"ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}]}]},
        });
        let endpoint = endpoint_of(pod.as_object().unwrap()).unwrap().unwrap();
        let annotations = texts(pod.as_object().unwrap(), "annotations");
        assert_eq!(annotations.len(), 2);
        let nothing = BTreeMap::new;
        let facts = Facts { endpoint, annotations, of_namespace: nothing(), namespace_labels: nothing() };
        let described = facts.described();
        let labels = described.labels.unwrap();
        assert_eq!(
            (labels["app"].as_str(), labels["projectcalico.org/serviceaccount"].as_str()),
            ("web", "robot")
        );
        assert_eq!(described.generate_name.as_deref(), Some("web-"));
        assert_eq!(described.profiles.unwrap(), ["kns.shop", "ksa.shop.robot"]);
        assert_eq!(described.fields["ports"], json!([{"name": "http", "port": 80, "protocol": "TCP"}]));
        assert_eq!(described.fields["serviceAccountName"], "robot");
    }
}
