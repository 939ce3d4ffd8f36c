//! Identity: two endpoints of one node claim the same device.

use std::collections::BTreeMap;

use ipam::fingerprint;
use model::NodeName;
use model::names::host_interface_name;

use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::{Endpoint, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Several endpoints name the same device",
    explanation: "The endpoint records of two pods on one node name the same network device. A device leads \
                  to only one pod, so the other pod's traffic goes to the wrong pod or is dropped.",
    remedy: "run plumb repair finding device-shared --apply to correct the record, or find out which pod the \
             device leads to and recreate the other",
    needs: &[&[Need::Endpoints]],
    ..Check::error(FindingCode::DeviceShared, look)
};

type Owner<'e> = (Option<&'e str>, &'e str, Option<&'e str>);
/// The device by its fingerprint and its name, and its node.
type Named<'e> = (u64, &'e str, &'e NodeName, Owner<'e>, &'e Sighted<Endpoint>);

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut named: Vec<Named<'_>> = Vec::with_capacity(case.all_endpoints().len());
    for endpoint in case.all_endpoints() {
        let seen = &endpoint.seen;
        let (Some(node), Some(device)) = (seen.node.as_ref(), seen.device.as_deref()) else { continue };
        let owner =
            (seen.namespace.as_deref(), seen.pod.as_deref().unwrap_or(&seen.name), seen.interface.as_deref());
        named.push((fingerprint(device), device, node, owner, endpoint));
    }
    named.sort_by_key(|(number, device, node, ..)| (*number, *device, *node));
    for group in named.chunk_by(|a, b| (a.1, a.2) == (b.1, b.2)).filter(|group| group.len() > 1) {
        let (_, device, node, ..) = group[0];
        let owners: BTreeMap<Owner<'_>, &Sighted<Endpoint>> =
            group.iter().map(|(.., owner, endpoint)| (*owner, *endpoint)).collect();
        if owners.len() < 2 || owners.values().any(|endpoint| case.is_endpoint_in_flux(&endpoint.seen)) {
            continue;
        }
        let names = listed(owners.values().map(|endpoint| &endpoint.seen));
        let summary = format!("{} endpoints on {node} name device {device}: {names}", owners.len());
        let finding = look.found(Subject::device(node, device), summary);
        finding.seen_all(owners.values().map(|endpoint| endpoint_exhibit(endpoint)));
        for address in owners.values().flat_map(|endpoint| &endpoint.seen.addresses) {
            finding
                .explains(FindingCode::RouteToWrongDevice, Subject::route(node, *address))
                .explains(FindingCode::NeighbourMissing, Subject::neighbour(node, *address, device));
        }
        // The device that one of them really has is named by nobody then.
        for (namespace, pod, _) in owners.keys() {
            if let Ok(usual) = host_interface_name(namespace.unwrap_or_default(), pod) {
                finding.explains(FindingCode::DeviceWithoutEndpoint, Subject::device(node, usual.as_str()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_two_pods_and_not_for_a_record_listed_twice() {
        let mut evidence = small();
        let endpoints = evidence.endpoints.as_mut().unwrap();
        endpoints.push(endpoints[0].clone());
        silent(&CHECK, &evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        endpoints[1].seen.device = endpoints[0].seen.device.clone();
        assert!(only(&CHECK, &evidence).summary.starts_with("2 endpoints on worker-0000 name device cali"));
    }
}
