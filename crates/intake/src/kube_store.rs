//! Clusters whose store is Kubernetes have no WorkloadEndpoint and Node records: Calico's view of pods and nodes takes their
//! place, as the store shows it live (`model::kube::views`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::Reservations;

use evidence::{Endpoint, Evidence, KubeNode, Origin, Pod, Sighted};
use model::kube::views::{Shown, view};
use model::{Cidr, Kind, Resource, as_attached};
use serde_json::{Map, Value, json};

const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";
/// What the plugin notes on a pod, the list of both versions first.
const NOTED_ADDRESSES: [&str; 2] = ["cni.projectcalico.org/podIPs", "cni.projectcalico.org/podIP"];

/// Adds what a Kubernetes store shows of pods and nodes. Nothing where records were collected, or where nothing tells that
/// the store is Kubernetes. `has_custom_resources`: Calico's own were among the texts.
pub(crate) fn show(mut evidence: Evidence, has_custom_resources: bool) -> Evidence {
    if !(has_custom_resources || is_annotated(&evidence)) {
        return evidence;
    }
    if evidence.endpoints.is_none() {
        show_endpoints(&mut evidence);
    }
    // A node that is not among them would count as gone.
    let is_whole = evidence.kube_nodes.is_some() && !evidence.partial.kube_nodes;
    if is_whole && evidence.records.of(Kind::Node).is_none() {
        show_nodes(&mut evidence);
    }
    evidence
}

/// Whether Calico has noted on pods or nodes what it would write into records elsewhere.
fn is_annotated(evidence: &Evidence) -> bool {
    let is_noted = |name: &String| name == CONTAINER_ID || NOTED_ADDRESSES.contains(&name.as_str());
    let mut pods = evidence.pods.iter().flatten();
    let mut nodes = evidence.kube_nodes.iter().flatten();
    pods.any(|pod| pod.seen.annotations.keys().any(is_noted))
        || nodes.any(|node| node.seen.annotations.contains_key("projectcalico.org/IPv4Address"))
}

fn show_endpoints(evidence: &mut Evidence) {
    let Some(pods) = &evidence.pods else { return };
    let pools = pools(evidence);
    let nodes: BTreeSet<IpAddr> = node_addresses(evidence);
    // Releases of old did not note the sandbox on pods: that it is missing says nothing.
    let notes_sandboxes = pods.iter().any(|pod| pod.seen.annotations.contains_key(CONTAINER_ID));
    let mut endpoints = Vec::new();
    let mut is_partial = evidence.partial.pods;
    for pod in pods {
        match endpoint(&pod.seen, &pools, &nodes) {
            Shows::Endpoint(mut endpoint) => {
                if !notes_sandboxes {
                    endpoint.created_at = None;
                }
                endpoints.push(Sighted::new(*endpoint, pod.origin.clone()));
            }
            Shows::Nothing => {}
            Shows::Unknown => is_partial = true,
        }
    }
    // Nothing was concluded, which is not the same as nothing there.
    if endpoints.is_empty() && is_partial {
        return;
    }
    evidence.endpoints = Some(endpoints);
    evidence.partial.endpoints = is_partial;
    evidence.shown.endpoints = true;
}

/// What a pod shows.
enum Shows {
    Endpoint(Box<Endpoint>),
    /// It has no network of its own, or none yet, or none any more.
    Nothing,
    /// The text does not tell.
    Unknown,
}

fn endpoint(pod: &Pod, pools: &Pools, nodes: &BTreeSet<IpAddr>) -> Shows {
    let has_own_network = match pod.host_network {
        Some(is_on_host) => !is_on_host,
        // A table does not say it. The address does, if it can be compared with something.
        None if pod.addresses.is_empty() || !pod.annotations.is_empty() => true,
        None if pod.addresses.iter().any(|address| nodes.contains(address)) => false,
        None if pools.is_empty => return Shows::Unknown,
        None => pod.addresses.iter().any(|address| pools.addresses.contains(*address)),
    };
    if !has_own_network || pod.is_finished() {
        return Shows::Nothing;
    }
    if pod.node.is_some() && pod.name.namespace.is_none() {
        return Shows::Unknown;
    }
    let Some(mut endpoint) = viewed(pod) else { return Shows::Nothing };
    // What the plugin noted is what the sandbox got; the status may still be that of the sandbox before.
    let noted = NOTED_ADDRESSES.iter().find_map(|name| pod.annotations.get(*name));
    let noted: Vec<IpAddr> =
        noted.into_iter().flat_map(|text| text.split(',')).filter_map(crate::words::address).collect();
    if !noted.is_empty() {
        endpoint.addresses = noted;
    }
    // In the store there is one as soon as the pod has a node; before the plugin has made anything it matters to nobody.
    if endpoint.addresses.is_empty() { Shows::Nothing } else { Shows::Endpoint(Box::new(endpoint)) }
}

