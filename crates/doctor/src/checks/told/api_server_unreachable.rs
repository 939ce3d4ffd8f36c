//! Reported by others: the API server is not reached at its own address.

use std::collections::BTreeSet;

use crate::checks::named::{Report, host_in};
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "API server is unreachable from a node",
    explanation: "The kubelet or calico-node calls the API server at its own address (port 6443) and gets no \
                  answer. The address may be that of a load balancer or a virtual address that no machine holds \
                  any more, a firewall may block the port, or the API server is down. The node keeps what it has, \
                  and is called not ready after a while.",
    remedy: "from the node: curl -k https://ADDRESS:6443/livez. If that fails on one node, check its route and \
             firewall; if on all, check the load balancer (keepalived, kube-vip, haproxy) and the kube-apiserver \
             pods",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ApiServerUnreachable, look)
};

const REPORT: Report = Report {
    least: 3,
    passes: true,
    explains: &[
        FindingCode::NodeNotReady,
        FindingCode::KubeletFailing,
        FindingCode::CalicoNodeNotReady,
        FindingCode::ServiceAddressUnreachable,
    ],
    ..Report::of(Trouble::ApiServerUnreachable)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let told = case.told_of(Trouble::ApiServerUnreachable);
    let hosts: BTreeSet<&str> = told.iter().filter_map(|told| host_in(&told.message, ":6443")).collect();
    let at = if hosts.is_empty() { String::new() } else { format!(" at {}", listed(&hosts)) };
    let finding = REPORT.tell(case, look, |place| format!("the API server is unreachable{at} from {place}"));
    if let Some(finding) = finding {
        finding.known_by("api");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to update lease err=Get https://192.0.2.10:6443/apis: dial tcp 192.0.2.10:6443: connect: no route to host";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 3));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 2));
    }
}
