//! A pod as the endpoint of its network.

use serde_json::{Map, Value, json};

use super::{Object, qos, set_unless_empty};
use crate::names::EndpointName;
use crate::{DeviceName, DevicePrefixes, Kind, Mac, Resource};

/// The one interface of a pod that Calico knows.
pub(super) const INTERFACE: &str = "eth0";

/// What pods ask of Calico's plugin, and what it notes on them.
pub(super) const CALICO_CNI: &str = "cni.projectcalico.org/";
pub(super) const POD_IP: &str = "cni.projectcalico.org/podIP";
pub(super) const POD_IPS: &str = "cni.projectcalico.org/podIPs";
const AMAZON_POD_IPS: &str = "vpc.amazonaws.com/pod-ips";
pub(super) const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";
const FLOATING_IPS: &str = "cni.projectcalico.org/floatingIPs";
const SOURCE_PREFIXES: &str = "cni.projectcalico.org/allowedSourcePrefixes";
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// On a pod that the kubelet shows for a manifest of its own: the UID that the runtime has been given for it.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
/// What Calico's annotations have no place for. Calico ignores them.
pub(super) const DEVICE: &str = "plumbline.io/interface-name";
pub(super) const MAC: &str = "plumbline.io/mac";

/// Longer names do not fit into a label.
const ACCOUNT_LABEL_MAX: usize = 63;

/// A pod is an endpoint once it is on a node, unless it uses the node's network.
///
/// Whoever makes pods can write their annotations. One that cannot be understood stands in its field as text, where everybody expects a
/// list: nobody takes it for an answer, and the rest of the endpoint counts.
pub(super) fn endpoint(pod: &Object<'_>, prefixes: &DevicePrefixes) -> Option<Resource> {
    let (node, name, namespace) = (pod.text(&["spec", "nodeName"]), pod.name(), pod.metadata("namespace"));
    let is_on_host = pod.at(&["spec", "hostNetwork"]) == Some(&Value::Bool(true));
    if is_on_host || node.is_empty() || name.is_empty() || namespace.is_empty() {
        return None;
    }
    let endpoint = EndpointName::of_pod(node, name, INTERFACE).compute();
    let endpoint = endpoint.inspect_err(|_| pod.doubt("metadata.name")).ok()?;
    let mut resource = pod.record(Kind::WorkloadEndpoint, endpoint);
    resource.metadata.namespace = Some(namespace.to_owned());
    set_unless_empty(&mut resource.metadata.extra, "generateName", pod.metadata("generateName"));
    label(pod, namespace, &mut resource);
    let annotations = pod.annotations().filter(|(name, _)| concerns_network(name));
    resource.metadata.annotations.extend(annotations.map(|(name, value)| (name.clone(), value.to_owned())));
    resource.body.insert("spec".to_owned(), Value::Object(spec(pod, node, namespace, prefixes)));
    Some(resource)
}

/// Whether a pod's annotation is the endpoint's, too. Calico copies the network status only; the plugin needs what the pod asks
/// for and whom the runtime takes it for, without asking the API server again. What the plugin writes itself is in the spec.
fn concerns_network(name: &str) -> bool {
    let is_written = [POD_IP, POD_IPS, CONTAINER_ID].contains(&name);
    name == NETWORK_STATUS || name == MIRROR || name.starts_with(CALICO_CNI) && !is_written
}

fn label(pod: &Object<'_>, namespace: &str, resource: &mut Resource) {
    let labels = &mut resource.metadata.labels;
    labels.extend(pod.labels().map(|(name, value)| (name.clone(), value.to_owned())));
    labels.insert("projectcalico.org/namespace".to_owned(), namespace.to_owned());
    labels.insert("projectcalico.org/orchestrator".to_owned(), "k8s".to_owned());
    let account = pod.text(&["spec", "serviceAccountName"]);
    if !account.is_empty() && account.len() < ACCOUNT_LABEL_MAX {
        labels.insert("projectcalico.org/serviceaccount".to_owned(), account.to_owned());
    }
}

