//! Pods as WorkloadEndpoints.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{metadata_of, qos, set, text, texts};
use crate::names::{EndpointName, EndpointNameError, host_interface_name};
use crate::{Cidr, DeviceName, Kind, Mac, Resource, endpoint_networks};

/// The one interface of a pod that Calico records here.
const INTERFACE: &str = "eth0";
const POD_IP: &str = "cni.projectcalico.org/podIP";
const POD_IPS: &str = "cni.projectcalico.org/podIPs";
const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";
const FLOATING_IPS: &str = "cni.projectcalico.org/floatingIPs";
const ALLOWED_PREFIXES: &str = "cni.projectcalico.org/allowedSourcePrefixes";
const AWS_POD_IPS: &str = "vpc.amazonaws.com/pod-ips";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// What Calico's annotations have no place for. Calico passes over them.
const DEVICE: &str = "plumbline.io/interface-name";
const MAC: &str = "plumbline.io/mac";
/// Labels have at most 63 characters; Calico leaves out the account if its name has as many.
const LABEL_MAX: usize = 63;

/// Why a pod cannot be read as an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    #[error("pod {pod}: no endpoint can have its name")]
    Name {
        pod: String,
        #[source]
        source: EndpointNameError,
    },
    #[error("pod {pod}: {value:?} in {place} is not an IP address")]
    Address { pod: String, place: &'static str, value: String },
    #[error("pod {pod}: the annotation {annotation} is not a JSON list of {expected}")]
    Annotation { pod: String, annotation: &'static str, expected: &'static str },
}

/// Whether Calico has an endpoint for a pod: it runs on a node, and not in the node's own network.
pub fn is_endpoint(pod: &Value) -> bool {
    !text(&pod["spec"], "nodeName").is_empty() && pod["spec"]["hostNetwork"] != true
}

/// The endpoint of a pod; `None` if it has none.
pub fn endpoint_of_pod(pod: &Value) -> Result<Option<Resource>, PodError> {
    if !is_endpoint(pod) {
        return Ok(None);
    }
    let pod = Pod::new(pod);
    let addresses = if pod.is_finished() { Vec::new() } else { pod.addresses()? };
    let name = EndpointName::of_pod(pod.node(), pod.name, INTERFACE)
        .compute()
        .map_err(|source| PodError::Name { pod: pod.full_name(), source })?;
    let mut endpoint = Resource::new(Kind::WorkloadEndpoint, "");
    endpoint.metadata = metadata_of(pod.object, name);
    endpoint.metadata.namespace = Some(pod.namespace.to_owned());
    endpoint.metadata.labels = pod.labels();
    if let Some(status) = pod.annotation(NETWORK_STATUS) {
        endpoint.metadata.annotations.insert(NETWORK_STATUS.to_owned(), status.to_owned());
    }
    set(&mut endpoint.metadata.extra, "generateName", text(&pod.object["metadata"], "generateName"));
    *endpoint.spec_mut() = pod.spec(&addresses)?;
    Ok(Some(endpoint))
}

/// A pod, with the names that every error mentions.
struct Pod<'p> {
    object: &'p Value,
    namespace: &'p str,
    name: &'p str,
}

impl<'p> Pod<'p> {
    fn new(object: &'p Value) -> Pod<'p> {
        let metadata = &object["metadata"];
        Pod { object, namespace: text(metadata, "namespace"), name: text(metadata, "name") }
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn node(&self) -> &'p str {
        text(&self.object["spec"], "nodeName")
    }

    fn service_account(&self) -> &'p str {
        text(&self.object["spec"], "serviceAccountName")
    }

