//! Faults of endpoint records, and of who they are for.

use std::net::IpAddr;

use anyhow::Result;
use model::{FindingCode, Key};
use serde_json::json;

use super::books::give_back;
use crate::injection::{Fault, Injection, Takes, endpoint_key, subject_of_endpoint};
use crate::kubernetes;
use crate::scene::NAMESPACE;

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::AddressOutsidePools, takes: Takes::Pod, inject: address_outside_pools },
    Fault { code: FindingCode::AddressShared, takes: Takes::Node, inject: address_shared },
    Fault { code: FindingCode::DeviceShared, takes: Takes::Node, inject: device_shared },
    Fault { code: FindingCode::EndpointAddressDiffers, takes: Takes::Pod, inject: endpoint_address_differs },
    Fault { code: FindingCode::EndpointMisplaced, takes: Takes::Pod, inject: endpoint_misplaced },
    Fault { code: FindingCode::EndpointOfOldSandbox, takes: Takes::Pod, inject: endpoint_of_old_sandbox },
    Fault { code: FindingCode::EndpointOnTwoNodes, takes: Takes::Pod, inject: endpoint_on_two_nodes },
    Fault {
        code: FindingCode::EndpointWithoutContainerId,
        takes: Takes::Pod,
        inject: endpoint_without_container_id,
    },
    Fault { code: FindingCode::EndpointWithoutPod, takes: Takes::Pod, inject: endpoint_without_pod },
    Fault { code: FindingCode::EndpointWithoutSandbox, takes: Takes::Pod, inject: endpoint_without_sandbox },
    Fault { code: FindingCode::PodWithoutEndpoint, takes: Takes::Pod, inject: pod_without_endpoint },
];

/// The pod has another address, everywhere but in the books; those call its old one free.
fn readdress(i: &mut Injection<'_>, to: IpAddr) -> Result<()> {
    let (from, device) = (i.address(), i.device());
    give_back(i)?;
    i.edit_endpoint(|spec| spec["ipNetworks"] = json!([format!("{to}/32")]))?;
    i.edit_item("pods.json", &i.pod().name, |pod| {
        pod["status"]["podIP"] = json!(to);
        pod["status"]["podIPs"] = json!([{"ip": to}]);
    })?;
    i.in_pod(
        format!("ip address add {to}/32 dev eth0; ip address del {from}/32 dev eth0"),
        format!("ip address add {from}/32 dev eth0; ip address del {to}/32 dev eth0"),
    )?;
    let mac = i.scene.on(i.node, &format!("ip neigh show {from} dev {device}"))?;
    let mac =
        mac.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap_or_default().to_owned();
    let neighbour = |verb: &str, address: IpAddr| match verb {
        "add" => format!("ip neigh replace {address} lladdr {mac} dev {device} nud permanent"),
        _ => format!("ip neigh del {address} dev {device}"),
    };
    i.on_node(
        format!("{}; {}; ip route del {from}", neighbour("add", to), neighbour("del", from)),
        format!(
            "{}; {}; ip route add {from} dev {device} proto 112 scope link",
            neighbour("add", from),
            neighbour("del", to)
        ),
    )
}

fn address_outside_pools(i: &mut Injection<'_>) -> Result<()> {
    let to: IpAddr = format!("192.0.2.{}", i.lot()).parse()?;
    readdress(i, to)?;
    let route = format!("ip route add {to} dev {} proto 112 scope link", i.device());
    i.on_node(route, format!("ip route del {to}"))?;
    i.expect(to)
}

/// The node's one route leads to the first of the two.
fn address_shared(i: &mut Injection<'_>) -> Result<()> {
    let shared = i.scene.pod(i.node, 0).addresses[0].parse()?;
    i.number = 1;
    readdress(i, shared)?;
    i.expect(shared)
}

fn device_shared(i: &mut Injection<'_>) -> Result<()> {
    let device = i.scene.pod(i.node, 0).device.clone();
    i.number = 1;
    i.edit_endpoint(|spec| spec["interfaceName"] = json!(device))?;
    let address = i.address();
    i.expect_symptom(FindingCode::RouteToWrongDevice, format!("route {address}/32 on {}", i.node));
    i.expect_symptom(FindingCode::NeighbourMissing, format!("neighbour {address} at {device} on {}", i.node));
    i.expect(format!("device {device} on {}", i.node))
}

