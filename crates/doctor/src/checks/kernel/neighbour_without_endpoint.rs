//! No orphans: a permanent neighbour at a pod's device for an address that nobody has.

use model::ShellCommand;

use super::{is_held, judged_hosts, neighbour_subject};
use crate::{Case, Check, FindingCode, Look, Need};
use evidence::kernel::NeighbourState;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Permanent neighbour entry has no matching endpoint",
    explanation: "A node has a permanent neighbour entry on a pod's device for an address that no endpoint \
                  on that node has. The entry is left over. It is harmless until the address returns to that \
                  device with a different MAC address.",
    remedy: "run plumb repair finding neighbour-without-endpoint --apply, or on the node: ip neigh del \
             ADDRESS dev DEVICE",
    needs: &[&[Need::Endpoints, Need::Neighbours]],
    ..Check::warning(FindingCode::NeighbourWithoutEndpoint, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in judged_hosts(case) {
        for neighbour in
            host.neighbours().filter(|neighbour| neighbour.seen.state == NeighbourState::Permanent)
        {
            let (address, device) = (neighbour.seen.address, neighbour.seen.device.as_str());
            let is_pods = device.starts_with(model::DeviceName::CALICO_PREFIX);
            if !is_pods || is_held(case, host, address, device) {
                continue;
            }
            let place = host.name();
            let summary = format!(
                "{place} has a neighbour entry for {address} on {device}, but no endpoint has the \
                         address"
            );
            look.found(neighbour_subject(host, address, device), summary)
                .known_by(format!("at link {:?}", host.link(device).and_then(|link| link.seen.index)))
                .remedy(format!("remove it on {place}"))
                .command(ShellCommand::new("ip neigh del").value(address).plain("dev").value(device))
                .seen(neighbour.exhibit(format!("{address} on {device}, permanent")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

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
