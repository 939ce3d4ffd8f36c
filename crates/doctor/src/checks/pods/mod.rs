//! What is seen from inside pods.

pub(super) mod pod_address_missing;
pub(super) mod pod_default_route_missing;
pub(super) mod pod_gateway_unresolved;
pub(super) mod pod_interface_missing;
pub(super) mod pod_namespace_gone;
pub(super) mod pod_network_crowded;

use crate::case::{PodEnd, attachment_of};
use crate::{Case, Finding, Look, Subject};
use evidence::kernel::PodView;
use evidence::{NodeEvidence, Origin, PodName, Sighted};

/// Everything that was seen from inside pods of ours that are neither coming nor going, and on which node.
fn views<'e>(case: &Case<'e>) -> Vec<(&'e NodeEvidence, &'e PodView)> {
    let views =
        case.all_nodes().flat_map(|node| node.pod_views.iter().flatten().map(move |view| (node, view)));
    views.filter(|(node, view)| is_settled(case, node, view) && is_networked(case, node, view)).collect()
}

/// What is wrong inside pods of ours that are neither coming nor going.
fn ends<'c, 'e>(case: &'c Case<'e>) -> impl Iterator<Item = &'c PodEnd<'e>> {
    let ends = case.pod_ends().iter();
    ends.filter(|end| is_settled(case, end.node, end.view) && is_networked(case, end.node, end.view))
}

fn is_settled(case: &Case<'_>, node: &NodeEvidence, view: &PodView) -> bool {
    let pods = view.pod.iter().flat_map(|name| case.pods_named(name));
    let mut leaving = pods.filter(|pod| case.is_in_flux(&pod.seen) || pod.seen.is_finished());
    leaving.next().is_none()
        && !case.passes_over(attachment_of(node, view).is_some_and(|held| held.is_in_flux))
}

/// Has a network of ours: pods on the host network, and those of others, have their own ways. A text that does not say whose it is
/// was taken because somebody looked for the network there.
fn is_networked(case: &Case<'_>, node: &NodeEvidence, view: &PodView) -> bool {
    let Some(name) = &view.pod else { return true };
    let mut pods = case.pods_named(name);
    attachment_of(node, view).is_some()
        || case.endpoints_of(name).next().is_some()
        || pods.any(|pod| !case.is_on_host_network(&pod.seen))
}

/// Whose view it is, as far as the evidence tells, and why.
struct Whose {
    subject: Subject,
    name: String,
    /// Set where it is known by elimination only.
    reason: Option<String>,
}

fn whose(case: &Case<'_>, node: &NodeEvidence, view: &PodView) -> Whose {
    if let Some(pod) = &view.pod {
        return Whose { subject: Subject::Pod(pod.clone()), name: format!("pod {pod}"), reason: None };
    }
    let networked = case.pods_on(&node.name).filter(|pod| !case.is_on_host_network(&pod.seen));
    let names: std::collections::BTreeSet<&PodName> = networked.map(|pod| &pod.seen.name).collect();
    if names.len() == 1
        && let Some(only) = names.first()
    {
        let only = full_name(case, only);
        let reason = format!(
            "the file does not name the pod; {only} is the only pod on {} in the evidence",
            node.name
        );
        let name = format!("pod {only}");
        return Whose { subject: Subject::Pod(only), name, reason: Some(reason) };
    }
    let name = format!("a pod on {}", node.name);
    Whose {
        subject: Subject::node(&node.name),
        name,
        reason: Some("the file does not name the pod".to_owned()),
    }
}

/// A finding about the pod that a view is of.
fn tell<'l>(look: &'l mut Look<'_>, whose: &Whose, view: &PodView, summary: String) -> &'l mut Finding {
    let finding = look.found(whose.subject.clone(), summary);
    finding.of_sandbox(view.container_id.as_deref()).because_all(whose.reason.clone())
}

/// Where a list that was read inside a pod was seen.
fn origin<T>(list: Option<&Vec<Sighted<T>>>, node: &NodeEvidence, what: &str) -> Origin {
    let first = list.and_then(|list| list.first()).map(|thing| thing.origin.clone());
    first.unwrap_or_else(|| Origin::probe(&node.name, what))
}

/// With the namespace that a log tells, where a table does not.
fn full_name(case: &Case<'_>, name: &PodName) -> PodName {
    let named = case.timeline().pods.iter().map(|history| &history.pod).filter(|known| known.may_be(name));
    let known: std::collections::BTreeSet<&PodName> =
        named.filter(|known| known.namespace.is_some()).collect();
    match known.first() {
        Some(only) if known.len() == 1 && name.namespace.is_none() => (*only).clone(),
        _ => name.clone(),
    }
}
