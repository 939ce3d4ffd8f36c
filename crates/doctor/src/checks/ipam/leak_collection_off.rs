//! Books: nobody collects leaked addresses.

use model::Kind;
use serde_json::Value;

use crate::{Case, Certainty, Check, FindingCode, Look, Need};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Leaked addresses are never collected",
    explanation: "leakGracePeriod of the node controller is 0, so Calico's kube-controllers do not release \
                  addresses whose pods are gone. Every leaked address stays allocated forever.",
    remedy: "set controllers.node.leakGracePeriod in KubeControllersConfiguration to its default of 15m",
    needs: &[&[Need::Record(Kind::KubeControllersConfiguration)]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::LeakCollectionOff, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for record in case.evidence.records.all(Kind::KubeControllersConfiguration) {
        let period = record
            .seen
            .spec("controllers")
            .and_then(|controllers| controllers.get("node")?.get("leakGracePeriod"));
        let Some(period) = period.and_then(Value::as_str) else { continue };
        let is_zero = !period.is_empty() && period.bytes().all(|byte| !(b'1'..=b'9').contains(&byte));
        if is_zero {
            let summary = format!("leakGracePeriod is {period}, so leaked addresses are never collected");
            look.found(record.seen.key(), summary)
                .seen(record.exhibit(format!("controllers.node.leakGracePeriod: {period}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::record;

    #[test]
    fn fires_for_zero_in_any_spelling() {
        let with = |period: Value| {
            let mut evidence = Evidence::default();
            let spec = json!({"controllers": {"node": {"leakGracePeriod": period}}});
            evidence.records.add(record(Kind::KubeControllersConfiguration, "default", spec));
            evidence
        };
        silent(&CHECK, &with(json!("15m0s")));
        silent(&CHECK, &with(Value::Null));
        assert!(only(&CHECK, &with(json!("0s"))).summary.starts_with("leakGracePeriod is 0s"));
    }
}
