//! Node set-up: a kernel setting that breaks traffic of pods.

use crate::{Case, Certainty, Check, FindingCode, Host, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kernel setting breaks traffic of pods",
    explanation: "A kernel setting has a value with which the network of pods does not work as it should. tcp_tw_recycle \
                  drops connections of clients that share an address behind NAT. Without bridge-nf-call-iptables \
                  kube-proxy's rules do not see packets between pods on one bridge. accept_local and route_localnet \
                  open the node to packets with addresses that are its own.",
    remedy: "set the value back with sysctl -w, and find the file below /etc/sysctl.d that sets it",
    needs: &[&[Need::Sysctls]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::SysctlHarmful, look)
};

/// A setting, its bad value, and what comes of it.
const BAD: [(&str, &str, &str); 2] = [
    ("net/ipv4/tcp_tw_recycle", "1", "connections of clients behind one NAT address are dropped"),
    (
        "net/bridge/bridge-nf-call-iptables",
        "0",
        "services do not work between pods on one bridge, because kube-proxy's rules do not see their packets",
    ),
];

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        for (path, bad, harm) in BAD {
            let Some(value) = host.node.kernel.sysctl(path).filter(|value| value.seen.trim() == bad) else {
                continue;
            };
            // Calico's pods are on no bridge.
            if path.starts_with("net/bridge/") && !has_bridge(host) {
                continue;
            }
            let summary = format!("{path} is {bad} on {}: {harm}", host.name());
            look.found(Subject::sysctl(host.name(), path), summary)
                .seen(value.exhibit(format!("{path} = {bad}")));
        }
    }
}

/// The bridges of flannel, of the bridge plugin and of kube-router.
fn has_bridge(host: &Host<'_>) -> bool {
    let is_bridge = |name: &str| matches!(name, "cni0" | "cbr0" | "kube-bridge");
    host.links().any(|link| is_bridge(&link.seen.name))
        || host.routes().any(|route| route.seen.device.as_deref().is_some_and(is_bridge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{silent, subjects};
    use evidence::kernel::Link;
    use evidence::sample::small;
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_bad_values_where_they_matter() {
        let mut evidence = small();
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        let sysctls = kernel.sysctls.get_or_insert_default();
        let value = |text: &str| Sighted::new(text.to_owned(), Origin::file("sysctl"));
        sysctls.insert("net/bridge/bridge-nf-call-iptables".to_owned(), value("0"));
        sysctls.insert("net/ipv4/tcp_tw_recycle".to_owned(), value("0"));
        silent(&CHECK, &evidence);
        let kernel = &mut evidence.node_mut("worker-0000").kernel;
        let bridge = Link { name: "cni0".to_owned(), ..Link::default() };
        kernel.links.get_or_insert_default().push(Sighted::new(bridge, Origin::file("links")));
        kernel.sysctls.get_or_insert_default().insert("net/ipv4/tcp_tw_recycle".to_owned(), value("1"));
        assert_eq!(
            subjects(&CHECK, &evidence),
            ["net/ipv4/tcp_tw_recycle on worker-0000", "net/bridge/bridge-nf-call-iptables on worker-0000"]
        );
    }
}
