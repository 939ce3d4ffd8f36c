//! Node set-up: the store that everything rests on falters.

use std::collections::BTreeMap;

use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};
use evidence::{Happening, LogEvent, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Store does not answer, or changes its leader",
    explanation: "Logs show that the store does not answer in time, refuses connections or changes its \
                  leader. Each time, allocations, releases and route updates stop, and calls in flight may \
                  or may not have completed. Slow disks and a lost member are the usual causes.",
    remedy: "check etcd: its members, its disk latency (etcd_disk_wal_fsync_duration_seconds), and the \
             network between its members",
    needs: &[&[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::StoreUnstable, look)
};

/// One time-out is a blip.
const TIMES_MIN: u32 = 2;

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut kinds: BTreeMap<&str, (u32, Vec<&Sighted<LogEvent>>)> = BTreeMap::new();
    for event in case.log.iter().flatten() {
        if let Happening::StoreTrouble { message } = &event.seen.what {
            let (count, events) = kinds.entry(kind(message)).or_default();
            *count += event.seen.count;
            events.push(event);
        }
    }
    let count: u32 = kinds.values().map(|(count, _)| count).sum();
    if count < TIMES_MIN {
        return;
    }
    let words: Vec<String> = kinds.iter().map(|(kind, (count, _))| format!("{kind} ({count})")).collect();
    look.found(Subject::Cluster, format!("logs report trouble with the store: {}", words.join(", ")))
        .known_by("falters")
        .seen_all(kinds.values().flat_map(|(_, events)| events.iter()).map(|event| match &event.seen.what {
            Happening::StoreTrouble { message } => event.exhibit(message.clone()),
            _ => event.exhibit(""),
        }));
}

fn kind(message: &str) -> &str {
    const KINDS: [&str; 6] = [
        "leader changed",
        "request timed out",
        "no leader",
        "context deadline exceeded",
        "connection refused",
        "i/o timeout",
    ];
    KINDS.into_iter().find(|kind| message.contains(kind)).unwrap_or("other trouble")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::{Evidence, Origin};

    #[test]
    fn fires_for_more_than_a_blip() {
        let event = |message: &str| {
            let what = Happening::StoreTrouble { message: message.to_owned() };
            let event = LogEvent { at: None, node: None, what, count: 1, last_at: None };
            Sighted::new(event, Origin::line("x.log", 1, message))
        };
        let log = |messages: &[&str]| Evidence {
            log: Some(messages.iter().map(|m| event(m)).collect()),
            ..Evidence::default()
        };
        silent(&CHECK, &log(&["etcdserver: leader changed"]));
        let finding = only(&CHECK, &log(&["etcdserver: leader changed", "etcdserver: request timed out"]));
        assert_eq!(
            finding.summary,
            "logs report trouble with the store: leader changed (1), request timed \
                                     out (1)"
        );
    }
}
