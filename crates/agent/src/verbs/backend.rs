//! A pod whose interface another program makes (`dataplane_options.type: grpc`): what it is asked, and what becomes of its answer.

use std::net::IpAddr;
use std::path::Path;

use host::backend::messages::{
    AddReply, AddRequest, ContainerSettings, DelRequest, IpConfig, Port, WorkloadIDs,
};
use host::backend::{Backend as Program, BackendError};
use ipnet::IpNet;
use model::{DeviceName, Mac, Resource};
use serde_json::Value;
use store::Change;

use super::Call;
use super::error::{CniError, code};
use super::netconf::Backend;
use super::records::{Tries, find_endpoint};
use crate::namespaces::Annotations;

/// How Calico's plugin, which knows of no gateway, fills in the field for one.
const NO_GATEWAY: &str = "<nil>";

/// What the program is told of an attachment.
pub(super) struct Asked<'a> {
    pub(super) endpoint: &'a Resource,
    pub(super) annotations: &'a Annotations,
    /// Each with the prefix length that the allocator gave.
    pub(super) networks: &'a [IpNet],
    pub(super) device: &'a DeviceName,
    pub(super) mtu: Option<u32>,
}

/// The two ends, as the program made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) device: String,
    pub(super) mac: Mac,
}

/// Has the pod's interface made.
pub(super) async fn add(call: &Call, backend: &Backend, asked: &Asked<'_>) -> Result<Made, CniError> {
    let request = request(call, backend, asked);
    let AddReply { host_interface_name, container_mac, .. } =
        Program::new(&backend.socket).add(request).await?;
    let mac = container_mac.parse().map_err(|_| {
        let message = format!("the dataplane answered {container_mac:?}, which is not a MAC address");
        CniError::new(code::KERNEL, message)
    })?;
    Ok(Made { device: host_interface_name, mac })
}

/// Has the pod's interface removed, if there is one.
pub(super) async fn del(call: &Call, backend: &Backend) -> Result<(), CniError> {
    let request = DelRequest {
        interface_name: call.request.interface.clone(),
        netns: netns(call),
        dataplane_options: backend.options.clone(),
    };
    Program::new(&backend.socket).del(request).await?;
    Ok(())
}

fn request(call: &Call, backend: &Backend, asked: &Asked<'_>) -> AddRequest {
    let (endpoint, text) = (asked.endpoint, |field: &str| text(asked.endpoint, field));
    let ports = endpoint.spec("ports").and_then(Value::as_array).into_iter().flatten();
    let address = |network: &IpNet| IpConfig { address: network.to_string(), gateway: NO_GATEWAY.to_owned() };
    AddRequest {
        interface_name: call.request.interface.clone(),
        netns: netns(call),
        desired_host_interface_name: asked.device.to_string(),
        settings: Some(ContainerSettings {
            allow_ip_forwarding: call.netconf.pod_forwards,
            mtu: asked.mtu.and_then(|mtu| i32::try_from(mtu).ok()).unwrap_or_default(),
        }),
        container_ips: asked.networks.iter().map(address).collect(),
        container_routes: routes(&call.netconf.pod_routes),
        workload: Some(WorkloadIDs {
            name: endpoint.metadata.name.clone(),
            namespace: endpoint.metadata.namespace.clone().unwrap_or_default(),
            labels: endpoint.metadata.labels.clone(),
            annotations: asked.annotations.clone(),
            endpoint: text("endpoint"),
            node: text("node"),
            orchestrator: text("orchestrator"),
            pod: text("pod"),
            ports: ports.map(port).collect(),
        }),
        dataplane_options: backend.options.clone(),
    }
}

/// Every network of both versions, unless the configuration lists some.
fn routes(listed: &[IpNet]) -> Vec<String> {
    match listed {
        [] => ["0.0.0.0/0", "::/0"].map(str::to_owned).to_vec(),
        listed => listed.iter().map(ToString::to_string).collect(),
    }
}

fn netns(call: &Call) -> String {
    call.request.netns.as_deref().map(Path::to_string_lossy).unwrap_or_default().into_owned()
}

fn text(endpoint: &Resource, field: &str) -> String {
    endpoint.spec(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn port(port: &Value) -> Port {
    let text = |field: &str| port.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |field: &str| {
        let number = port.get(field).and_then(Value::as_u64).unwrap_or_default();
        u32::try_from(number).unwrap_or_default()
    };
    Port {
        name: text("name"),
        protocol: text("protocol"),
        port: number("port"),
        host_port: number("hostPort"),
        host_ip: text("hostIP"),
    }
}

/// Writes what the program made into the endpoint's record.
pub(super) async fn note(
    call: &Call,
    book: &book::Book,
    key: &model::Key,
    made: &Made,
) -> Result<(), CniError> {
    let mut tries = Tries::default();
    loop {
        let Some((record, mut endpoint)) = find_endpoint(book, key).await? else { return Ok(()) };
        let spec = endpoint.spec_mut();
        spec.insert("interfaceName".to_owned(), made.device.as_str().into());
        spec.insert("mac".to_owned(), made.mac.to_string().into());
        let change = Change::update(key.clone(), endpoint.encode(), record.revision);
        match book.store().commit(vec![change]).await {
            Err(error) if error.is_lost_race() => tries.again(&call.sandbox).await?,
            outcome => return outcome.map(drop).map_err(CniError::from),
        }
    }
}

/// The addresses alone, where nobody gave a prefix length.
pub(super) fn alone(addresses: &[IpAddr]) -> Vec<IpNet> {
    addresses.iter().copied().map(IpNet::from).collect()
}

impl From<BackendError> for CniError {
    fn from(error: BackendError) -> CniError {
        let code = match error {
            BackendError::Socket { .. } => code::CONFIGURATION,
            BackendError::Unreachable { .. } | BackendError::NoAnswer { .. } => code::TRY_LATER,
            BackendError::Refused { .. } => code::KERNEL,
        };
        CniError::new(code, "the interface was not made").because(&error)
    }
}
