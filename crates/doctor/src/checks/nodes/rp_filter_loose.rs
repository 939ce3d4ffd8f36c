//! Node set-up: reverse path filtering that Felix refuses.

use plan::LOOSE_RP_FILTER as PATH;

use super::is_network_pod;
use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Severity, Subject};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Reverse path filtering is loose on a Calico node",
    explanation: "net.ipv4.conf.all.rp_filter is 2 (loose) on a node that runs Calico. Pods could send from \
                  addresses that are not their own, and Felix refuses to start unless IgnoreLooseRPF is set. \
                  Some distributions set the value at boot.",
    remedy: "run plumb repair finding rp-filter-loose --apply, or sysctl -w net.ipv4.conf.all.rp_filter=1 \
             (or 0); then correct the file in sysctl.d that sets it",
    needs: &[&[Need::Sysctls, Need::Pods], &[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::RpFilterLoose, look)
};

const REFUSED: Report =
    Report { explains: &[FindingCode::CalicoNodeNotReady], ..Report::of(Trouble::RpFilterLoose) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if let Some(finding) = REFUSED.tell(case, look, |place| {
        format!("Felix does not start on {place}, because reverse path filtering is loose")
    }) {
        // Those who do not start say so themselves: what was set is part of it.
        finding.severity(Severity::Error);
        for host in case.hosts() {
            finding.explains(FindingCode::RpFilterLoose, Subject::sysctl(host.name(), PATH));
        }
    }
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
        let summary =
            format!("{} has loose reverse path filtering, with which Felix refuses to start", host.name());
        look.found(Subject::sysctl(host.name(), PATH), summary).seen(value.exhibit(format!("{PATH} = 2")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

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