    fn annotation(&self, name: &str) -> Option<&'p str> {
        self.object["metadata"]["annotations"].get(name)?.as_str()
    }

    /// Nothing runs in it any more, or its network was removed and it is about to go. Then its addresses may already be
    /// another pod's.
    fn is_finished(&self) -> bool {
        let phase = text(&self.object["status"], "phase");
        let is_deleting = self.object["metadata"]["deletionTimestamp"].is_string();
        let was_removed = [POD_IP, AWS_POD_IPS].iter().any(|name| self.annotation(name) == Some(""));
        matches!(phase, "Failed" | "Succeeded" | "Completed") || (is_deleting && was_removed)
    }

    /// The kubelet's word counts first; before it has one, what the plugin noted.
    fn addresses(&self) -> Result<Vec<IpAddr>, PodError> {
        let status = &self.object["status"];
        let listed = status["podIPs"].as_array().into_iter().flatten().map(|entry| text(entry, "ip"));
        let of_status: Vec<&str> = listed.filter(|ip| !ip.is_empty()).collect();
        let noted = |name| self.annotation(name).into_iter().flat_map(|list| list.split(',')).collect();
        let sources: [(&'static str, Vec<&str>); 5] = [
            ("status.podIPs", of_status),
            ("status.podIP", vec![text(status, "podIP")]),
            (POD_IPS, noted(POD_IPS)),
            (POD_IP, noted(POD_IP)),
            (AWS_POD_IPS, noted(AWS_POD_IPS)),
        ];
        for (place, texts) in sources {
            let found: Vec<&str> =
                texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
            if !found.is_empty() {
                return found.into_iter().map(|text| self.address(place, text)).collect();
            }
        }
        Ok(Vec::new())
    }

    /// An address, alone or as a network of one address.
    fn address(&self, place: &'static str, value: &str) -> Result<IpAddr, PodError> {
        let of_network = || {
            value
                .parse::<Cidr>()
                .ok()
                .filter(|cidr| *cidr == Cidr::single(cidr.network()))
                .map(|cidr| cidr.network())
        };
        let address = value.parse().ok().or_else(of_network);
        address.ok_or_else(|| PodError::Address { pod: self.full_name(), place, value: value.to_owned() })
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = texts(&self.object["metadata"]["labels"]);
        labels.insert("projectcalico.org/namespace".to_owned(), self.namespace.to_owned());
        labels.insert("projectcalico.org/orchestrator".to_owned(), "k8s".to_owned());
        let account = self.service_account();
        if !account.is_empty() && account.len() < LABEL_MAX {
            labels.insert("projectcalico.org/serviceaccount".to_owned(), account.to_owned());
        }
        labels
    }

    fn spec(&self, addresses: &[IpAddr]) -> Result<Map<String, Value>, PodError> {
        let mut spec = Map::new();
        set(&mut spec, "orchestrator", "k8s");
        set(&mut spec, "node", self.node());
        set(&mut spec, "containerID", self.annotation(CONTAINER_ID).unwrap_or_default());
        set(&mut spec, "pod", self.name);
        set(&mut spec, "endpoint", INTERFACE);
        set(&mut spec, "serviceAccountName", self.service_account());
        set(&mut spec, "ipNetworks", endpoint_networks(addresses));
        set(&mut spec, "ipNATs", self.floating_addresses(addresses)?);
        set(&mut spec, "profiles", self.profiles());
        set(&mut spec, "interfaceName", self.device());
        let mac = self.annotation(MAC).and_then(|mac| mac.parse::<Mac>().ok());
        set(&mut spec, "mac", mac.map(|mac| mac.to_string()));
        set(&mut spec, "ports", self.ports());
        set(&mut spec, "allowSpoofedSourcePrefixes", self.allowed_prefixes()?);
        set(&mut spec, "qosControls", qos::controls(|name| self.annotation(name)));
        Ok(spec)
    }

    fn profiles(&self) -> Vec<String> {
        let account = Some(self.service_account()).filter(|account| !account.is_empty());
        let of_account = account.map(|account| format!("ksa.{}.{account}", self.namespace));
        [format!("kns.{}", self.namespace)].into_iter().chain(of_account).collect()
    }

    /// Calico's name for the device, unless the node had to use another one. What is noted is a pod's word: it counts only if
    /// it is a name that such a device can have.
    fn device(&self) -> Option<String> {
        let noted = self.annotation(DEVICE).and_then(|name| DeviceName::new(name).ok());
        let noted = noted.filter(|name| name.as_str().starts_with(DeviceName::CALICO_PREFIX));
        let device = noted.or_else(|| host_interface_name(self.namespace, self.name).ok())?;
        Some(device.as_str().to_owned())
    }

    /// Ports that a policy or a host port can refer to.
    fn ports(&self) -> Vec<Value> {
        let lists = [&self.object["spec"]["initContainers"], &self.object["spec"]["containers"]];
        let containers = lists.into_iter().filter_map(Value::as_array).flatten();
        containers.filter_map(|container| container["ports"].as_array()).flatten().filter_map(port).collect()
    }

    fn floating_addresses(&self, addresses: &[IpAddr]) -> Result<Vec<Value>, PodError> {
        let floating: Vec<IpAddr> = match addresses {
            [] => Vec::new(),
            _ => self.list(FLOATING_IPS, "IP addresses")?,
        };
        let internal = |external: &IpAddr| addresses.iter().find(|own| own.is_ipv4() == external.is_ipv4());
        let pairs = floating.iter().filter_map(|external| Some((internal(external)?, external)));
        Ok(pairs
            .map(|(internal, external)| json!({"internalIP": internal, "externalIP": external}))
            .collect())
    }

    fn allowed_prefixes(&self) -> Result<Vec<String>, PodError> {
        let prefixes: Vec<Cidr> = self.list(ALLOWED_PREFIXES, "networks")?;
        Ok(prefixes.iter().map(Cidr::to_string).collect())
    }

    /// An annotation that is a JSON list of texts; absent and empty are an empty list.
    fn list<T: std::str::FromStr>(
        &self,
        annotation: &'static str,
        expected: &'static str,
    ) -> Result<Vec<T>, PodError> {
        let error = || PodError::Annotation { pod: self.full_name(), annotation, expected };
        let Some(noted) = self.annotation(annotation).filter(|noted| !noted.is_empty()) else {
            return Ok(Vec::new());
        };
        let entries: Vec<String> = serde_json::from_str(noted).map_err(|_| error())?;
        entries.iter().map(|entry| entry.parse().map_err(|_| error())).collect()
    }
}