fn spec(pod: &Object<'_>, node: &str, namespace: &str, prefixes: &DevicePrefixes) -> Map<String, Value> {
    let mut spec = Map::new();
    for (field, text) in
        [("orchestrator", "k8s"), ("node", node), ("pod", pod.name()), ("endpoint", INTERFACE)]
    {
        set_unless_empty(&mut spec, field, text);
    }
    let networks = networks(pod);
    let sandbox = sandbox(pod, &networks);
    if let Some(sandbox) = sandbox {
        spec.insert("containerID".into(), sandbox.into());
    }
    if let Some(device) = device(pod, namespace, prefixes).filter(|_| sandbox != Some("")) {
        spec.insert("interfaceName".into(), device.as_str().into());
    }
    if let Some(mac) = pod.annotation(MAC).and_then(|mac| mac.parse::<Mac>().ok()) {
        spec.insert("mac".into(), mac.to_string().into());
    }
    let mut profiles = vec![format!("kns.{namespace}")];
    let account = pod.text(&["spec", "serviceAccountName"]);
    if !account.is_empty() {
        set_unless_empty(&mut spec, "serviceAccountName", account);
        profiles.push(format!("ksa.{namespace}.{account}"));
    }
    spec.insert("profiles".into(), json!(profiles));
    let nats = nats(pod, &networks);
    for (field, list) in [("ipNetworks", json!(networks)), ("ipNATs", nats), ("ports", json!(ports(pod)))] {
        if list.as_array().is_none_or(|list| !list.is_empty()) {
            spec.insert(field.into(), list);
        }
    }
    if let Some(text) = pod.annotation(SOURCE_PREFIXES).filter(|text| !text.is_empty()) {
        let prefixes = serde_json::from_str::<Vec<String>>(text).map_or_else(
            |_| {
                pod.doubt("the annotation cni.projectcalico.org/allowedSourcePrefixes");
                json!(text)
            },
            |prefixes| json!(prefixes),
        );
        spec.insert("allowSpoofedSourcePrefixes".into(), prefixes);
    }
    let controls = qos::controls(|name| pod.annotation(name));
    if !controls.is_empty() {
        spec.insert("qosControls".into(), Value::Object(controls));
    }
    spec
}

/// The container ID of the pod's sandbox. It stays in the annotation after the sandbox has given its addresses back: if the pod shows
/// some all the same, the endpoint has an empty one and no device, which tells it from an endpoint whose sandbox is not known.
fn sandbox<'a>(pod: &Object<'a>, networks: &[String]) -> Option<&'a str> {
    match is_detached(pod) {
        true => (!networks.is_empty()).then_some(""),
        false => pod.annotation(CONTAINER_ID).filter(|id| !id.is_empty()),
    }
}

/// The plugin has taken the addresses of the last sandbox back.
fn is_detached(pod: &Object<'_>) -> bool {
    pod.annotation(POD_IP) == Some("")
}

/// Calico's name for the device, unless the node had to use another one. Whoever makes pods can write the annotation, so it counts only
/// if it is a name that such a device can have: by its prefix, or because it ends in the hash of this very pod.
fn device(pod: &Object<'_>, namespace: &str, prefixes: &DevicePrefixes) -> Option<DeviceName> {
    let usual = |prefix| DeviceName::of_pod(prefix, namespace, pod.name()).ok();
    let hash = usual("");
    let is_its = |name: &str| hash.as_ref().is_some_and(|hash| name.ends_with(hash.as_str()));
    let noted = pod.annotation(DEVICE).and_then(|name| DeviceName::new(name).ok());
    noted
        .filter(|name| prefixes.may_name(name.as_str()) || is_its(name.as_str()))
        .or_else(|| usual(prefixes.first()))
        .or_else(|| usual(DeviceName::CALICO_PREFIX))
}

