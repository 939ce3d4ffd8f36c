//! Node set-up: store has no space left.

use crate::checks::named::Report;
use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Trouble;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Store has no space left",
    explanation: "etcd has reached its quota and refuses every write until it is given room. No address is allocated, no \
                  endpoint and no status is written, while everything that exists goes on working. Revisions that were \
                  never compacted, or a flood of events, fill it.",
    remedy: "compact and defragment every member (etcdctl compact, etcdctl defrag), raise --quota-backend-bytes if \
             necessary, then etcdctl alarm disarm",
    needs: &[&[Need::Log], &[Need::Events], &[Need::KubeNodes]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::StoreFull, look)
};

const REPORT: Report = Report {
    is_of_cluster: true,
    explains: &[FindingCode::StoreUnstable, FindingCode::AddFailing, FindingCode::CalicoNodeNotReady],
    ..Report::of(Trouble::StoreFull)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    REPORT.tell(case, look, |_| "the store refuses writes because it is full".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::named::{said, said_otherwise};
    use crate::checks::testing::{only, silent};

    const LINE: &str = "etcdserver: mvcc: database space exceeded";

    #[test]
    fn fires_for_what_a_log_or_an_event_names() {
        let finding = only(&CHECK, &said(LINE, 1));
        assert_eq!(finding.subject.to_string(), "cluster");
        assert_eq!(finding.summary, "the store refuses writes because it is full");
        silent(&CHECK, &said_otherwise());
    }
}
