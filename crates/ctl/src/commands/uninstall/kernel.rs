//! What the agent made in the kernel, removed: recognised by alias, route protocol and table, as the agent recognises it.

use host::Host;
use host::between::nft;
use model::IpVersion;
use plan::between::{BetweenDevices, NAT_TABLE, Step};
use plan::{NodeDesired, NodeDifference, node_differences};

use crate::failure::Failure;

/// What there is of ours, as lines for an operator.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub(super) pods: usize,
    pub(super) lines: Vec<String>,
}

pub(super) fn observe() -> Result<Kernel, Failure> {
    let mut host = Host::here().map_err(|error| unable(&error))?;
    let pods = host.links_into_pods().map_err(|error| unable(&error))?.len();
    let devices = host.owned_links().map_err(|error| unable(&error))?.len();
    let routes = stray_routes(&mut host)?.len();
    let between = host.observe_between(&BetweenDevices::default()).map_err(|error| unable(&error))?;
    let mut lines = Vec::new();
    let mut add = |count: usize, what: &str| (count > 0).then(|| lines.push(format!("{count} {what}")));
    add(devices, "devices of pods");
    add(routes, "routes to pods");
    add(between.routes.len(), "routes to other nodes");
    add(usize::from(nft::list().map_err(|error| unable(&error))?.is_some()), "nftables table");
    Ok(Kernel { pods, lines })
}

/// Everything of ours. Settings such as forwarding stay: other programs may rely on them.
pub(super) fn remove() -> Result<(), Failure> {
    let mut host = Host::here().map_err(|error| unable(&error))?;
    for link in host.owned_links().map_err(|error| unable(&error))? {
        host.remove_links_of(&link.owner).map_err(|error| unable(&error))?;
    }
    host.sweep().map_err(|error| unable(&error))?;
    let strays = stray_routes(&mut host)?;
    if let Some(left) = host.mend(&strays).map_err(|error| unable(&error))?.first() {
        return Err(unable(&left.error));
    }
    let devices = BetweenDevices::default();
    let observed = host.observe_between(&devices).map_err(|error| unable(&error))?;
    let steps: Vec<Step> = observed.routes.iter().map(|route| Step::DropRoute { route: *route }).collect();
    if let Some((_, error)) = host.apply_between(&steps, &devices).map_err(|error| unable(&error))?.first() {
        return Err(unable(error));
    }
    for version in [IpVersion::V4, IpVersion::V6] {
        host.remove_vxlan(version).map_err(|error| unable(&error))?;
    }
    if nft::list().map_err(|error| unable(&error))?.is_some() {
        nft::add(&format!("delete table {NAT_TABLE}\n")).map_err(|error| unable(&error))?;
    }
    Ok(())
}

fn stray_routes(host: &mut Host) -> Result<Vec<NodeDifference>, Failure> {
    let observed = host.observe_node().map_err(|error| unable(&error))?;
    let mut found = node_differences(&NodeDesired::default(), &observed);
    found.retain(|difference| matches!(difference, NodeDifference::RouteStray { .. }));
    Ok(found)
}

fn unable(error: &dyn std::error::Error) -> Failure {
    Failure::of(error)
        .within("cannot remove Plumbline's devices, routes and rules")
        .hint("this needs root on the node")
}