/// The pod's addresses, from the first source that has any. A pod that has ended has none left.
fn networks(pod: &Object<'_>) -> Vec<String> {
    if has_ended(pod) {
        return Vec::new();
    }
    let of_status: Vec<&str> = pod
        .list(&["status", "podIPs"])
        .iter()
        .filter_map(|entry| entry.get("ip").and_then(Value::as_str))
        .collect();
    let of_annotation = |name: &str| -> Vec<&str> {
        pod.annotation(name).unwrap_or_default().split(',').map(str::trim).collect()
    };
    let mut sources = [
        of_status,
        vec![pod.text(&["status", "podIP"])],
        of_annotation(POD_IPS),
        of_annotation(POD_IP),
        of_annotation(AMAZON_POD_IPS),
    ];
    // The kubelet changes the status seconds after a new sandbox was attached. Until then it has the addresses of the last one.
    if pod.annotation(MAC).is_some() {
        sources.rotate_left(2);
    }
    let first = sources
        .into_iter()
        .map(|source| source.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>())
        .find(|source| !source.is_empty());
    let single = |text: &str| {
        single_address(text).unwrap_or_else(|| {
            pod.doubt("an address of the pod");
            // Not as it is: some readers would take a network for one of its addresses.
            format!("unreadable: {text}")
        })
    };
    first.unwrap_or_default().into_iter().map(single).collect()
}

/// An address as a network of its own.
fn single_address(text: &str) -> Option<String> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: std::net::IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    (length.unwrap_or(whole) == whole).then(|| format!("{address}/{whole}"))
}

/// It ran to its end, or is on its way out and the plugin has taken its addresses back. A pod that goes on may have emptied annotations
/// all the same, between two sandboxes or because somebody emptied them. Then its status counts, as for Calico: an address that is
/// kept too long does no harm, and one that is taken from a running pod does.
fn has_ended(pod: &Object<'_>) -> bool {
    let is_finished = matches!(pod.text(&["status", "phase"]), "Failed" | "Succeeded" | "Completed");
    let is_leaving = !pod.metadata("deletionTimestamp").is_empty();
    is_finished || is_leaving && (is_detached(pod) || pod.annotation(AMAZON_POD_IPS) == Some(""))
}

fn nats(pod: &Object<'_>, networks: &[String]) -> Value {
    let Some(text) = pod.annotation(FLOATING_IPS).filter(|text| !text.is_empty() && !networks.is_empty())
    else {
        return json!([]);
    };
    let Ok(floating) = serde_json::from_str::<Vec<std::net::IpAddr>>(text) else {
        pod.doubt("the annotation cni.projectcalico.org/floatingIPs");
        return json!(text);
    };
    let inside = |external: &std::net::IpAddr| {
        let mut addresses = networks.iter().filter_map(|network| network.split('/').next());
        addresses.find(|address| address.contains(':') == external.is_ipv6())
    };
    let nats: Vec<Value> = floating
        .iter()
        .filter_map(|external| {
            Some(json!({ "internalIP": inside(external)?, "externalIP": external.to_string() }))
        })
        .collect();
    json!(nats)
}

/// Ports that have a name or are open on the node.
fn ports(pod: &Object<'_>) -> Vec<Value> {
    let containers = pod.list(&["spec", "containers"]).iter().chain(pod.list(&["spec", "initContainers"]));
    let ports = containers.filter_map(|container| container.get("ports").and_then(Value::as_array)).flatten();
    ports.filter_map(port).collect()
}

fn port(port: &Value) -> Option<Value> {
    let number = |field| port.get(field).and_then(Value::as_u64).filter(|number| *number > 0);
    let text = |field| port.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let container_port = number("containerPort")?;
    let (name, host_port) = (text("name"), number("hostPort"));
    if name.is_none() && host_port.is_none() {
        return None;
    }
    let protocol = match text("protocol") {
        None => "TCP",
        Some(known @ ("TCP" | "UDP" | "SCTP")) => known,
        Some(_) => return None,
    };
    let fields = [
        ("protocol", Some(Value::from(protocol))),
        ("port", Some(container_port.into())),
        ("name", name.map(Value::from)),
        ("hostPort", host_port.map(Value::from)),
        ("hostIP", text("hostIP").map(Value::from)),
    ];
    let fields = fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
    Some(Value::Object(fields.collect()))
}
