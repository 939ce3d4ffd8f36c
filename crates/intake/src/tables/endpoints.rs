//! `calicoctl get workloadendpoints [-o wide]`, as printed in 2017 (v1) and since (v3).

use model::names::EndpointName;
use serde_json::Value;

use crate::draft::Draft;
use crate::words;
use evidence::Endpoint;
use evidence::answers::Row;
use evidence::endpoint::EndpointApi;
use model::text::Line;

pub(super) fn row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    let node = row.get("NODE")?;
    let workload = row.get("WORKLOAD")?;
    let networks = row.get("NETWORKS").unwrap_or_default();
    let mut endpoint = match row.get("ORCHESTRATOR") {
        Some(orchestrator) => v1(node, orchestrator, workload, row.get("NAME").unwrap_or("eth0")),
        None => v3(node, workload, row.get("NAME"), row.get("NAMESPACE")),
    };
    endpoint.device = row.get("INTERFACE").map(str::to_owned);
    finish(endpoint, networks, line, draft);
    Some(())
}

/// `node k8s namespace.pod eth0 10.0.0.1/32 cali… profile`: a row of 2017 without its header.
pub(super) fn bare_row(line: &Line, draft: &mut Draft) -> Option<()> {
    let cells: Vec<&str> = line.text.split_whitespace().collect();
    let [node, orchestrator, workload, interface, networks, device, rest @ ..] = cells.as_slice() else {
        return None;
    };
    let is_row = networks.split(',').all(|network| words::address(network).is_some())
        && networks.contains('/')
        && *orchestrator == "k8s"
        && rest.len() <= 2;
    if !is_row {
        return None;
    }
    let mut endpoint = v1(node, orchestrator, workload, interface);
    endpoint.device = Some((*device).to_owned());
    finish(endpoint, networks, line, draft);
    Some(())
}

/// The workload of a pod is `namespace.pod`; namespaces have no dots.
pub(crate) fn v1(node: &str, orchestrator: &str, workload: &str, interface: &str) -> Endpoint {
    let parts = (orchestrator == "k8s").then(|| workload.split_once('.')).flatten();
    Endpoint {
        api: EndpointApi::V1,
        namespace: parts.map(|(namespace, _)| namespace.to_owned()),
        name: workload.to_owned(),
        orchestrator: orchestrator.to_owned(),
        pod: parts.map(|(_, pod)| pod.to_owned()),
        node: Some(node.into()),
        interface: Some(interface.to_owned()),
        ..Endpoint::default()
    }
}

fn v3(node: &str, workload: &str, name: Option<&str>, namespace: Option<&str>) -> Endpoint {
    let computed = || EndpointName::of_pod(node, workload, "eth0").compute().ok();
    let interface = name.and_then(|name| name.parse::<EndpointName>().ok()).map(|parts| parts.endpoint);
    Endpoint {
        api: EndpointApi::V3,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned).or_else(computed).unwrap_or_else(|| workload.to_owned()),
        orchestrator: "k8s".to_owned(),
        pod: Some(workload.to_owned()),
        node: Some(node.into()),
        interface: interface.or_else(|| Some("eth0".to_owned())),
        ..Endpoint::default()
    }
}

fn finish(mut endpoint: Endpoint, networks: &str, line: &Line, draft: &mut Draft) {
    let list = |cell: &str| {
        cell.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Value::from).collect()
    };
    endpoint.read_networks(Some(&Value::Array(list(networks))));
    let endpoint = draft.sight(line, endpoint);
    draft.cluster.endpoints.get_or_insert_default().push(endpoint);
}
