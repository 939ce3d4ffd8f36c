//! Reported by others: a webhook does not answer.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "API server cannot reach a webhook",
    explanation: "The API server calls a webhook that runs in a pod, and gets no answer. What the webhook guards \
                  can be neither created nor changed. Where other pods answer, the way from the control plane's \
                  nodes to pods is broken: a tunnel port that is blocked, or a control plane that is not part of \
                  the pod network.",
    remedy: "check that the webhook's pods run, and try to reach their address from a control plane node; where \
             that node is outside the pod network, run the webhook with hostNetwork",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::WebhookUnreachable, look)
};

const REPORT: Report = Report { least: 2, is_of_cluster: true, ..Report::of(Trouble::WebhookUnreachable) };

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "the API server cannot reach a webhook".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "failed calling webhook \"v.example.org\": Post \"https://v.shop.svc:443/\": context deadline exceeded";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 2));
        assert_eq!(finding.subject.to_string(), "cluster");
        silent(&CHECK, &said_otherwise());
        silent(&CHECK, &said(LINE, 1));
    }
}
