//! Reported by others: an extension of the API does not answer.

use crate::checks::named::Report;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::{SettingKind, Trouble};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Extension of the Kubernetes API does not answer",
    explanation: "The API server forwards a group of its API to a service in the cluster, and that service does \
                  not answer. kubectl is slow or reports errors of discovery, namespaces stay in Terminating \
                  because their content cannot be listed, and garbage collection stops. Either the pods behind it \
                  do not run, or the API server's node cannot reach pods.",
    remedy: "check kubectl get apiservice, the pods behind the service, and that the control plane's nodes reach \
             pods on other nodes; if that component was removed for good, delete its APIService",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ApiExtensionUnavailable, look)
};

const REPORT: Report = Report { is_of_cluster: true, ..Report::of(Trouble::ApiExtension) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let finding =
        REPORT.tell(case, look, |_| "an extension of the Kubernetes API does not answer".to_owned());
    let Some(finding) = finding else { return };
    let settings = case.settings.iter().flatten();
    let stuck = settings.filter(|setting| setting.seen.kind == SettingKind::NamespaceTerminating);
    let names: Vec<&str> = stuck.map(|setting| setting.seen.value.as_str()).collect();
    if !names.is_empty() {
        finding.because(format!("namespaces that cannot be deleted because of it: {}", listed(&names)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str =
        "v3.projectcalico.org failed with: failing or missing response from https://10.98.41.7:443/apis";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
    }
}
