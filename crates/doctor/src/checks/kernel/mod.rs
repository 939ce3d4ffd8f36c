//! Kernel agrees: what a node's kernel holds against the endpoints that are recorded for it.

pub(super) mod device_down;
pub(super) mod device_setting_wrong;
pub(super) mod device_without_endpoint;
pub(super) mod endpoint_without_device;
pub(super) mod mtu_differs;
pub(super) mod mtu_too_large;
pub(super) mod neighbour_missing;
pub(super) mod neighbour_without_endpoint;
pub(super) mod neighbour_wrong;
pub(super) mod route_missing;
pub(super) mod route_shadowed;
pub(super) mod route_to_wrong_device;
pub(super) mod route_without_endpoint;

use std::net::IpAddr;

use model::ShellCommand;
use plan::Difference;
use plan::task::RepairTask;

use crate::{Case, Host, Subject};
use evidence::{Endpoint, Sighted};

/// Endpoints of a node that are neither coming nor going, each with its device.
fn settled<'c, 'e>(
    case: &'c Case<'e>,
    host: &'c Host<'e>,
) -> impl Iterator<Item = (&'e Sighted<Endpoint>, &'e str)> + use<'c, 'e> {
    host.endpoints.iter().copied().filter_map(move |endpoint| {
        let device = endpoint.seen.device.as_deref()?;
        is_settled(case, host, endpoint, device).then_some((endpoint, device))
    })
}

fn is_settled(case: &Case<'_>, host: &Host<'_>, endpoint: &Sighted<Endpoint>, device: &str) -> bool {
    let is_at_work = case.passes_over(host.attachment(device).is_some_and(|held| held.is_in_flux));
    let name = endpoint.seen.pod_name();
    let is_finished = name.is_some_and(|name| case.pods_named(&name).any(|pod| pod.seen.is_finished()));
    !is_at_work && !is_finished && !case.is_endpoint_in_flux(&endpoint.seen)
}

/// One thing that is wrong with the node's end of an endpoint that is neither coming nor going.
struct Fault<'c, 'e> {
    host: &'c Host<'e>,
    endpoint: &'e Sighted<Endpoint>,
    device: &'e str,
    difference: &'c Difference,
}

fn faults<'c, 'e>(case: &'c Case<'e>) -> impl Iterator<Item = Fault<'c, 'e>> {
    let settled = case.node_ends().filter(|(host, end)| is_settled(case, host, end.endpoint, end.device));
    settled.flat_map(|(host, end)| {
        let (endpoint, device) = (end.endpoint, end.device);
        end.differences.iter().map(move |difference| Fault { host, endpoint, device, difference })
    })
}

impl Fault<'_, '_> {
    /// The command that puts it right.
    fn command(&self) -> Option<ShellCommand> {
        RepairTask::here(self.difference.change()?).commands().pop()
    }
}

fn route_subject(host: &Host<'_>, address: IpAddr) -> Subject {
    Subject::route(host.name(), address)
}

fn neighbour_subject(host: &Host<'_>, address: IpAddr, device: &str) -> Subject {
    Subject::neighbour(host.name(), address, device)
}

/// Whether somebody of this node has the address: an endpoint, or an attachment of the agent.
fn is_held(case: &Case<'_>, host: &Host<'_>, address: IpAddr, device: &str) -> bool {
    let is_here = |endpoint: &&&Sighted<Endpoint>| endpoint.seen.node.as_ref() == Some(host.name());
    case.endpoints_at(address).iter().any(|endpoint| is_here(&endpoint))
        || host.attachment(device).is_some_and(|held| held.is_in_flux || held.addresses.contains(&address))
}

/// Nodes on which something that no endpoint has is left over: none, unless every endpoint there is was collected.
fn judged_hosts<'c, 'e>(case: &'c Case<'e>) -> &'c [Host<'e>] {
    if case.knows_endpoints() { case.hosts() } else { &[] }
}
