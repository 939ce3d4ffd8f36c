//! The reconciler's kernel work: observes, and fixes what it can. On the kernel thread, so that no call changes anything between observing and
//! fixing.

use std::collections::BTreeSet;
use std::path::Path;

use host::{Host, HostError, PodNamespace};
use model::Sandbox;
use plan::{
    Difference, DifferenceKind, InsidePod, NodeDesired, NodeDifference, NodeObserved, PodWiring, Route,
    inside_pod, node_differences,
};

/// What became of the differences.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) fixed: Vec<NodeDifference>,
    /// Sandboxes whose device is missing.
    pub(super) missing: Vec<Sandbox>,
    /// What could not be fixed, in words.
    pub(super) left: Vec<String>,
}

/// What became of the whole node.
#[derive(Debug)]
pub(super) struct NodeOutcome {
    pub(super) outcome: Outcome,
    /// The owner of each link.
    pub(super) links: Vec<(u32, Sandbox)>,
    /// Routes of other programs to addresses of pods, in words.
    pub(super) rivals: Vec<String>,
}

/// A pod that is not at rest is left to the call that holds its lock, and to the next observation.
pub(super) fn reconcile_node(
    host: &mut Host,
    desired: &NodeDesired,
    is_at_rest: impl Fn(&PodWiring) -> bool,
) -> Result<NodeOutcome, HostError> {
    let observed = host.observe_node()?;
    let mut differences = node_differences(desired, &observed);
    let of_owners = links_with_owner(&observed);
    let is_its_turn = |difference: &NodeDifference| match difference {
        NodeDifference::OfPod { sandbox, .. } => desired.get(sandbox).is_some_and(&is_at_rest),
        _ => true,
    };
    differences.retain(|difference| is_to_be_fixed(difference, &of_owners) && is_its_turn(difference));
    let links = observed.links.iter().filter_map(|link| Some((link.index, link.owner()?))).collect();
    let rivals = observed.rival_routes(desired);
    let rivals = rivals.into_iter().map(|(sandbox, rival)| rival_in_words(sandbox, rival)).collect();
    let outcome = fix(host, &differences)?;
    Ok(NodeOutcome { outcome, links, rivals })
}

fn rival_in_words(sandbox: &Sandbox, rival: &Route) -> String {
    let Route { destination, protocol, metric, .. } = rival;
    format!(
        "another program has a route to {destination} of {sandbox} (protocol {protocol}, metric {metric}); left it alone"
    )
}

pub(super) fn reconcile_pods(
    host: &mut Host,
    wirings: &[(Option<u32>, PodWiring)],
) -> Result<Outcome, HostError> {
    let mut outcome = Outcome::default();
    for (index, wiring) in wirings {
        let differences = host.check_host_end(wiring, *index)?;
        let one = fix(host, &differences)?;
        outcome.fixed.extend(one.fixed);
        outcome.missing.extend(one.missing);
        outcome.left.extend(one.left);
    }
    Ok(outcome)
}

/// The indexes of these pods' links.
pub(super) fn links_of(host: &mut Host, wirings: &[PodWiring]) -> Result<Vec<(u32, Sandbox)>, HostError> {
    let mut links = Vec::new();
    for wiring in wirings {
        if let Some(index) = host.link_index(&wiring.host.device, &wiring.sandbox)? {
            links.push((index, wiring.sandbox.clone()));
        }
    }
    Ok(links)
}

/// A device with the alias of a sandbox that is not in the journal may belong to a call in progress, or its owner may live: only the collector
/// removes it and its routes.
fn is_to_be_fixed(difference: &NodeDifference, of_owners: &BTreeSet<u32>) -> bool {
    match difference {
        NodeDifference::Unexpected { .. } | NodeDifference::Detached { .. } => false,
        NodeDifference::RouteStray { route } => {
            route.device.is_none_or(|device| !of_owners.contains(&device))
        }
        NodeDifference::Setting { .. } | NodeDifference::Renamed { .. } | NodeDifference::OfPod { .. } => {
            true
        }
    }
}

fn links_with_owner(observed: &NodeObserved) -> BTreeSet<u32> {
    observed.links.iter().filter(|link| link.owner().is_some()).map(|link| link.index).collect()
}

fn fix(host: &mut Host, differences: &[NodeDifference]) -> Result<Outcome, HostError> {
    let mut outcome = Outcome::default();
    if differences.is_empty() {
        return Ok(outcome);
    }
    let unfixed = host.mend(differences)?;
    for difference in differences {
        if let Some(failed) = unfixed.iter().find(|failed| failed.difference == *difference) {
            outcome.left.push(format!("{difference}; cannot fix it: {}", failed.error));
            continue;
        }
        match difference {
            NodeDifference::OfPod {
                sandbox,
                difference: Difference { kind: DifferenceKind::Missing, .. },
                ..
            } => {
                outcome.missing.push(sandbox.clone());
            }
            NodeDifference::OfPod {
                difference: Difference { kind: DifferenceKind::Foreign { .. }, .. },
                ..
            } => {
                outcome.left.push(format!("{difference}; left it alone, because another program made it"));
            }
            // The kernel is still starting it.
            NodeDifference::OfPod {
                difference: Difference { kind: DifferenceKind::NotRunning, .. }, ..
            } => {}
            difference => outcome.fixed.push(difference.clone()),
        }
    }
    Ok(outcome)
}

/// What became of a missing device.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recreated {
    Done,
    PodGone,
}

pub(super) fn recreate(host: &mut Host, netns: &Path, wiring: &PodWiring) -> Result<Recreated, HostError> {
    let mut pod = match host.open_pod(netns) {
        Err(error) if error.is_namespace_gone() => return Ok(Recreated::PodGone),
        // The namespace is unmounted, but its file still exists.
        Err(HostError::Namespace { .. }) => return Ok(Recreated::PodGone),
        pod => pod?,
    };
    match host.ensure(&mut pod, wiring) {
        Err(error) if error.is_in_the_way() => recreate_behind(host, &mut pod, wiring, error)?,
        outcome => outcome?,
    }
    Ok(Recreated::Done)
}

/// Another program took the place of a route while the device was missing. An ADD would fail, but this pod lives and has the address: so without
/// routes first, and then ours in front.
fn recreate_behind(
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

/// Restores what a pod has lost, and reports what it has changed.
pub(super) fn reconcile_inside(
    host: &mut Host,
    netns: &Path,
    wiring: &PodWiring,
) -> Result<InsidePod, HostError> {
    let mut pod = match host.open_pod(netns) {
        Err(HostError::Namespace { .. }) => return Ok(InsidePod::default()),
        pod => pod?,
    };
    let observed = host.observe_inside(&mut pod, wiring)?;
    if observed.host.is_none() || observed.pod.is_none() {
        // The node's side recreates a missing device.
        return Ok(InsidePod::default());
    }
    if inside_pod(wiring, &observed) == InsidePod::default() {
        return Ok(InsidePod::default());
    }
    // Only full lists show what is in the place of something.
    let inside = match host.observe(&mut pod, wiring) {
        // The pod has more objects than are listed; the single reads show what is missing all the same.
        Err(HostError::TooMany { .. }) => inside_pod(wiring, &observed),
        observed => inside_pod(wiring, &observed?),
    };
    host.apply(&mut pod, wiring, &inside.restore)?;
    Ok(inside)
}
