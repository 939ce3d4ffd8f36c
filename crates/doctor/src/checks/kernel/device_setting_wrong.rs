//! Kernel agrees: settings of a pod's device without which it has no network.

use plan::{DifferenceKind, needed_at};

use super::{Fault, faults};
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod's device has a wrong kernel setting",
    explanation: "A pod's device on the node needs certain kernel settings. Without forwarding, packets \
                  stop at the node. Without proxy ARP, the pod's gateway 169.254.1.1 does not answer; proxy \
                  NDP does the same for IPv6. With disable_ipv6, the device carries no IPv6 at all. Calico \
                  writes the settings once, when the device appears. A later sysctl -p or a network manager \
                  can reset them unnoticed.",
    remedy: "run plumb repair finding device-setting-wrong --apply, or set the value with sysctl -w; then \
             find out what changes it",
    needs: &[&[Need::Endpoints, Need::Sysctls]],
    ..Check::error(FindingCode::DeviceSettingWrong, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for fault in faults(case) {
        let DifferenceKind::Sysctl { wanted, found: Some(value) } = &fault.difference.kind else { continue };
        let Fault { host, endpoint, device, .. } = fault;
        let Some(needed) = needed_at(&wanted.path, &endpoint.seen.addresses) else { continue };
        let (place, path) = (host.name(), wanted.path.as_str());
        let summary = format!(
            "{} of {device} on {place} is {value}, expected {}: endpoint {}",
            needed.setting.name(),
            wanted.value,
            endpoint.seen
        );
        let finding = look.found(Subject::sysctl(place, path), summary);
        finding
            .of_sandbox(endpoint.seen.container_id.as_deref())
            .because(needed.otherwise)
            .remedy(format!("set it on {place}, and find out what changes it"))
            .command(fault.command());
        if let Some(found) = host.node.kernel.sysctl(path) {
            finding.seen(found.exhibit(format!("{path} = {value}")));
        }
        finding.seen(endpoint_exhibit(endpoint));
    }
}

#[cfg(test)]
mod tests {
    use plan::needed_settings;

    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::sample::small;

    #[test]
    fn fires_for_proxy_arp_that_is_off() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let sysctls = evidence.node_mut("worker-0000").kernel.sysctls.as_mut().unwrap();
        let (path, value) = sysctls.iter_mut().find(|(path, _)| path.ends_with("proxy_arp")).unwrap();
        value.seen = "0\n".to_owned();
        let path = path.clone();
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), format!("{path} on worker-0000"));
        evidence.node_mut("worker-0000").kernel.sysctls.as_mut().unwrap().remove(&path);
        silent(&CHECK, &evidence);
    }

    #[test]
    fn fires_for_every_setting_that_a_pod_needs() {
        for needed in needed_settings() {
            let mut evidence = small();
            let endpoint = &mut evidence.endpoints.as_mut().unwrap()[0].seen;
            endpoint.addresses.push("fd00::7".parse().unwrap());
            let path = needed.setting.path(endpoint.device.as_deref().unwrap());
            let sysctls = evidence.node_mut("worker-0000").kernel.sysctls.as_mut().unwrap();
            let mut found = sysctls.first_entry().unwrap().get().clone();
            found.seen = (1 - needed.value).to_string();
            sysctls.insert(path.clone(), found);
            assert_eq!(subjects(&CHECK, &evidence), [format!("{path} on worker-0000")]);
        }
        let mut names: Vec<&str> = needed_settings().map(|needed| needed.setting.name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["disable_ipv6", "forwarding", "forwarding", "proxy_arp", "proxy_ndp"]);
    }
}
