//! Kernel agrees: the node does not know the pod's hardware address.

use std::net::IpAddr;

use super::{neighbour_subject, settled};
use crate::checks::words::endpoint_exhibit;
use crate::evidence::Endpoint;
use crate::evidence::kernel::NeighbourState;
use crate::{Case, Check, Host, Look, Need, Origin, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "neighbour-missing",
    severity: Severity::Error,
    title: "The node does not know a pod's hardware address",
    explanation: "A node sends packets to a pod's hardware address, which it keeps as a neighbour entry. \
                  The entry is not there although it is meant to be permanent, or the node asked for it and \
                  nobody answered: then the pod's end is gone, down, or does not have the address.",
    remedy: "let the agent put it back; by hand: ip neigh replace ADDRESS lladdr MAC dev DEVICE nud \
             permanent. If it failed, look inside the pod",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (endpoint, device) in settled(case, host) {
            for address in &endpoint.seen.addresses {
                let place = host.name();
                let known = host.neighbour(*address, device);
                let (state, exhibit) = match known {
                    Some(neighbour) if neighbour.seen.state == NeighbourState::Missing => (
                        "asked and got no answer",
                        neighbour.exhibit(format!("{address} at {device} has no hardware address")),
                    ),
                    None if host.has_all_neighbours() && is_expected(host, &endpoint.seen, *address) => (
                        "has no neighbour entry",
                        Origin::probe(place, "neighbours").exhibit(format!("none for {address} at {device}")),
                    ),
                    _ => continue,
                };
                let summary =
                    format!("{place} {state} for {address} of endpoint {} at {device}", endpoint.seen);
                look.found(neighbour_subject(host, *address, device), summary)
                    .of_sandbox(endpoint.seen.container_id.as_deref())
                    .seen(exhibit)
                    .seen(endpoint_exhibit(endpoint));
            }
        }
    }
}

/// Our agent keeps permanent entries. Calico does for IPv4, if the endpoint tells a hardware address; otherwise entries come
/// and go with traffic.
fn is_expected(host: &Host<'_>, endpoint: &Endpoint, address: IpAddr) -> bool {
    endpoint.mac.is_some() && (host.has_agent() || address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_an_entry_that_is_gone_or_failed() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.neighbours.as_mut().unwrap()[0].seen.state = NeighbourState::Missing;
        assert!(only(&CHECK, &evidence).summary.contains("asked and got no answer for 10.0.0.0"));
        evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap().remove(0);
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("neighbour 10.0.0.0 at cali"));
    }

    #[test]
    fn is_silent_where_entries_come_with_traffic() {
        let mut evidence = small();
        evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap().remove(0);
        evidence.endpoints.as_mut().unwrap()[0].seen.mac = None;
        silent(&CHECK, &evidence);
    }
}
