//! Node set-up: a node that does not forward.

use model::IpVersion;
use plan::{DeviceSetting, NODE_FORWARDING};

use crate::checks::reach::packets_lost::explain_losses;
use crate::{Case, Certainty, Check, Finding, FindingCode, Host, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node does not forward packets",
    explanation: "IP forwarding is off on a node that has pods. Its pods reach only their own node, and \
                  nothing outside the node reaches them. Hardening scripts and sysctl.d files turn \
                  forwarding off at boot or whenever they are applied.",
    remedy: "run plumb repair finding forwarding-off --apply, or sysctl -w net.ipv4.ip_forward=1 (IPv6: \
             net.ipv6.conf.all.forwarding=1); make the setting permanent in /etc/sysctl.d",
    needs: &[&[Need::Sysctls]],
    // The first pod of a node switches it on.
    certainty: Certainty::MayBeChurn,
    ..Check::error(FindingCode::ForwardingOff, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts().iter().filter(|host| has_pods(host) || has_listed_pods(case, host)) {
        let has_ipv6 = host
            .endpoints
            .iter()
            .any(|endpoint| endpoint.seen.addresses.iter().any(|address| address.is_ipv6()));
        for (version, path) in NODE_FORWARDING {
            let is_asked = version == IpVersion::V4 || has_ipv6;
            let Some(value) =
                host.node.kernel.sysctl(path).filter(|value| is_asked && value.seen.trim() == "0")
            else {
                continue;
            };
            let subject = Subject::sysctl(host.name(), path);
            let finding =
                look.found(subject, format!("{} does not forward packets ({path} is 0)", host.name()));
            finding.seen(value.exhibit(format!("{path} = 0")));
            explain_devices(finding, host, version);
            explain_losses(case, finding, host.name());
        }
    }
}

/// Where no endpoints were collected, the list of pods tells.
fn has_listed_pods(case: &Case<'_>, host: &Host<'_>) -> bool {
    let is_running = |pod: &evidence::Pod| pod.status == "Running" && !pod.addresses.is_empty();
    case.evidence.endpoints.is_none()
        && case.pods_on(host.name()).any(|pod| is_running(&pod.seen) && !case.is_on_host_network(&pod.seen))
}

/// A node without any has nothing to forward, and nobody has switched it on yet.
fn has_pods(host: &Host<'_>) -> bool {
    let is_attached = host.node.attachments.as_ref().is_some_and(|held| !held.is_empty());
    is_attached || !host.endpoints.is_empty() || host.links().any(|link| link.seen.is_workload())
}

/// The kernel writes this setting through to every device.
fn explain_devices(finding: &mut Finding, host: &Host<'_>, version: IpVersion) {
    let setting = match version {
        IpVersion::V4 => DeviceSetting::ForwardingV4,
        IpVersion::V6 => DeviceSetting::ForwardingV6,
    };
    for device in host.endpoints.iter().filter_map(|endpoint| endpoint.seen.device.as_deref()) {
        let path = setting.path(device);
        finding.explains(FindingCode::DeviceSettingWrong, Subject::sysctl(host.name(), path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = NODE_FORWARDING[0].1;
    const V6: &str = NODE_FORWARDING[1].1;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_ipv4_and_for_ipv6_where_it_is_used() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let sysctls = evidence.node_mut("worker-0000").kernel.sysctls.as_mut().unwrap();
        let mut off = sysctls[V4].clone();
        off.seen = "0".to_owned();
        sysctls.insert(V6.to_owned(), off.clone());
        silent(&CHECK, &evidence);
        let sysctls = evidence.node_mut("worker-0000").kernel.sysctls.as_mut().unwrap();
        sysctls.insert(V4.to_owned(), off);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "net/ipv4/ip_forward on worker-0000");
    }

    #[test]
    fn stays_silent_for_a_node_without_pods() {
        let mut evidence = small();
        let host = evidence.node_mut("worker-0000");
        host.kernel.sysctls.as_mut().unwrap().get_mut(V4).unwrap().seen = "0".to_owned();
        host.kernel.links.as_mut().unwrap().retain(|link| !link.seen.is_workload());
        host.attachments = None;
        only(&CHECK, &evidence);
        let endpoints = evidence.endpoints.as_mut().unwrap();
        endpoints.retain(|endpoint| endpoint.seen.node.as_ref() != Some(&"worker-0000".into()));
        silent(&CHECK, &evidence);
    }
}