fn port(port: &Value) -> Option<Value> {
    let number = port["containerPort"].as_u64().filter(|number| *number != 0)?;
    let host_port = port["hostPort"].as_u64().unwrap_or(0);
    if text(port, "name").is_empty() && host_port == 0 {
        return None;
    }
    let mut entry = Map::new();
    set(&mut entry, "name", text(port, "name"));
    let protocol = Some(text(port, "protocol")).filter(|name| !name.is_empty()).unwrap_or("TCP");
    set(&mut entry, "protocol", protocol);
    set(&mut entry, "port", number);
    if host_port != 0 {
        set(&mut entry, "hostPort", host_port);
        set(&mut entry, "hostIP", text(port, "hostIP"));
    }
    Some(Value::Object(entry))
}

/// The patch of the pod's status by which an endpoint is written: a strategic merge patch with the UID of the pod that
/// was meant, so that a pod of the same name that came later refuses it.
pub fn endpoint_patch(endpoint: &Resource) -> Value {
    let texts_of = |field| endpoint.spec(field).and_then(Value::as_array).into_iter().flatten();
    let networks: Vec<&str> = texts_of("ipNetworks").filter_map(Value::as_str).collect();
    let text_of = |field| endpoint.spec(field).and_then(Value::as_str);
    let namespace = endpoint.metadata.namespace.as_deref().unwrap_or_default();
    let usual = host_interface_name(namespace, text_of("pod").unwrap_or_default()).ok();
    let device =
        text_of("interfaceName").filter(|name| usual.as_ref().is_none_or(|usual| usual.as_str() != *name));
    json!({"metadata": {
        "uid": endpoint.metadata.uid,
        "annotations": {
            POD_IP: networks.first().copied().unwrap_or_default(),
            POD_IPS: networks.join(","),
            CONTAINER_ID: text_of("containerID").unwrap_or_default(),
            MAC: text_of("mac"),
            // The usual name needs no note, and an older note must not stay.
            DEVICE: device,
        },
    }})
}

/// The patch by which an endpoint is removed: the addresses go, the container stays as a note of whose they were. It is
/// refused if the pod is another one, or has changed since `revision`.
pub fn endpoint_removal_patch(uid: &str, revision: &str) -> Value {
    json!({"metadata": {
        "uid": uid,
        "resourceVersion": revision,
        "annotations": {POD_IP: "", POD_IPS: "", MAC: null, DEVICE: null},
    }})
}
