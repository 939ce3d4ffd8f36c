//! No orphans: a pod's device that no endpoint knows.

use super::{judged_hosts, neighbour_subject};
use model::Sandbox;

use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's device has no endpoint",
    explanation: "A node has a device with Calico's prefix (cali), but no endpoint record names it. Either \
                  its pod is gone and the device was not removed, or a running pod lost its endpoint record \
                  and is cut off. Calico never deletes such devices.",
    remedy: "run plumb repair endpoints --apply, which removes the device if no sandbox is behind it and \
             repairs the sandbox's endpoint otherwise",
    needs: &[&[Need::Endpoints, Need::Links]],
    ..Check::warning(FindingCode::DeviceWithoutEndpoint, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in judged_hosts(case) {
        for link in host.links().filter(|link| link.seen.is_workload()) {
            let device = link.seen.name.as_str();
            let is_known = !host.endpoints_at_device(device).is_empty() || host.attachment(device).is_some();
            let sandbox = link.seen.alias.as_deref().and_then(Sandbox::from_alias);
            if is_known || sandbox.is_some_and(|sandbox| case.is_at_work_on(sandbox.container_id())) {
                continue;
            }
            let summary = format!("{} has device {device}, but no endpoint names it", host.name());
            let finding = look.found(Subject::device(host.name(), device), summary);
            // A pod that is made anew has a device of the same name, which is another one.
            finding.known_by(format!("link {:?}", link.seen.index));
            finding.seen(link.exhibit(format!("link {device}")));
            for route in host.routes().filter(|route| route.seen.device.as_deref() == Some(device)) {
                let destination = route.seen.destination;
                finding.explains(FindingCode::RouteWithoutEndpoint, Subject::route(host.name(), destination));
            }
            for neighbour in host.neighbours().filter(|neighbour| neighbour.seen.device == device) {
                finding.explains(
                    FindingCode::NeighbourWithoutEndpoint,
                    neighbour_subject(host, neighbour.seen.address, device),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::node::Attachment;
    use evidence::sample::small;
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_calicos_prefix_only() {
        let mut evidence = small();
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        let mut link = links[2].clone();
        link.seen.name = "veth0".to_owned();
        links.push(link.clone());
        silent(&CHECK, &evidence);
        link.seen.name = "cali00000000000".to_owned();
        evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap().push(link);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "device cali00000000000 on worker-0000");
        evidence.partial.endpoints = true;
        silent(&CHECK, &evidence);
    }

    fn stray(index: u32, alias: Option<String>) -> evidence::Evidence {
        let mut evidence = small();
        let links = evidence.node_mut("worker-0000").kernel.links.as_mut().unwrap();
        let mut link = links[2].clone();
        link.seen.name = "cali00000000000".to_owned();
        (link.seen.index, link.seen.alias) = (Some(index), alias);
        links.push(link);
        evidence
    }

    #[test]
    fn is_silent_while_a_call_makes_it() {
        let sandbox = model::Sandbox::new("net", "c0ffee", "eth0").unwrap();
        let mut evidence = stray(77, Some(sandbox.alias()));
        only(&CHECK, &evidence);
        let call =
            Attachment { container_id: "c0ffee".to_owned(), is_in_flux: true, ..Attachment::default() };
        let attachments = evidence.node_mut("worker-0000").attachments.as_mut().unwrap();
        attachments.push(Sighted::new(call, Origin::probe("worker-0000", "journal")));
        silent(&CHECK, &evidence);
    }

    /// Pods of one name come and go, and each time the name is free for a moment.
    #[test]
    fn another_device_of_the_same_name_is_another_fault() {
        let found = |before: u32, now: u32| {
            let mut evidence = stray(now, None);
            evidence.earlier = Some(Box::new(stray(before, None)));
            crate::diagnose(&evidence).findings.len()
        };
        assert_eq!((found(77, 77), found(77, 78)), (1, 0));
    }

    #[test]
    fn is_silent_for_what_the_agent_knows() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap().remove(0);
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").attachments = None;
        assert_eq!(CHECK.alone(&evidence).findings().len(), 1);
    }
}
