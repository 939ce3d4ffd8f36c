//! A node without the rules that restrict pods to their own addresses.

use plan::between::{NAT_TABLE, POD_CHAIN};

use crate::{Case, Check, FindingCode, Look, Need};
use evidence::firewall::{Act, Firewall};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pods can send from any address",
    explanation: "A node has pods of this network, but its nftables rules lack the agent's chain for pods \
                  (chain pods in table inet plumb). That chain drops packets that a pod sends from an \
                  address that is not its own, or to the loopback addresses of its node. Without it, a pod \
                  with CAP_NET_RAW can pose as another pod or as a node, send into VXLAN tunnels, and reach \
                  services on its node that listen only on 127.0.0.1. The rules were flushed (nft flush \
                  ruleset, a firewall reload), nft is missing, or the node runs an older plumbd.",
    remedy: "check that nft is installed on the node, find out what removes the rules, and update plumbd. \
             The agent loads the rules again immediately while it runs, and whenever it starts",
    needs: &[&[Need::Firewall, Need::Endpoints]],
    ..Check::error(FindingCode::PodSpoofingPossible, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for host in case.hosts() {
        let Some(firewall) = &host.node.firewall else { continue };
        let has_pods = host.node.attachments.as_ref().is_some_and(|attachments| !attachments.is_empty());
        if !has_pods || restricts_pods(&firewall.seen) {
            continue;
        }
        let name = host.name();
        look.found(name, format!("{name} does not restrict its pods to their own addresses"))
            .seen(firewall.exhibit(format!("table {NAT_TABLE} has no chain {POD_CHAIN} that drops packets")));
    }
}

/// Only chains that a packet can get to are in the evidence.
fn restricts_pods(firewall: &Firewall) -> bool {
    firewall.chains.iter().any(|chain| {
        format!("{} {}", chain.family, chain.table) == NAT_TABLE
            && chain.name == POD_CHAIN
            && chain.rules.iter().any(|rule| rule.act == Act::Drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::small;

    fn without(part: &str) -> Evidence {
        let mut evidence = small();
        let firewall = &mut evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen;
        firewall.chains.retain(|chain| chain.name != part);
        evidence
    }

    #[test]
    fn fires_where_the_chain_is_gone_or_empty() {
        silent(&CHECK, &small());
        let finding = only(&CHECK, &without(POD_CHAIN));
        assert_eq!(finding.subject.to_string(), "node worker-0001");
        let mut evidence = small();
        let firewall = &mut evidence.node_mut("worker-0001").firewall.as_mut().unwrap().seen;
        firewall.chains.iter_mut().for_each(|chain| chain.rules.clear());
        only(&CHECK, &evidence);
    }

    #[test]
    fn stays_silent_where_pods_are_somebody_elses() {
        let mut evidence = without(POD_CHAIN);
        evidence.node_mut("worker-0001").attachments = Some(Vec::new());
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0001").attachments = None;
        silent(&CHECK, &evidence);
    }
}
