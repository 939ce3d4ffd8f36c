//! Books: affinities that their own node does not find.

use std::collections::BTreeMap;

use model::{AffinityOwner, Cidr, Kind};

use super::owner_words;
use crate::checks::words::{ALIKE_MAX, counted, listed};
use crate::{Case, Check, FindingCode, Look, Need, Subject};
use evidence::Sighted;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Affinities lack the labels by which their node finds them",
    explanation: "Since release 3.31, Calico with a Kubernetes store finds a node's affinities by label. \
                  These affinities have no labels because an older release wrote them. calico-node labels \
                  the affinities of its own node when it starts. Until then, new pods do not see the node's \
                  existing blocks, and the node claims new ones.",
    remedy: "restart calico-node on these nodes, which labels their affinities; if the labels are still \
             missing, check its log for the reason",
    needs: &[&[Need::Ipam]],
    ..Check::warning(FindingCode::AffinityUnlabelled, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let Some(ipam) = case.evidence.ipam.as_ref() else { return };
    if ipam.labels.present == 0 && !has_release_with_labels(case) {
        return;
    }
    let mut by_owner: BTreeMap<&AffinityOwner, Vec<&Sighted<(AffinityOwner, Cidr)>>> = BTreeMap::new();
    for affinity in &ipam.labels.missing {
        by_owner.entry(&affinity.seen.0).or_default().push(affinity);
    }
    for (owner, affinities) in by_owner {
        let count = counted(affinities.len(), "affinity");
        let blocks = affinities.iter().map(|affinity| affinity.seen.1);
        let summary = format!("{} has {count} without labels, for {}", owner_words(owner), listed(blocks));
        let finding = look.found(Subject::node(owner.name()), summary);
        finding.known_by("labels");
        finding.seen_all(affinities.iter().take(ALIKE_MAX).map(|affinity| affinity.exhibit("affinity")));
    }
}

/// Whether the cluster runs a release that goes by labels. Older ones never wrote any.
fn has_release_with_labels(case: &Case<'_>) -> bool {
    let information = case.evidence.records.all(Kind::ClusterInformation).iter();
    let mut versions = information.filter_map(|record| record.seen.spec("calicoVersion")?.as_str());
    versions.any(|version| {
        let mut parts = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
        matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (3, 31))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::record;

    fn affinity(node: &str, number: usize, labels: &Value) -> Value {
        json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "BlockAffinity",
               "metadata": {"name": format!("{node}-10-0-{number}-0-26"), "labels": labels},
               "spec": {"cidr": format!("10.0.{number}.0/26"), "node": node, "type": "host",
                        "state": "confirmed", "deleted": "false"}})
    }

    fn labels() -> Value {
        json!({"projectcalico.org/hostname-hash": "PY3TQE2E", "projectcalico.org/affinity-type": "host",
               "projectcalico.org/ip-version": "4"})
    }

    fn listed_as(affinities: &[Value]) -> Evidence {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": affinities}).to_string();
        intake::read([("blockaffinities.json", list.as_bytes())])
    }

    #[test]
    fn fires_for_what_an_older_release_wrote() {
        let mixed = [
            affinity("node-a", 1, &labels()),
            affinity("node-b", 2, &Value::Null),
            affinity("node-b", 3, &json!({"team": "x"})),
        ];
        let evidence = listed_as(&mixed);
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "node node-b has 2 affinities without labels, for 10.0.2.0/26, 10.0.3.0/26"
        );
    }

    #[test]
    fn releases_that_do_not_go_by_labels_need_none() {
        let without = [affinity("node-a", 1, &Value::Null)];
        let with_release = |version: &str| {
            let mut evidence = listed_as(&without);
            let spec = json!({"calicoVersion": version});
            evidence.records.add(record(Kind::ClusterInformation, "default", spec));
            evidence
        };
        silent(&CHECK, &listed_as(&without));
        silent(&CHECK, &with_release("v3.30.2"));
        only(&CHECK, &with_release("v3.31.0"));
        only(&CHECK, &with_release("v4.0.0"));
        silent(&CHECK, &listed_as(&[affinity("node-a", 1, &labels())]));
    }
}
