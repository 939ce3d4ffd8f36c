//! Kernel agrees: the node knows a wrong hardware address for a pod.

use model::ShellCommand;

use super::{neighbour_subject, settled};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "neighbour-wrong",
    severity: Severity::Error,
    title: "The node has a wrong hardware address for a pod",
    explanation: "A node's neighbour entry for a pod has another hardware address than the pod's endpoint. \
                  Packets reach the pod's device and are dropped there, because they are addressed to \
                  somebody else. Usually the entry is of an earlier sandbox.",
    remedy: "let the agent put it right; by hand: ip neigh replace ADDRESS lladdr MAC dev DEVICE nud \
             permanent",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (endpoint, device) in settled(case, host) {
            let Some(mac) = endpoint.seen.mac else { continue };
            for address in &endpoint.seen.addresses {
                let Some(neighbour) = host.neighbour(*address, device) else { continue };
                let Some(known) = neighbour.seen.mac.filter(|known| *known != mac) else { continue };
                let place = host.name();
                look.found(
                    neighbour_subject(host, *address, device),
                    format!(
                        "{place} has {known} for \
                    {address} of endpoint {}, which has {mac}",
                        endpoint.seen
                    ),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .remedy(format!("let the agent put it right, or do it by hand on {place}"))
                .command(
                    ShellCommand::new("ip neigh replace")
                        .value(address)
                        .plain("lladdr")
                        .value(mac)
                        .plain("dev")
                        .value(device)
                        .plain("nud permanent"),
                )
                .seen(neighbour.exhibit(format!("{address} at {device} is {known}")))
                .seen(endpoint_exhibit(endpoint));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_another_address() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        kernel.neighbours.as_mut().unwrap()[0].seen.mac = Some("02:00:00:ff:ff:ff".parse().unwrap());
        assert!(only(&CHECK, &evidence).summary.ends_with("which has 02:00:00:00:00:00"));
    }
}
