//! Reported by others: felix and Typha do not accept each other's certificate.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Felix and Typha refuse each other's certificate",
    explanation: "Felix reaches Typha, but one of the two does not accept the other's certificate: it is signed by \
                  another authority, has expired, or carries another name. The node learns of no new pod, node or \
                  policy. Reinstalling Calico, restoring a secret or a second signer of the operator leads to \
                  this.",
    remedy: "compare the authority in the ConfigMap tigera-ca-bundle (or calico-typha-ca) with the issuer of the \
             secrets typha-certs and node-certs, delete the older secret so that it is issued again, then restart \
             calico-typha and calico-node",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::TyphaCertificateRefused, look)
};

const REPORT: Report = Report {
    passes: true,
    explains: &[FindingCode::TyphaUnreachable, FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::TyphaCertificate)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |place| format!("Felix and Typha refuse each other's certificate on {place}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "Failed to connect to typha endpoint 192.0.2.1:5473 error=x509: certificate signed by unknown authority";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "node n1");
        silent(&CHECK, &said_otherwise());
    }
}
