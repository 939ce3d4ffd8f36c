//! A mode that a node does not have.

use model::Kind;

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Exhibit;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node lacks the encapsulation that a pool requires",
    explanation: "A pool requires an encapsulation (IPIP or VXLAN), but a node has neither the kernel module \
                  for it nor a tunnel device. The node's kernel does not support it, or the tunnel was never \
                  set up. Pods on that node cannot reach the pool's pods on other nodes, and no error is \
                  reported.",
    remedy: "choose another mode for the pool (vxlanMode instead of ipipMode). Or load the module on these \
             nodes, and check why their agent creates no tunnel",
    needs: &[&[Need::Record(Kind::IpPool), Need::Setup]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ModeUnsupported, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for (pool, record) in case.pools() {
        for (is_asked, module, device) in
            [(pool.has_ipip(), "ipip", "tunl0"), (pool.has_vxlan(), "vxlan", "vxlan.calico")]
        {
            let lacking = if is_asked { lacking(case, module, device) } else { Vec::new() };
            if lacking.is_empty() {
                continue;
            }
            let names = listed(lacking.iter().map(|(node, _)| node));
            let summary = format!(
                "pool {} requires {module}, but these nodes have neither the module nor a device for it: \
                     {names}",
                pool.name
            );
            look.found(record.seen.key(), summary)
                .seen(record.exhibit(format!("pool {} uses {module}", pool.name)))
                .seen_all(lacking.into_iter().map(|(_, exhibit)| exhibit));
        }
    }
}

fn lacking<'e>(case: &Case<'e>, module: &str, device: &str) -> Vec<(&'e str, Exhibit)> {
    let nodes = case.evidence.nodes.values().filter(|node| node.kernel.link(device).is_none());
    nodes
        .filter_map(|node| {
            let modules = node.setup.kernel_modules.as_ref()?;
            let has_it = modules.seen.iter().any(|known| known == module);
            (!has_it).then(|| {
                (node.name.as_str(), modules.exhibit(format!("no {module} among the kernel's modules")))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_ipip_and_not_for_what_is_there() {
        let mut evidence = small();
        evidence.records.add(record(
            Kind::IpPool,
            "v",
            json!({"cidr": "10.64.0.0/16", "vxlanMode": "Always"}),
        ));
        silent(&CHECK, &evidence);
        evidence.records.add(record(
            Kind::IpPool,
            "i",
            json!({"cidr": "10.65.0.0/16", "ipipMode": "Always"}),
        ));
        let finding = only(&CHECK, &evidence);
        assert_eq!(
            finding.summary,
            "pool i requires ipip, but these nodes have neither the module nor a device for it: worker-0000, \
             worker-0001, worker-0002"
        );
    }
}
