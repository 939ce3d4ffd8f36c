//! What Calico's plugin says, in the words of 2017 and of today.

use model::{Cidr, HandleId, Key, NodeName};

use crate::words;
use evidence::PodName;
use evidence::log::{CniCommand, Happening, WrittenEndpoint};

use super::fields::{between, find, word_after, workload};
use super::prefix::LogLine;

pub(super) fn read(line: &LogLine<'_>) -> Option<Happening> {
    let message = line.message.as_ref();
    call(message)
        .or_else(|| call_since_v3(line, message))
        .or_else(|| addresses(line, message))
        .or_else(|| keys(message))
        .or_else(|| handles(line, message))
        .or_else(|| endpoints(line, message))
}

/// `Configured environment: [… CNI_COMMAND=ADD CNI_CONTAINERID=… CNI_NETNS=… CNI_ARGS=…;K8S_POD_NAME=… …]`
fn call(message: &str) -> Option<Happening> {
    let inside = message.split_once("Configured environment: [")?.1;
    let container_id = find(inside, "CNI_CONTAINERID")?.into_owned();
    let args = find(inside, "CNI_ARGS").unwrap_or_default();
    let pod = find(&args, "K8S_POD_NAMESPACE").zip(find(&args, "K8S_POD_NAME"));
    let first = |text: &str| text.split(';').next().unwrap_or_default().to_owned();
    Some(Happening::CniCall {
        command: CniCommand::parse(&find(inside, "CNI_COMMAND")?)?,
        container_id,
        pod: pod.map(|(namespace, name)| PodName::new(first(&namespace), first(&name))),
        interface: find(inside, "CNI_IFNAME").map(|name| name.into_owned()),
        netns: word_after(inside, "CNI_NETNS=", &[' ', ']'])
            .map(str::to_owned)
            .or_else(|| inside.contains("CNI_NETNS=").then(String::new)),
    })
}

/// Since v3 the plugin names the sandbox beside each of its lines. These are said in no other call.
fn call_since_v3(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    const DEL: [&str; 3] = ["Cleaning up netns", "Releasing IP address(es)", "Teardown processing complete"];
    let command = match message {
        message if message.starts_with("Extracted identifiers for CmdAddK8s") => CniCommand::Add,
        message if DEL.iter().any(|start| message.starts_with(start)) => CniCommand::Del,
        _ => return None,
    };
    let container_id = find(&line.rest, "ContainerID")?.into_owned();
    Some(Happening::CniCall { command, container_id, pod: pod_of(line), interface: None, netns: None })
}

fn addresses(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    let list = match message {
        message if message.starts_with("Auto-assigned ") => {
            message.split_once("IPv4s: ").or_else(|| message.split_once("IPv6s: "))?.1
        }
        message if message.starts_with("Calico CNI IPAM assigned addresses") => {
            message.split_once("IPv4=")?.1
        }
        _ => return None,
    };
    let list = list.split_once(" handle=").map_or(list, |(list, _)| list);
    let list = list.split_once(" ContainerID=").map_or(list, |(list, _)| list);
    let addresses = words::addresses(list);
    (!addresses.is_empty()).then(|| Happening::AddressesAssigned {
        addresses,
        pod: pod_of(line),
        container_id: container_of(line),
    })
}

/// `Get Key: …`, `Delete Key: …`: what is read says which block is meant, what is deleted is gone.
fn keys(message: &str) -> Option<Happening> {
    if let Some(key) = message.strip_prefix("Delete Key: ") {
        if let Some(handle) = key.strip_prefix("/calico/ipam/v2/handle/") {
            return Some(Happening::HandleDeleted { handle: handle.trim().into() });
        }
        let (node, pod) = endpoint_key(key)?;
        return Some(Happening::EndpointDeleted { pod: Some(pod), node: Some(node) });
    }
    if message.starts_with("Key not found error") {
        return Some(Happening::KeyNotFound);
    }
    let key = message.strip_prefix("Get Key: ")?;
    match Key::from_etcd_text(key.trim()) {
        Ok(Key::Block(block)) => Some(Happening::BlockRead { block }),
        _ => None,
    }
}

/// `/calico/v1/host/NODE/workload/k8s/NAMESPACE.POD/endpoint/eth0`
fn endpoint_key(key: &str) -> Option<(NodeName, PodName)> {
    let rest = key.trim().strip_prefix("/calico/v1/host/")?;
    let mut parts = rest.split('/');
    let node = parts.next()?.into();
    (parts.next()? == "workload").then_some(())?;
    parts.next()?;
    let pod = workload(parts.next()?)?;
    (parts.next()? == "endpoint").then_some(())?;
    parts.next()?;
    Some((node, pod))
}