fn viewed(pod: &Pod) -> Option<Endpoint> {
    let mut metadata = Map::new();
    let mut put = |field: &str, value: Option<String>| {
        if let Some(value) = value {
            metadata.insert(field.to_owned(), value.into());
        }
    };
    put("name", Some(pod.name.name.clone()));
    put("namespace", pod.name.namespace.clone());
    put("uid", pod.uid.clone());
    put("creationTimestamp", pod.created_at.map(|at| at.to_string()));
    put("deletionTimestamp", pod.deleted_at.map(|at| at.to_string()));
    metadata.insert("annotations".to_owned(), json!(pod.annotations));
    let addresses: Vec<Value> =
        pod.addresses.iter().map(|address| json!({ "ip": address.to_string() })).collect();
    let object = json!({
        "metadata": metadata,
        "spec": {"nodeName": pod.node.as_ref().map(|node| node.as_str())},
        "status": {"phase": pod.status, "podIPs": addresses},
    });
    let shown = view(Shown::Pod, object.as_object()?).ok()??;
    let resource =
        Resource::decode(&shown.key, Kind::WorkloadEndpoint, &as_attached(&shown.value), "").ok()?;
    Some(Endpoint::of_resource(&resource))
}

/// Nodes that were given as a whole: a table has no annotations.
fn show_nodes(evidence: &mut Evidence) {
    let Some(nodes) = &evidence.kube_nodes else { return };
    if nodes.iter().any(|node| node.seen.annotations.is_empty() && node.seen.conditions.is_empty()) {
        return;
    }
    let shown: Vec<(Resource, Origin)> =
        nodes.iter().filter_map(|node| Some((node_record(&node.seen)?, node.origin.clone()))).collect();
    for (record, origin) in shown {
        evidence.records.add(Sighted::new(record, origin));
    }
    evidence.shown.nodes = true;
}

fn node_record(node: &KubeNode) -> Option<Resource> {
    let internal: Vec<Value> = node
        .internal_ips
        .iter()
        .map(|address| json!({ "type": "InternalIP", "address": address.to_string() }))
        .collect();
    let object = json!({
        "metadata": {"name": node.name.as_str(), "labels": node.labels, "annotations": node.annotations},
        "status": {"addresses": internal},
    });
    let shown = view(Shown::Node, object.as_object()?).ok()??;
    Resource::decode(&shown.key, Kind::Node, &shown.value, "").ok()
}

/// The addresses of all pools, in one list: neither they nor the pods are few.
struct Pools {
    is_empty: bool,
    addresses: Reservations,
}

fn pools(evidence: &Evidence) -> Pools {
    let records = evidence.records.all(Kind::IpPool).iter();
    let pools: Vec<Cidr> =
        records.filter_map(|pool| Cidr::parse_masked(pool.seen.spec("cidr")?.as_str()?).ok()).collect();
    Pools { is_empty: pools.is_empty(), addresses: Reservations::new(&pools) }
}

fn node_addresses(evidence: &Evidence) -> BTreeSet<IpAddr> {
    let nodes = evidence.kube_nodes.iter().flatten();
    let told = nodes.flat_map(|node| {
        let noted = ["projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address"]
            .into_iter()
            .filter_map(|name| crate::words::address(node.seen.annotations.get(name)?));
        node.seen.internal_ips.iter().copied().chain(noted)
    });
    let of_host = evidence.pods.iter().flatten().filter(|pod| pod.seen.is_of_host_by_name());
    told.chain(of_host.flat_map(|pod| pod.seen.addresses.iter().copied())).collect()
}

#[cfg(test)]
mod tests {
    use crate::read;

