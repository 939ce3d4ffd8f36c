//! Node set-up: credentials that have expired.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node's credentials have expired",
    explanation: "A token or certificate that the CNI plugin or the agent uses has expired. The plugin's \
                  kubeconfig holds a token that calico-node renews while it runs. If renewal stops, every \
                  ADD and DEL on the node fails once the token expires.",
    remedy: "restart calico-node (or the node's agent) so that it rewrites the file; if a certificate has \
             expired, renew it",
    needs: &[&[Need::Setup], &[Need::Log], &[Need::Events]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::CredentialsExpired, look)
};

const EXPIRED: Report = Report {
    explains: &[FindingCode::CalicoNodeNotReady, FindingCode::NodeNotReady, FindingCode::StoreUnstable],
    ..Report::of(Trouble::CertificateExpired)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    EXPIRED.tell(case, look, |place| {
        format!("a certificate that programs on {place} meet has expired or is not valid yet")
    });
    let Some(now) = case.taken_at else { return };
    for node in case.evidence.nodes.values() {
        for (file, expires) in
            node.setup.credentials_expire_at.iter().flatten().filter(|(_, at)| at.seen < now)
        {
            look.found(&node.name, format!("{file} on {} expired at {}", node.name, expires.seen))
                .seen(expires.exhibit(format!("{file} expired at {}", expires.seen)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_the_past_only() {
        let mut evidence = small();
        let mut set = |at: &str| {
            let at = Sighted::new(at.parse().unwrap(), Origin::file("/etc/cni/net.d/calico-kubeconfig"));
            let files = [("calico-kubeconfig".to_owned(), at)].into();
            evidence.node_mut("worker-0000").setup.credentials_expire_at = Some(files);
            evidence.clone()
        };
        silent(&CHECK, &set("2026-08-23T00:00:00Z"));
        let finding = only(&CHECK, &set("2026-08-22T00:00:00Z"));
        assert_eq!(finding.summary, "calico-kubeconfig on worker-0000 expired at 2026-08-22T00:00:00Z");
    }
}
