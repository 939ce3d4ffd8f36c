//! Reachable: a block of a pool that holds a node's or a service's address.

use ipnet::IpNet;
use model::{Cidr, Key, Kind};

use super::exhibit;
use crate::{Case, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Block contains a node's address or a service range",
    explanation: "A block of a pool contains the address of a node or a range of service addresses. A route \
                  to the block would send traffic for that node or service to the block's owner, so \
                  Plumbline's agents do not install one. Pods in the block cannot be reached from other \
                  nodes. The cause is a pool that overlaps the network of the nodes or of the services.",
    remedy: "disable the pool, create one that overlaps neither nodes nor services, recreate the pods, then \
             delete the old pool",
    needs: &[&[Need::Ipam, Need::Record(Kind::IpPool), Need::Record(Kind::Node)]],
    ..Check::error(FindingCode::BlockHidesAddress, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let pools = super::pools(case);
    for (cidr, _) in case.live_blocks() {
        let Some(pool) = pools.iter().find(|pool| pool.contains_cidr(&cidr)) else { continue };
        let hidden = hidden_by(case, &cidr, Some(pool));
        let Some(first) = hidden.first() else { continue };
        let finding = look.found(cidr, format!("block {cidr} contains {first}"));
        finding.known_by("hides").seen(exhibit(case, Key::Block(cidr), format!("block {cidr}")));
        for other in hidden.iter().skip(1) {
            finding.because(format!("it also contains {other}"));
        }
    }
}

/// Whose addresses a route to a block would hide, in words. A range of services around the whole pool is meant so.
pub(super) fn hidden_by(case: &Case<'_>, block: &Cidr, pool: Option<&Cidr>) -> Vec<String> {
    let views = case.node_views().values();
    let nodes = views.flat_map(|view| {
        let addresses = view.addresses.iter().map(|recorded| recorded.address());
        let held = addresses.filter(|address| block.contains(*address));
        held.map(|address| format!("{address}, the address of node {}", view.name))
    });
    let configuration = case.evidence.records.find(Kind::BgpConfiguration, "default");
    let services = plan::bgp::service_networks(configuration.map(|record| &record.seen));
    let services = services.into_iter().filter_map(|range: IpNet| range.to_string().parse::<Cidr>().ok());
    let hidden =
        services.filter(|range| range.overlaps(block) && !pool.is_some_and(|pool| range.contains_cidr(pool)));
    nodes.chain(hidden.map(|range| format!("service addresses {range}"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_services_inside_a_block_and_not_for_a_range_around_the_pool() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let services = |range: &str| json!({"serviceClusterIPs": [{"cidr": range}]});
        evidence.records.add(record(Kind::BgpConfiguration, "default", services("10.0.0.0/8")));
        silent(&CHECK, &evidence);
        evidence.records.all_mut(Kind::BgpConfiguration).clear();
        evidence.records.add(record(Kind::BgpConfiguration, "default", services("10.0.0.8/29")));
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "block 10.0.0.0/26 contains service addresses 10.0.0.8/29");
    }
}
