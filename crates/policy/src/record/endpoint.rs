//! What has addresses and labels: endpoints of workloads and hosts, and sets of networks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::Resource;
use serde_json::Value;

use super::entity::read_net;
use super::fields::{At, Fault, Read, shared};
use super::{ACCOUNT_PREFIX, LABEL_ACCOUNT, LABEL_NAMESPACE, LABEL_ORCHESTRATOR, NAMESPACE_PREFIX};

/// Something that selectors of rules can match.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) labels: BTreeMap<Arc<str>, Arc<str>>,
    /// In the order in which they are asked, and in which labels are taken from them.
    pub(crate) profiles: Vec<Arc<str>>,
    /// Single addresses of an endpoint, networks of a set; none of them is everything.
    pub(crate) nets: Vec<IpNet>,
    pub(crate) ports: Vec<NamedPort>,
    pub(crate) node: Arc<str>,
    pub(crate) device: Arc<str>,
    pub(crate) faults: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedPort {
    pub(crate) name: Arc<str>,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// An endpoint without addresses is none. Neither is one that may spoof, unless that is allowed: its device stays shut.
pub(crate) fn read_workload(record: &Resource, may_spoof: bool) -> Result<Option<Endpoint>, Fault> {
    let spec = At::spec(&record.body);
    if !may_spoof && !spec.field("allowSpoofedSourcePrefixes").items()?.is_empty() {
        let fault = "is not allowed unless FelixConfiguration sets workloadSourceSpoofing to Any";
        return Err(spec.field("allowSpoofedSourcePrefixes").fault(fault));
    }
    let mut nets = Vec::new();
    for item in spec.field("ipNetworks").items()? {
        let net = read_net(item.text()?.unwrap_or_default());
        let single = net.filter(|net| net.prefix_len() == net.max_prefix_len());
        nets.push(single.ok_or_else(|| item.fault("must be one address, such as 10.0.0.1/32"))?);
    }
    if nets.is_empty() {
        return Ok(None);
    }
    let mut labels: BTreeMap<Arc<str>, Arc<str>> = record
        .metadata
        .labels
        .iter()
        // Otherwise a pod could claim to be of another namespace or service account.
        .filter(|(name, _)| !name.starts_with(NAMESPACE_PREFIX) && !name.starts_with(ACCOUNT_PREFIX))
        .map(|(name, value)| (shared(name), shared(value)))
        .collect();
    labels.insert(shared(LABEL_NAMESPACE), shared(record.metadata.namespace.as_deref().unwrap_or_default()));
    for (field, label) in [("orchestrator", LABEL_ORCHESTRATOR), ("serviceAccountName", LABEL_ACCOUNT)] {
        if let Some(value) = spec.field(field).word()? {
            labels.insert(shared(label), shared(value));
        }
    }
    nets.sort();
    nets.dedup();
    let mut faults = Vec::new();
    Ok(Some(Endpoint {
        labels,
        profiles: spec.field("profiles").texts()?.into_iter().map(shared).collect(),
        nets,
        ports: read_ports(&spec.field("ports"), &mut faults)?,
        node: shared(spec.field("node").word()?.unwrap_or_default()),
        device: shared(spec.field("interfaceName").word()?.unwrap_or_default()),
        faults,
    }))
}

pub(crate) fn read_host(record: &Resource) -> Read<Endpoint> {
    let spec = At::spec(&record.body);
    let mut nets = Vec::new();
    for item in spec.field("expectedIPs").items()? {
        let address = item.text()?.unwrap_or_default().parse::<IpAddr>();
        nets.push(IpNet::from(address.map_err(|_| item.fault("must be an address"))?));
    }
    nets.sort();
    nets.dedup();
    let mut faults = Vec::new();
    Ok(Endpoint {
        labels: all_labels(record),
        profiles: spec.field("profiles").texts()?.into_iter().map(shared).collect(),
        nets,
        ports: read_ports(&spec.field("ports"), &mut faults)?,
        node: shared(spec.field("node").word()?.unwrap_or_default()),
        device: shared(spec.field("interfaceName").word()?.unwrap_or_default()),
        faults,
    })
}

/// A network that cannot be read is left out, and named.
pub(crate) fn read_network_set(record: &Resource) -> Endpoint {
    let namespace = record.metadata.namespace.as_deref().filter(|_| record.kind.is_namespaced());
    let mut set = Endpoint { labels: all_labels(record), ..Endpoint::default() };
    if let Some(namespace) = namespace {
        set.labels.insert(shared(LABEL_NAMESPACE), shared(namespace));
        set.profiles.push(format!("kns.{namespace}").into());
    } else {
        set.labels.remove(LABEL_NAMESPACE);
    }
    let nets = At::spec(&record.body).field("nets");
    match nets.items() {
        Ok(items) => {
            for item in items {
                match item.value().and_then(Value::as_str).and_then(read_net) {
                    Some(net) => set.nets.extend(halves(net)),
                    None => {
                        set.faults.push(item.fault("must be a network or an address: it is left out").text())
                    }
                }
            }
        }
        Err(fault) => set.faults.push(fault.text()),
    }
    set.nets.sort();
    set.nets.dedup();
    set
}

/// No set of the kernel holds a network of everything.
fn halves(net: IpNet) -> Vec<IpNet> {
    match net.prefix_len() {
        0 => net.subnets(1).map_or_else(|_| vec![net], Iterator::collect),
        _ => vec![net],
    }
}

fn all_labels(record: &Resource) -> BTreeMap<Arc<str>, Arc<str>> {
    record.metadata.labels.iter().map(|(name, value)| (shared(name), shared(value))).collect()
}

/// Those with a name. Others are for the host's own port only.
fn read_ports(at: &At<'_>, faults: &mut Vec<Arc<str>>) -> Read<Vec<NamedPort>> {
    let mut ports = Vec::new();
    for item in at.items()? {
        let Some(name) = item.field("name").word()? else { continue };
        let protocol = match item.field("protocol").value() {
            Some(Value::String(text)) => match text.as_str() {
                "TCP" | "6" => Some(6),
                "UDP" | "17" => Some(17),
                "SCTP" | "132" => Some(132),
                _ => None,
            },
            Some(value) => value.as_u64().and_then(|number| u8::try_from(number).ok()),
            None => None,
        };
        let port =
            item.field("port").value().and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        match (protocol.filter(|protocol| super::entity::has_ports(*protocol)), port) {
            (Some(protocol), Some(port)) => ports.push(NamedPort { name: shared(name), protocol, port }),
            _ => faults.push(item.fault("is no port of TCP, UDP or SCTP: it is left out").text()),
        }
    }
    ports.sort();
    ports.dedup();
    Ok(ports)
}
