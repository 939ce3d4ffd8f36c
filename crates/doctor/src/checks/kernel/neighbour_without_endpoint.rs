//! No orphans: a permanent neighbour at a pod's device for an address that nobody has.

use model::ShellCommand;

use super::{is_held, knows_endpoints, neighbour_subject};
use crate::evidence::kernel::NeighbourState;
use crate::{Case, Check, Look, Need, Settles, Severity};

pub(in crate::checks) const CHECK: Check = Check {
    code: "neighbour-without-endpoint",
    severity: Severity::Warning,
    title: "A permanent neighbour that no endpoint has",
    explanation: "A node keeps a permanent neighbour entry at a pod's device for an address that no \
                  endpoint of that node has. It is a leftover: harmless until the address comes back at \
                  that device with another hardware address.",
    remedy: "remove the entry: ip neigh del ADDRESS dev DEVICE",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !knows_endpoints(case) {
        return;
    }
    for host in case.hosts() {
        for neighbour in
            host.neighbours().filter(|neighbour| neighbour.seen.state == NeighbourState::Permanent)
        {
            let (address, device) = (neighbour.seen.address, neighbour.seen.device.as_str());
            let is_pods = device.starts_with(model::DeviceName::CALICO_PREFIX);
            if !is_pods || is_held(case, host, address, device) {
                continue;
            }
            let place = host.name();
            look.found(
                neighbour_subject(host, address, device),
                format!("{place} keeps {address} as a neighbour at {device}, and no endpoint has it"),
            )
            .known_by(format!("at link {:?}", host.link(device).and_then(|link| link.seen.index)))
            .remedy(format!("remove it on {place}"))
            .command(ShellCommand::new("ip neigh del").value(address).plain("dev").value(device))
            .seen(neighbour.exhibit(format!("{address} at {device}, permanent")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

    #[test]
    fn fires_for_permanent_entries_only() {
        let mut evidence = small();
        let neighbours = evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap();
        let mut stale = neighbours[0].clone();
        stale.seen.address = "10.0.0.60".parse().unwrap();
        stale.seen.state = NeighbourState::Stale;
        neighbours.push(stale);
        silent(&CHECK, &evidence);
        let neighbours = evidence.node_mut("worker-0000").kernel.neighbours.as_mut().unwrap();
        neighbours[4].seen.state = NeighbourState::Permanent;
        assert!(only(&CHECK, &evidence).subject.to_string().starts_with("neighbour 10.0.0.60 at cali"));
    }
}