    const POOL: &[u8] =
        b"apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata:\n  name: p\nspec:\n  cidr: 10.244.0.0/16\n";
    const NODES: &[u8] = b"NAME   STATUS   ROLES    AGE   VERSION   INTERNAL-IP   EXTERNAL-IP   OS-IMAGE\n\
        n1     Ready    <none>   9d    v1.29.3   192.0.2.11    <none>        Debian\n";
    const TABLE: &[u8] =
        b"NAMESPACE     NAME               READY   STATUS      RESTARTS   AGE   IP            NODE\n\
        shop          web-0              1/1     Running     0          9d    10.244.1.5    n1\n\
        shop          job-x              0/1     Completed   0          9d    10.244.1.9    n1\n\
        kube-system   kube-proxy-7p5nx   1/1     Running     0          9d    192.0.2.11    n1\n";

    #[test]
    fn a_table_of_pods_is_the_list_of_endpoints() {
        let evidence = read([("pods.txt", TABLE), ("nodes.txt", NODES), ("pool.yaml", POOL)]);
        let endpoints = evidence.endpoints.as_ref().unwrap();
        assert_eq!(endpoints.len(), 1, "{endpoints:?}");
        let web = &endpoints[0].seen;
        assert_eq!(web.pod_name().unwrap().to_string(), "shop/web-0");
        assert_eq!(web.addresses[0].to_string(), "10.244.1.5");
        assert!(web.device.as_deref().is_some_and(|device| device.starts_with("cali")));
        assert_eq!((web.container_id.as_deref(), web.created_at), (None, None));
        assert!(!evidence.partial.endpoints);
        assert!(evidence.records.of(model::Kind::Node).is_none(), "a table has no annotations");
    }

    #[test]
    fn without_a_sign_of_a_kubernetes_store_nothing_is_concluded() {
        let evidence = read([("pods.txt", TABLE), ("nodes.txt", NODES)]);
        assert!(evidence.endpoints.is_none());
    }

    #[test]
    fn what_the_plugin_noted_goes_before_the_status() {
        let pod = |annotations: &str, extra: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"web-0","namespace":"shop","creationTimestamp":"2026-01-01T00:00:00Z"{extra},"annotations":{{{annotations}}}}},
                "spec":{{"nodeName":"n1"}},"status":{{"phase":"Running","podIP":"10.244.1.5","podIPs":[{{"ip":"10.244.1.5"}}]}}}}"#
            )
        };
        let noted =
            r#""cni.projectcalico.org/podIP":"10.244.1.6/32","cni.projectcalico.org/containerID":"abc""#;
        let evidence = read([("pod.json", pod(noted, "").as_bytes())]);
        let endpoint = &evidence.endpoints.as_ref().unwrap()[0].seen;
        assert_eq!(endpoint.addresses[0].to_string(), "10.244.1.6");
        assert_eq!(endpoint.container_id.as_deref(), Some("abc"));
        assert!(evidence.partial.endpoints, "a single pod is not all pods");
        // The plugin has taken the address back: this is how a late DEL leaves a running pod.
        let taken = r#""cni.projectcalico.org/podIP":"","cni.projectcalico.org/podIPs":"","cni.projectcalico.org/containerID":"abc""#;
        let evidence = read([("pod.json", pod(taken, "").as_bytes())]);
        assert!(evidence.endpoints.is_none());
    }

    #[test]
    fn nodes_given_whole_are_records() {
        let nodes = br#"{"apiVersion":"v1","kind":"NodeList","metadata":{"resourceVersion":"7"},"items":[
            {"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","annotations":{"projectcalico.org/IPv4Address":"192.0.2.11/24"}},
             "status":{"addresses":[{"type":"InternalIP","address":"192.0.2.11"}],"conditions":[{"type":"Ready","status":"True"}]}},
            {"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"},
             "status":{"addresses":[{"type":"InternalIP","address":"192.0.2.12"}],"conditions":[{"type":"Ready","status":"True"}]}}]}"#;
        let evidence = read([("nodes.json", nodes.as_slice())]);
        let records = evidence.records.of(model::Kind::Node).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].seen.spec("bgp").unwrap()["ipv4Address"], "192.0.2.11/24");
        assert!(records[1].seen.spec("bgp").is_none());
    }
}
