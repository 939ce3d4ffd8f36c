//! Node set-up: the store is locked, as a migration leaves it.

use std::collections::BTreeSet;

use model::Kind;
use serde_json::Value;

use crate::checks::named::Report;
use crate::checks::words::{counted, listed};
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Store is locked",
    explanation: "ClusterInformation says datastoreReady: false. Felix stands still, and the CNI plugin refuses \
                  every ADD and DEL. A migration between stores sets this and clears it at its end; one that was \
                  interrupted leaves it.",
    remedy: "if no migration is running, run plumb datastore migrate unlock",
    needs: &[&[Need::Record(Kind::ClusterInformation)], &[Need::Log], &[Need::Events]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::StoreLocked, look)
};

const REPORT: Report = Report {
    least: 2,
    passes: true,
    is_of_cluster: true,
    explains: &[FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::StoreLocked)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let records = case.evidence.records.all(Kind::ClusterInformation).iter();
    let locked =
        records.into_iter().find(|record| record.seen.spec("datastoreReady") == Some(&Value::Bool(false)));
    let Some(record) = locked else {
        // The record itself knows better than a log.
        if case.evidence.records.all(Kind::ClusterInformation).is_empty() {
            REPORT.tell(case, look, |_| "the store is locked".to_owned());
        }
        return;
    };
    let finding = look.found(Subject::Cluster, "the store is locked: datastoreReady is false");
    finding.seen(record.exhibit("datastoreReady: false"));
    let told = case.told_of(Trouble::StoreLocked);
    let refused: BTreeSet<_> = told.iter().filter_map(|told| told.pod.as_ref()).collect();
    if !refused.is_empty() {
        finding.because(format!("{} told of it: {}", counted(refused.len(), "pod"), listed(&refused)));
    }
    for told in told {
        finding.seen(told.exhibit.clone());
        if let Some(pod) = &told.pod {
            finding.explains(FindingCode::AddFailing, pod.clone());
        }
    }
    for node in case.node_views().keys() {
        finding.explains(FindingCode::CalicoNodeNotReady, node);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::named::said;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};

    #[test]
    fn fires_for_the_record_and_for_the_log_where_there_is_none() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.records.add(record(Kind::ClusterInformation, "default", json!({"datastoreReady": false})));
        assert_eq!(only(&CHECK, &evidence).summary, "the store is locked: datastoreReady is false");
        let line = "Calico is currently not ready to process requests";
        let mut logged = said(line, 2);
        assert_eq!(only(&CHECK, &logged).subject, Subject::Cluster);
        logged.records.add(record(Kind::ClusterInformation, "default", json!({"datastoreReady": true})));
        silent(&CHECK, &logged);
    }
}
