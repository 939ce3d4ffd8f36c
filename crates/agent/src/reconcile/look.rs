//! Looks at the kernel and puts right what can be. Runs on the thread that does all kernel work, so that no call
//! changes anything between looking and mending.

use std::collections::BTreeSet;
use std::path::Path;

use host::{Host, HostError, PodNamespace};
use model::Sandbox;
use plan::{
    Difference, InsidePod, NodeDesired, NodeDifference, NodeObserved, ObservedRoute, PodWiring, Route,
    inside_pod, node_differences,
};

/// What became of differences.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// What was put right.
    pub(super) mended: Vec<NodeDifference>,
    /// Sandboxes whose device is gone.
    pub(super) missing: Vec<Sandbox>,
    /// What could not be put right, in words.
    pub(super) left: Vec<String>,
}

/// A look at everything.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) found: Found,
    /// Which link is whose.
    pub(super) links: Vec<(u32, Sandbox)>,
    /// Strangers' routes to addresses of pods, in words.
    pub(super) rivals: Vec<String>,
}

/// A pod that is not at rest is left to the call that is at work on it, and to the next look.
pub(super) fn at_node(
    host: &mut Host,
    desired: &NodeDesired,
    is_at_rest: impl Fn(&PodWiring) -> bool,
) -> Result<Looked, HostError> {
    let observed = host.observe_node()?;
    let mut differences = node_differences(desired, &observed);
    let of_owners = links_with_owner(&observed);
    let is_its_turn = |difference: &NodeDifference| match difference {
        NodeDifference::OfPod { sandbox, .. } => desired.get(sandbox).is_some_and(&is_at_rest),
        _ => true,
    };
    differences.retain(|difference| is_to_be_mended(difference, &of_owners) && is_its_turn(difference));
    let links = observed.links.iter().filter_map(|link| Some((link.index, link.owner()?))).collect();
    let rivals = observed.rival_routes(desired);
    let rivals = rivals.into_iter().map(|(sandbox, rival)| rival_in_words(sandbox, rival)).collect();
    let found = mend(host, &differences)?;
    Ok(Looked { found, links, rivals })
}

fn rival_in_words(sandbox: &Sandbox, rival: &ObservedRoute) -> String {
    let Route { destination, protocol, metric, .. } = &rival.route;
    let whose = format!("(protocol {protocol}, metric {metric})");
    format!("somebody else has a route to {destination} of {sandbox}, too {whose}; it is left alone")
}

pub(super) fn at_pods(host: &mut Host, wirings: &[(Option<u32>, PodWiring)]) -> Result<Found, HostError> {
    let mut found = Found::default();
    for (index, wiring) in wirings {
        let differences = host.check_host_end(wiring, *index)?;
        let one = mend(host, &differences)?;
        found.mended.extend(one.mended);
        found.missing.extend(one.missing);
        found.left.extend(one.left);
    }
    Ok(found)
}

/// Which links these are.
pub(super) fn links_of(host: &mut Host, wirings: &[PodWiring]) -> Result<Vec<(u32, Sandbox)>, HostError> {
    let mut links = Vec::new();
    for wiring in wirings {
        if let Some(index) = host.link_index(&wiring.host.device, &wiring.sandbox)? {
            links.push((index, wiring.sandbox.clone()));
        }
    }
    Ok(links)
}

/// A device that carries the alias of a sandbox without an entry may be that of a call under way, or its owner may
/// live: neither it nor its routes are superfluous before the collector says so.
fn is_to_be_mended(difference: &NodeDifference, of_owners: &BTreeSet<u32>) -> bool {
    match difference {
        NodeDifference::Unexpected { .. } | NodeDifference::Detached { .. } => false,
        NodeDifference::RouteStray { device: Some(device), .. } => !of_owners.contains(device),
        NodeDifference::RouteStray { device: None, .. }
        | NodeDifference::Setting { .. }
        | NodeDifference::Renamed { .. }
        | NodeDifference::OfPod { .. } => true,
    }
}

fn links_with_owner(observed: &NodeObserved) -> BTreeSet<u32> {
    observed.links.iter().filter(|link| link.owner().is_some()).map(|link| link.index).collect()
}

fn mend(host: &mut Host, differences: &[NodeDifference]) -> Result<Found, HostError> {
    let mut found = Found::default();
    if differences.is_empty() {
        return Ok(found);
    }
    let unmended = host.mend(differences)?;
    for difference in differences {
        if let Some(failed) = unmended.iter().find(|failed| failed.difference == *difference) {
            found.left.push(format!("{difference}; it cannot be put right: {}", failed.error));
            continue;
        }
        match difference {
            NodeDifference::OfPod { sandbox, difference: Difference::Missing { .. }, .. } => {
                found.missing.push(sandbox.clone());
            }
            NodeDifference::OfPod { difference: Difference::Foreign { .. }, .. } => {
                found.left.push(format!("{difference}; it is a stranger's and left alone"));
            }
            // The kernel is at it.
            NodeDifference::OfPod { difference: Difference::NotRunning { .. }, .. } => {}
            difference => found.mended.push(difference.clone()),
        }
    }
    Ok(found)
}

/// What became of a device that was gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remade {
    Done,
    PodGone,
}

pub(super) fn remake(host: &mut Host, netns: &Path, wiring: &PodWiring) -> Result<Remade, HostError> {
    let mut pod = match host.open_pod(netns) {
        Err(error) if error.is_namespace_gone() => return Ok(Remade::PodGone),
        // A file in its place: the namespace is unmounted, its name not removed yet.
        Err(HostError::Namespace { .. }) => return Ok(Remade::PodGone),
        pod => pod?,
    };
    match host.ensure(&mut pod, wiring) {
        Err(error) if error.is_in_the_way() => remake_behind(host, &mut pod, wiring, error)?,
        outcome => outcome?,
    }
    Ok(Remade::Done)
}

/// A stranger took the place of a route while the device was gone. At an ADD that is a refusal; but this pod lives, and
/// has the address: so without routes first, and then ours in front.
fn remake_behind(
    host: &mut Host,
    pod: &mut PodNamespace,
    wiring: &PodWiring,
    refusal: HostError,
) -> Result<(), HostError> {
    let mut without_routes = wiring.clone();
    without_routes.host.routes.clear();
    host.ensure(pod, &without_routes)?;
    let found = host.check_host_end(wiring, None)?;
    if host.mend(&found)?.is_empty() { Ok(()) } else { Err(refusal) }
}

/// Puts back what a pod has lost, and says what it has changed.
pub(super) fn inside(host: &mut Host, netns: &Path, wiring: &PodWiring) -> Result<InsidePod, HostError> {
    let mut pod = match host.open_pod(netns) {
        Err(HostError::Namespace { .. }) => return Ok(InsidePod::default()),
        pod => pod?,
    };
    let observed = host.observe_inside(&mut pod, wiring)?;
    if observed.host.is_none() || observed.pod.is_none() {
        // Without its device there is nothing inside; the look at the node's side deals with that.
        return Ok(InsidePod::default());
    }
    if inside_pod(wiring, &observed) == InsidePod::default() {
        return Ok(InsidePod::default());
    }
    // What is in the place of something, only lists show.
    let inside = match host.observe(&mut pod, wiring) {
        // The pod made more than anybody lists; what is missing is known all the same.
        Err(HostError::TooMany { .. }) => inside_pod(wiring, &observed),
        observed => inside_pod(wiring, &observed?),
    };
    host.apply(&mut pod, wiring, &inside.restore)?;
    Ok(inside)
}
