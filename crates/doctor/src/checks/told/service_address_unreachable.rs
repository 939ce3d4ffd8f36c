//! Reported by others: the API is not reached by its service address.

use std::collections::BTreeSet;

use crate::checks::named::{Report, host_in};
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Kubernetes API is unreachable by its service address",
    explanation: "Calico's programs and other pods call the API server by the address of its service, and get no \
                  answer. kube-proxy (or what replaces it) does not run on the node and has written no rules, or \
                  the way to the API server's own address is blocked. calico-node does not become ready, and pods \
                  get no network.",
    remedy: "check kube-proxy on the node and its rules (iptables-save | grep default/kubernetes), then curl -k \
             the API server's own address from there",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ServiceAddressUnreachable, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    explains: &[
        FindingCode::CalicoNodeNotReady,
        FindingCode::NodeNotReady,
        FindingCode::NodeNetworkUnavailable,
        FindingCode::CniPluginMissing,
    ],
    ..Report::of(Trouble::ApiUnreachable)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let told = case.told_of(Trouble::ApiUnreachable);
    let hosts: BTreeSet<&str> = told.iter().filter_map(|told| host_in(&told.message, ":443")).collect();
    let at = if hosts.is_empty() { String::new() } else { format!(" {}", listed(&hosts)) };
    let finding = REPORT.tell(case, look, |place| format!("the Kubernetes API does not answer by its service address{at} on {place}; kube-proxy there is the first suspect"));
    if let Some(finding) = finding {
        finding.known_by("api");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Get \"https://10.96.0.1:443/api/v1/nodes\": dial tcp 10.96.0.1:443: i/o timeout";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
