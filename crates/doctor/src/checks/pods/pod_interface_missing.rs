//! In the pod: its interface is not there, as the kernel or the kubelet's log tell.

use super::{origin, tell, views, whose};
use crate::{Case, Check, Finding, FindingCode, Look, Need, Severity, Subject};
use evidence::kernel::PodView;
use evidence::{Happening, NodeEvidence};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's network interface is missing",
    explanation: "The interface eth0 is missing inside a pod, so the pod has no network at all. The device \
                  on the node was deleted (this deletes both ends of the veth pair), or the plugin was \
                  interrupted.",
    remedy: "run plumb repair finding pod-interface-missing --apply to recreate the interface, or recreate \
             the pod",
    needs: &[&[Need::PodViews], &[Need::Log]],
    ..Check::error(FindingCode::PodInterfaceMissing, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (node, view) in views(case) {
        let Some(links) = view.kernel.links.as_ref().filter(|_| !view.kernel.partial.links) else { continue };
        let mut endpoints = view.pod.iter().flat_map(|pod| case.endpoints_of(pod));
        let interface = endpoints.find_map(|endpoint| endpoint.seen.interface.as_deref()).unwrap_or("eth0");
        if view.kernel.link(interface).is_some() {
            continue;
        }
        let whose = whose(case, node, view);
        let origin = origin(Some(links), node, "links of the pod");
        let finding = tell(look, &whose, view, format!("{} has no {interface}", whose.name));
        finding.seen(origin.exhibit(format!("no {interface} among {} links", links.len())));
        explain_what_went_with_it(case, finding, node, view, &whose.subject);
    }
    for event in case.log.iter().flatten() {
        if let Happening::InterfaceMissing { pod, interface } = &event.seen.what {
            // A moment's sight, which later lines may have overtaken.
            look.found(Subject::Pod(pod.clone()), format!("the kubelet found no {interface} in pod {pod}"))
                .severity(Severity::Warning)
                .seen(event.exhibit(format!("missing {interface}")));
        }
    }
}

/// Address, routes and neighbours go with an interface, and the node's end has nobody behind it.
fn explain_what_went_with_it(
    case: &Case<'_>,
    finding: &mut Finding,
    node: &NodeEvidence,
    view: &PodView,
    subject: &Subject,
) {
    for code in [
        FindingCode::PodAddressMissing,
        FindingCode::PodDefaultRouteMissing,
        FindingCode::PodGatewayUnresolved,
    ] {
        finding.explains(code, subject.clone());
    }
    let endpoints = view.pod.iter().flat_map(|pod| case.endpoints_of(pod));
    for device in endpoints.filter_map(|endpoint| endpoint.seen.device.as_deref()) {
        finding.explains(FindingCode::DeviceDown, Subject::device(&node.name, device));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, LogEvent, PodName, Sighted};

    #[test]
    fn fires_where_all_links_are_known() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let views = evidence.node_mut("worker-0000").pod_views.as_mut().unwrap();
        views[0].kernel.links.as_mut().unwrap().remove(0);
        assert_eq!(only(&CHECK, &evidence).summary, "pod team-0/web-0 has no eth0");
        evidence.node_mut("worker-0000").pod_views.as_mut().unwrap()[0].kernel.partial.links = true;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn explains_what_an_interface_takes_with_it() {
        let mut evidence = small();
        let device = evidence.endpoints.as_ref().unwrap()[0].seen.device.clone();
        let node = evidence.node_mut("worker-0000");
        let inside = &mut node.pod_views.as_mut().unwrap()[0].kernel;
        inside.links.as_mut().unwrap().clear();
        inside.addresses.as_mut().unwrap().clear();
        inside.routes.as_mut().unwrap().clear();
        inside.neighbours.as_mut().unwrap().clear();
        let links = node.kernel.links.as_mut().unwrap().iter_mut();
        links.filter(|link| Some(&link.seen.name) == device.as_ref()).for_each(|link| {
            link.seen.is_running = Some(false);
        });
        let report = crate::diagnose(&evidence);
        assert_eq!(report.findings.len(), 1, "{report:#?}");
        let mut symptoms: Vec<FindingCode> =
            report.findings[0].symptoms.iter().map(|symptom| symptom.code).collect();
        symptoms.sort_unstable();
        let went =
            [FindingCode::DeviceDown, FindingCode::PodAddressMissing, FindingCode::PodDefaultRouteMissing];
        assert_eq!(symptoms[..3], went, "{report:#?}");
    }

    #[test]
    fn is_silent_for_pods_without_a_network_of_their_own() {
        let mut evidence = small();
        let node = evidence.node_mut("worker-0000");
        let mut view = node.pod_views.as_ref().unwrap()[0].clone();
        view.pod = Some(PodName::new("kube-system", "calico-node-00000"));
        view.container_id = Some("ff".repeat(32));
        view.kernel.links = Some(Vec::new());
        node.pod_views.as_mut().unwrap().push(view);
        silent(&CHECK, &evidence);
        evidence.pods = None;
        silent(&CHECK, &evidence);
    }

    #[test]
    fn what_the_kubelet_missed_once_is_a_warning() {
        let what = Happening::InterfaceMissing { pod: PodName::new("a", "b"), interface: "eth0".to_owned() };
        let event = LogEvent { at: None, node: None, what, count: 1, last_at: None };
        let log = Some(vec![Sighted::new(
            event,
            evidence::Origin::line("kubelet.log", 4, "Missing default interface"),
        )]);
        let finding = only(&CHECK, &Evidence { log, ..Evidence::default() });
        assert_eq!((finding.severity, finding.evidence[0].line), (Severity::Warning, Some(4)));
    }
}
