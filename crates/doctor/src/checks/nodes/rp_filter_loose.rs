//! Node set-up: reverse path filtering that Felix refuses.

use super::is_network_pod;
use crate::{Case, Check, Look, Need, Settles, Severity, Subject};

const PATH: &str = "net/ipv4/conf/all/rp_filter";

pub(in crate::checks) const CHECK: Check = Check {
    code: "rp-filter-loose",
    severity: Severity::Warning,
    title: "Loose reverse path filtering on a Calico node",
    explanation: "net.ipv4.conf.all.rp_filter is 2 (loose) on a node that runs Calico. Pods could send from \
                  addresses that are not their own, and Felix refuses to start unless it is told to ignore \
                  this (IgnoreLooseRPF). Some distributions set it at boot.",
    remedy: "sysctl -w net.ipv4.conf.all.rp_filter=1 (or 0), and look for the file in sysctl.d that sets it",
    needs: &[&[Need::Sysctls, Need::Pods]],
    settles: Settles::AtOnce,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let configurations = case.evidence.records.all(model::Kind::FelixConfiguration);
    let is_ignored = configurations
        .iter()
        .any(|felix| felix.seen.spec("ignoreLooseRPF").and_then(serde_json::Value::as_bool) == Some(true));
    for host in case.hosts().iter().filter(|host| !is_ignored && !host.has_agent()) {
        let runs_calico = case.pods_on(host.name()).any(|pod| is_network_pod(&pod.seen));
        let Some(value) =
            host.node.kernel.sysctl(PATH).filter(|value| value.seen.trim() == "2" && runs_calico)
        else {
            continue;
        };
        look.found(
            Subject::Sysctl { node: host.name().to_owned(), path: PATH.to_owned() },
            format!("{} filters reverse paths loosely, which Felix refuses", host.name()),
        )
        .seen(value.exhibit(format!("{PATH} = 2")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use crate::sample::{record, small};

    #[test]
    fn fires_beside_felix_unless_it_is_told_to_ignore_it() {
        let mut evidence = small();
        let node = evidence.node_mut("worker-0000");
        node.kernel.sysctls.as_mut().unwrap().get_mut(PATH).unwrap().seen = "2".to_owned();
        silent(&CHECK, &evidence);
        evidence.node_mut("worker-0000").attachments = None;
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "net/ipv4/conf/all/rp_filter on worker-0000");
        evidence.records.add(record(
            model::Kind::FelixConfiguration,
            "default",
            json!({"ignoreLooseRPF": true}),
        ));
        silent(&CHECK, &evidence);
    }
}
