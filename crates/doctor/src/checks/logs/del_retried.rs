//! DEL always ends: one that fails and is tried again and again.

use super::{clock, short};
use crate::timeline::Episode;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "DEL fails and is retried",
    explanation: "Stopping a sandbox fails, and the kubelet retries. A DEL must succeed when there is \
                  nothing left to delete. A plugin that returns an error instead leaves the sandbox and its \
                  records half removed, and each retry may affect a newer pod with the same name.",
    remedy: "check the DEL's error; upgrade a plugin that returns an error when there is nothing left to \
             delete",
    needs: &[&[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::DelRetried, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for episode in case.timeline().episodes() {
        let Episode::RetryLoop(retries) = episode else { continue };
        let (sandbox, pod) = (short(&retries.sandbox), &retries.pod);
        let summary = format!("the DEL of sandbox {sandbox} of pod {pod} failed and was retried");
        look.found(Subject::Sandbox(retries.sandbox.clone()), summary)
            .because(format!("it failed with: {}", retries.error))
            .because(format!(
                "tried {} times from {} to {}",
                retries.tries,
                clock(retries.first_at),
                clock(retries.last_at)
            ))
            .seen_all(retries.evidence);
    }
}

#[cfg(test)]
mod tests {
    use super::super::stale_del::tests::{call, log, pod};
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Happening;
    use evidence::log::CniCommand;

    fn failed() -> Happening {
        Happening::SandboxStopFailed {
            container_id: "old1".repeat(16),
            pod: Some(pod()),
            error: "no".to_owned(),
        }
    }

    #[test]
    fn fires_for_a_failure_and_another_try() {
        silent(&CHECK, &log(vec![call(CniCommand::Del, "old1")]));
        let finding =
            only(&CHECK, &log(vec![call(CniCommand::Del, "old1"), failed(), call(CniCommand::Del, "old1")]));
        assert_eq!(
            finding.summary,
            "the DEL of sandbox old1old1old1 of pod lijiaob/etcd1-0 failed and was retried"
        );
    }
}
