//! Kernel agrees: settings of a pod's device without which it has no network.

use model::ShellCommand;

use super::settled;
use crate::checks::words::endpoint_exhibit;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    code: "device-setting-wrong",
    severity: Severity::Error,
    title: "A pod's device has a wrong setting",
    explanation: "A pod's device on the node needs certain settings: forwarding, or packets stop at the \
                  node; proxy ARP (and proxy NDP), or the pod's gateway 169.254.1.1 does not answer. Calico \
                  writes them once, when the device appears; a later sysctl -p or a network manager undoes \
                  them and nobody notices.",
    remedy: "write the value back (sysctl -w), and look for what changes it",
    needs: &[&[Need::Endpoints, Need::Sysctls]],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts().iter().filter(|host| host.node.kernel.sysctls.is_some()) {
        for (endpoint, device) in settled(case, host) {
            let has = |v4: bool| endpoint.seen.addresses.iter().any(|address| address.is_ipv4() == v4);
            let v4 = [("net/ipv4/conf", "proxy_arp", "1"), ("net/ipv4/conf", "forwarding", "1")];
            let v6 = [("net/ipv6/conf", "forwarding", "1"), ("net/ipv6/conf", "disable_ipv6", "0")];
            let wanted = v4.into_iter().filter(|_| has(true)).chain(v6.into_iter().filter(|_| has(false)));
            for (folder, name, value) in wanted {
                let path = format!("{folder}/{device}/{name}");
                let Some(found) = host.node.kernel.sysctl(&path).filter(|found| found.seen.trim() != value)
                else {
                    continue;
                };
                let place = host.name();
                look.found(
                    Subject::Sysctl { node: place.to_owned(), path: path.clone() },
                    format!(
                        "{name} of {device} on {place} is {}, not {value}: endpoint {}",
                        found.seen.trim(),
                        endpoint.seen
                    ),
                )
                .of_sandbox(endpoint.seen.container_id.as_deref())
                .remedy(format!("set it on {place}, and look for what changes it"))
                .command(ShellCommand::new("sysctl -w").assigned(&path, value))
                .seen(found.exhibit(format!("{path} = {}", found.seen.trim())))
                .seen(endpoint_exhibit(endpoint));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::small;

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
}
