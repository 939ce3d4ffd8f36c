//! Node set-up: another network's configuration comes before ours.

use crate::case::NetworkConfig;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Another network's CNI configuration takes precedence",
    explanation: "The runtime uses the first file in /etc/cni/net.d in alphabetical order, and on this node \
                  that file belongs to another network. New pods join that network. They have no endpoint \
                  and no address from the IP pools, and pods on other nodes cannot reach them. Networks that \
                  were installed earlier and removed often leave such files behind.",
    remedy: "if that network is not wanted, move its file out of /etc/cni/net.d, then recreate the pods that \
             were started since it appeared",
    needs: &[&[Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CniConfigShadowed, look)
};

/// They call other networks, ours among them, and are meant to come first. So does `loopback`, which is every pod's.
const CALL_OTHERS: [&str; 6] = ["multus", "multus-shim", "multus-cni", "cni-genie", "danm", "loopback"];

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for node in case.evidence.nodes.values() {
        // In the order of their names. What a runtime cannot read it passes over.
        let configs = node.setup.cni_configs.iter().flatten();
        let mut configs = configs.filter_map(|(file, text)| {
            Some((file, text, NetworkConfig::read(text).or_else(|| NetworkConfig::of_name(file, text))?))
        });
        let Some((first, text, config)) = configs.next() else { continue };
        if config.is_ours() || CALL_OTHERS.contains(&config.plugin.as_str()) {
            continue;
        }
        let plugin = config.plugin;
        let Some((ours, own, _)) = configs.find(|(_, _, config)| config.is_ours()) else { continue };
        let summary =
            format!("new pods on {} join the network of {first} ({plugin}), not that of {ours}", node.name);
        look.found(&node.name, summary)
            .known_by("shadowed")
            .seen(text.exhibit(format!("{first} is first: {plugin}")))
            .seen(own.exhibit(format!("{ours} comes later")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, Origin, Sighted};

    fn with(files: &[(&str, &str)]) -> Evidence {
        let mut evidence = small();
        let sighted = |(name, text): &(&str, &str)| {
            (name.to_string(), Sighted::new(text.to_string(), Origin::probe("worker-0000", *name)))
        };
        evidence.node_mut("worker-0000").setup.cni_configs = Some(files.iter().map(sighted).collect());
        evidence
    }

    const CALICO: &str =
        r#"{"name": "k8s-pod-network", "plugins": [{"type": "calico"}, {"type": "portmap"}]}"#;

    #[test]
    fn fires_for_a_network_that_comes_first() {
        let flannel = r#"{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}"#;
        let evidence = with(&[("05-flannel.conflist", flannel), ("10-calico.conflist", CALICO)]);
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "new pods on worker-0000 join the network of 05-flannel.conflist (flannel), not that of 10-calico.conflist"
        );
        let bridge = r#"{"name": "b", "type": "bridge"}"#;
        only(
            &CHECK,
            &with(&[("00-b.conf", bridge), ("10-plumb.conflist", &CALICO.replace("calico", "plumb-cni"))]),
        );
        silent(&CHECK, &with(&[("10-calico.conflist", CALICO), ("20-flannel.conflist", flannel)]));
    }

    #[test]
    fn stays_silent_for_those_that_call_us_and_where_we_are_not() {
        let multus = r#"{"name": "multus", "type": "multus", "delegates": []}"#;
        silent(&CHECK, &with(&[("00-multus.conf", multus), ("10-calico.conflist", CALICO)]));
        silent(&CHECK, &with(&[("00-b.conf", r#"{"type": "bridge"}"#)]));
        silent(&CHECK, &with(&[("00-b.conf", "{"), ("10-calico.conflist", CALICO)]));
        silent(&CHECK, &with(&[]));
    }
}