fn handles(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    if let Some(handle) = between(message, "Releasing all IPs with handle '", "'") {
        return Some(Happening::HandleReleasing { handle: handle.into() });
    }
    if let Some(handle) = between(message, "Decremented handle '", "' by ") {
        let by = message.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(1);
        return Some(Happening::HandleDecremented { handle: handle.into(), by });
    }
    if let Some(handle) = message.strip_prefix("Deleting handle: ") {
        return Some(Happening::HandleDeleted { handle: handle.trim().into() });
    }
    if message.starts_with("Released address using handleID")
        && let Some(handle) = find(&line.rest, "HandleID")
    {
        return Some(Happening::HandleReleasing { handle: handle.into_owned().into() });
    }
    if message.starts_with("Released address using ") {
        return Some(Happening::AddressReleased { address: None, pod: pod_of(line) });
    }
    let releasing =
        message.strip_prefix("Releasing address ").or_else(|| message.strip_prefix("Releasing IP "));
    let address = words::address(releasing?.split([' ', '"']).next()?.trim_end_matches('.'))?;
    Some(Happening::AddressReleased { address: Some(address), pod: pod_of(line) })
}

fn endpoints(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    if message.starts_with("Added Mac and interface name to endpoint")
        || message.starts_with("Added Mac, interface name, and active container ID to endpoint")
    {
        return Some(Happening::EndpointWritten { endpoint: written(line) });
    }
    if message.starts_with("Wrote updated endpoint to datastore") {
        let endpoint = WrittenEndpoint {
            pod: pod_of(line),
            container_id: container_of(line),
            ..WrittenEndpoint::default()
        };
        return Some(Happening::EndpointWritten { endpoint });
    }
    if message.contains("WorkloadEndpoint does not exist in the datastore") {
        let node = between(&line.rest, "Node:\"", "\"").map(NodeName::from);
        return Some(Happening::EndpointAbsent { pod: pod_of(line), node });
    }
    if message.contains("does not match WorkloadEndpoint ContainerID") {
        return Some(Happening::EndpointOfAnother { pod: pod_of(line), container_id: container_of(line) });
    }
    if message.starts_with("Deleting WorkloadEndpoint") || message.starts_with("Deleted WorkloadEndpoint") {
        return Some(Happening::EndpointDeleted { pod: pod_of(line), node: None });
    }
    None
}

/// Go prints the record's fields without names: `… eth0 NAMESPACE.POD k8s NODE map[…]} {[10.0.0.1/32] … cali… MAC}}`.
fn written(line: &LogLine<'_>) -> WrittenEndpoint {
    let text = line.rest.split_once("endpoint=").map_or(line.rest.as_ref(), |(_, text)| text);
    let split = |character: char| character.is_whitespace() || "{}[]\",".contains(character);
    let found: Vec<&str> = text.split(split).filter(|word| !word.is_empty()).collect();
    let position = found.iter().position(|word| *word == "k8s");
    WrittenEndpoint {
        pod: pod_of(line),
        node: position.and_then(|at| found.get(at + 1)).map(|word| NodeName::from(*word)),
        device: found.iter().find(|word| is_device(word)).map(|word| (*word).to_owned()),
        mac: found.iter().find_map(|word| word.parse().ok()),
        addresses: found
            .iter()
            .filter(|word| word.ends_with("/32") || word.ends_with("/128"))
            .filter_map(|word| words::address(word))
            .collect(),
        container_id: container_of(line),
    }
}

fn is_device(word: &str) -> bool {
    let digits = word.strip_prefix("cali").unwrap_or_default();
    digits.len() == 11 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `Workload=namespace.pod` of 2017; `Namespace="…" Pod="…"` or the endpoint's name since.
pub(super) fn pod_of(line: &LogLine<'_>) -> Option<PodName> {
    if let Some(pod) = find(&line.rest, "Workload").and_then(|text| workload(text.trim_matches('"'))) {
        return Some(pod);
    }
    let namespace = find(&line.rest, "Namespace")?;
    Some(PodName::new(namespace, find(&line.rest, "Pod")?))
}

/// Beside the line, or at the end of the handle that is.
fn container_of(line: &LogLine<'_>) -> Option<String> {
    find(&line.rest, "ContainerID").map(|id| id.into_owned()).or_else(|| {
        let handle = HandleId::from(find(&line.rest, "handle")?.as_ref());
        handle.container().filter(|id| words::is_container_id(id)).map(str::to_owned)
    })
}

/// A block named in a line of a controller.
pub(super) fn block_of(line: &LogLine<'_>) -> Option<Cidr> {
    find(&line.rest, "cidr").and_then(|text| Cidr::parse_masked(&text).ok())
}