fn endpoint_address_differs(i: &mut Injection<'_>) -> Result<()> {
    let shown = format!("10.244.252.{}", i.lot());
    i.edit_item("pods.json", &i.pod().name, |pod| {
        pod["status"]["podIP"] = json!(shown);
        pod["status"]["podIPs"] = json!([{"ip": shown}]);
    })?;
    i.expect(i.pod_subject())
}

fn endpoint_misplaced(i: &mut Injection<'_>) -> Result<()> {
    let other = i.other_node();
    i.edit_endpoint(|spec| spec["node"] = json!(other))?;
    i.expect_symptom(FindingCode::EndpointWithoutDevice, i.endpoint_subject());
    i.expect_symptom(FindingCode::EndpointWithoutSandbox, i.endpoint_subject());
    i.expect(i.endpoint_subject())
}

fn endpoint_of_old_sandbox(i: &mut Injection<'_>) -> Result<()> {
    i.edit_endpoint(|spec| spec["containerID"] = json!("0".repeat(64)))?;
    i.expect(i.endpoint_subject())
}

/// As old releases wrote them; some leave the field out, and some leave it empty.
fn endpoint_without_container_id(i: &mut Injection<'_>) -> Result<()> {
    let is_empty = i.number.is_multiple_of(2);
    i.edit_endpoint(|spec| match is_empty {
        true => spec["containerID"] = json!(""),
        false => drop(spec.as_object_mut().and_then(|spec| spec.remove("containerID"))),
    })?;
    i.expect(i.endpoint_subject())
}

/// What is left of the pod's time on another node.
fn endpoint_on_two_nodes(i: &mut Injection<'_>) -> Result<()> {
    let (other, pod) = (i.other_node(), i.pod());
    let key = endpoint_key(other, &pod.namespace, &pod.name);
    put_endpoint(i, &key, other, &pod.name.clone(), Some(&pod.device))?;
    i.expect_symptom(FindingCode::EndpointWithoutDevice, subject_of_endpoint(&key));
    i.expect_symptom(FindingCode::EndpointWithoutSandbox, subject_of_endpoint(&key));
    i.expect(i.pod_subject())
}

fn put_endpoint(i: &Injection<'_>, key: &Key, node: &str, pod: &str, device: Option<&str>) -> Result<()> {
    let mut record: serde_json::Value = serde_json::from_slice(&i.record(&i.endpoint_key())?)?;
    if let Key::Resource { name, .. } = key {
        record["metadata"]["name"] = json!(name);
    }
    let spec = &mut record["spec"];
    spec["node"] = json!(node);
    spec["pod"] = json!(pod);
    spec["containerID"] = json!(format!("{:02x}{}", i.lot(), "f".repeat(62)));
    spec["ipNetworks"] = json!([]);
    spec["interfaceName"] = json!(device.unwrap_or_default());
    i.put(key.clone(), record.to_string())
}

fn endpoint_without_pod(i: &mut Injection<'_>) -> Result<()> {
    let ghost = format!("ghost-{}", i.lot());
    let key = endpoint_key(i.node, NAMESPACE, &ghost);
    put_endpoint(i, &key, i.node, &ghost, Some(&format!("cali111111111{:02x}", i.lot())))?;
    i.expect_symptom(FindingCode::EndpointWithoutDevice, subject_of_endpoint(&key));
    i.expect_symptom(FindingCode::EndpointWithoutSandbox, subject_of_endpoint(&key));
    i.expect(subject_of_endpoint(&key))
}

/// Kubernetes has the pod; the runtime does not.
fn endpoint_without_sandbox(i: &mut Injection<'_>) -> Result<()> {
    let ghost = format!("ghost-{}", i.lot());
    let key = endpoint_key(i.node, NAMESPACE, &ghost);
    put_endpoint(i, &key, i.node, &ghost, None)?;
    i.edit_list("pods.json", |pods| pods.push(kubernetes::pod(NAMESPACE, &ghost, i.node, None)))?;
    i.expect(subject_of_endpoint(&key))
}

fn pod_without_endpoint(i: &mut Injection<'_>) -> Result<()> {
    i.remove(i.endpoint_key())?;
    i.expect(i.pod_subject())
}
