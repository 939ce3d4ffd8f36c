//! Reachable: two nodes whose tunnels have one hardware address.

use std::collections::BTreeMap;

use model::{Kind, Mac};

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::Exhibit;

pub(in crate::checks) const CHECK: Check = Check {
    title: "VXLAN tunnels of several nodes have the same hardware address",
    explanation: "Two nodes announce the same hardware address for their VXLAN device. Other nodes keep one entry for \
                  it, so what is meant for the one node goes to the other, which drops it. Calico derives the \
                  address from the node's name and writes it once: cloned machines and restored records share it.",
    remedy: "on all but one of the nodes, delete the device (ip link del vxlan.calico) and the annotation \
             projectcalico.org/VXLANTunnelMACAddr, then restart calico-node there",
    needs: &[&[Need::Record(Kind::Node)], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::TunnelMacShared, look)
};

const ANNOTATION: &str = "projectcalico.org/VXLANTunnelMACAddr";

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut holders: BTreeMap<Mac, BTreeMap<String, Exhibit>> = BTreeMap::new();
    for view in case.node_views().values() {
        let mut note = |text: &str, exhibit: Exhibit| {
            if let Ok(mac) = text.parse::<Mac>() {
                holders.entry(mac).or_default().entry(view.name.to_string()).or_insert(exhibit);
            }
        };
        if let Some(record) = view.record
            && let Some(text) = record.seen.spec("vxlanTunnelMACAddr").and_then(|value| value.as_str())
        {
            note(text, record.exhibit(format!("vxlanTunnelMACAddr: {text}")));
        }
        for kube in &view.kube {
            if let Some(text) = kube.seen.annotations.get(ANNOTATION) {
                note(text, kube.place(ANNOTATION).exhibit(format!("{ANNOTATION}: {text}")));
            }
        }
    }
    for (mac, nodes) in holders.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        let summary =
            format!("the VXLAN tunnels of {} have the same hardware address {mac}", listed(nodes.keys()));
        let finding = look.found(Subject::Cluster, summary);
        for (node, exhibit) in nodes {
            finding.seen(exhibit).explains(FindingCode::TunnelEndUnknown, Subject::node(node.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_two_nodes_of_one_address() {
        let mut evidence = small();
        let mut set = |node: usize, mac: &str| {
            let kube = &mut evidence.kube_nodes.as_mut().unwrap()[node].seen;
            kube.annotations.insert(ANNOTATION.to_owned(), mac.to_owned());
            evidence.clone()
        };
        silent(&CHECK, &set(0, "66:05:a1:aa:bb:01"));
        silent(&CHECK, &set(1, "66:05:a1:aa:bb:02"));
        let finding = only(&CHECK, &set(1, "66:05:a1:aa:bb:01"));
        assert_eq!(
            finding.summary,
            "the VXLAN tunnels of worker-0000, worker-0001 have the same hardware address 66:05:a1:aa:bb:01"
        );
    }
}
