//! Node set-up: every node answers for the addresses of load balancers.

use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::{Setting, SettingKind, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Every node answers for load balancer addresses",
    explanation: "kube-proxy in IPVS mode puts the addresses of services onto every node, and with strictARP off every node \
                  answers when somebody asks for them. MetalLB (or kube-vip) lets one node speak for an address, so two \
                  answer now, and connections go to one node or the other and break off.",
    remedy: "set ipvs.strictARP: true in the ConfigMap kube-proxy of kube-system, then restart the kube-proxy pods",
    needs: &[&[Need::Settings, Need::Pods]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::StrictArpOff, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let setting = |kind: SettingKind, value: &str| {
        let is_it = |setting: &&Sighted<Setting>| setting.seen.kind == kind && setting.seen.value == value;
        case.settings.iter().flatten().find(is_it)
    };
    let Some(mode) = setting(SettingKind::ProxyMode, "ipvs") else { return };
    let Some(strict) = setting(SettingKind::StrictArp, "false") else { return };
    let is_speaker = |name: &evidence::PodName| {
        let is_named =
            ["speaker-", "metallb-speaker-", "kube-vip"].iter().any(|start| name.name.starts_with(start));
        let is_space =
            name.namespace.as_deref().is_none_or(|space| space.contains("metallb") || space == "kube-system");
        is_named && is_space
    };
    let Some(speaker) = case.all_pods().iter().find(|pod| is_speaker(&pod.seen.name)) else { return };
    let program = if speaker.seen.name.name.contains("kube-vip") { "kube-vip" } else { "MetalLB" };
    let summary = format!("kube-proxy runs in IPVS mode with strictARP: false, beside {program}");
    look.found(Subject::Cluster, summary)
        .seen(mode.exhibit("mode: ipvs"))
        .seen(strict.exhibit("strictARP: false"))
        .seen(speaker.exhibit(format!("pod {}", speaker.seen.name)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::PodName;
    use evidence::sample::{set, small};

    #[test]
    fn fires_where_somebody_else_answers_for_addresses() {
        let with = |strict: &str, pod: &str| {
            let evidence = set(set(small(), SettingKind::ProxyMode, "ipvs"), SettingKind::StrictArp, strict);
            let mut evidence = evidence;
            let mut speaker = evidence.pods.as_ref().unwrap().last().unwrap().clone();
            speaker.seen.name = PodName::new("metallb-system", pod);
            evidence.pods.as_mut().unwrap().push(speaker);
            evidence
        };
        only(&CHECK, &with("false", "speaker-2nl8v"));
        silent(&CHECK, &with("true", "speaker-2nl8v"));
        silent(&CHECK, &with("false", "controller-x"));
    }
}
