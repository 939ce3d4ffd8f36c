//! Node set-up: clocks that disagree.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use model::NodeName;

use crate::checks::named::Report;
use crate::checks::words::listed;
use crate::{Case, Certainty, Check, Finding, FindingCode, Look, Need};
use evidence::node::ClockReading;
use evidence::{Sighted, Trouble};

/// Where a certificate is not valid yet.
const BEHIND: Report = Report {
    explains: &[FindingCode::NodeNotReady, FindingCode::KubeletFailing],
    ..Report::of(Trouble::ClockBehind)
};

/// Being asked takes time, too.
const TOLERATED: SignedDuration = SignedDuration::from_secs(5);

pub(in crate::checks) const CHECK: Check = Check {
    title: "Node's clock is wrong",
    explanation: "A node's clock is more than a few seconds off. The reference is the machine that \
                  collected the evidence, the node's time servers, or another node. Two nodes are compared \
                  by their reads of the store: if, by the two clocks, one read an older revision after the \
                  other read a newer one, one of the clocks is wrong. Leases, certificates and the reuse \
                  delay of addresses depend on the clock, so an address that one node released may be \
                  allocated too early by another. Log times cannot be compared.",
    remedy: "synchronise the node's clock (chrony or systemd-timesyncd)",
    needs: &[&[Need::Setup], &[Need::Log]],
    certainty: Certainty::Certain,
    ..Check::warning(FindingCode::ClockSkew, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let mut told = BTreeSet::new();
    let behind = BEHIND.tell(case, look, |place| {
        format!("the clock of {place} is behind: it shows a time before the certificates it meets were made")
    });
    if let Some(finding) = behind {
        finding.severity(crate::Severity::Error);
        if let crate::Subject::Node(node) = finding.subject.clone() {
            explain_by_kernel(case, finding, &node);
            told.insert(node);
        }
    }
    for node in case.all_nodes() {
        let Some(ahead) = node.setup.clock_ahead.as_ref().filter(|_| !told.contains(&node.name)) else {
            continue;
        };
        if ahead.seen.abs() <= TOLERATED {
            continue;
        }
        let direction = if ahead.seen.is_negative() { "behind" } else { "ahead" };
        let seconds = ahead.seen.abs().as_secs();
        let summary = format!("the clock of {} is {seconds} s {direction}", node.name);
        let finding = look.found(&node.name, summary).known_by(direction);
        finding.seen(ahead.exhibit(format!("{seconds} s {direction}")));
        explain_by_kernel(case, finding, &node.name);
        told.insert(node.name.clone());
    }
    let readings = readings(case, &told);
    if !agree(&readings) {
        contradictions(case, look, readings);
    }
}

fn explain_by_kernel(case: &Case<'_>, finding: &mut Finding, node: &NodeName) {
    let kept = case.evidence.node(node).and_then(|node| node.setup.is_clock_kept.as_ref());
    if let Some(kept) = kept.filter(|kept| !kept.seen) {
        finding.because(format!("the kernel of {node} reports that its clock is not synchronised"));
        finding.seen(kept.exhibit("not synchronised"));
    }
}

/// A read of the store, and whose clock timed it.
#[derive(Clone, Copy)]
struct Reading<'e> {
    node: &'e NodeName,
    seen: &'e Sighted<ClockReading>,
}

/// By revision. Those of nodes that are told already say nothing new.
fn readings<'e>(case: &Case<'e>, told: &BTreeSet<NodeName>) -> Vec<Reading<'e>> {
    let looks = [Some(case.evidence), case.evidence.earlier.as_deref()];
    let nodes = looks.into_iter().flatten().flat_map(|evidence| &evidence.nodes);
    let nodes = nodes.filter(|(name, _)| !told.contains(name)).map(|(_, node)| node);
    let mut readings: Vec<Reading<'_>> = nodes
        .flat_map(|node| {
            let all = node.setup.clock_readings.iter().flatten();
            all.map(|seen| Reading { node: &node.name, seen })
        })
        .collect();
    readings.sort_by_key(|reading| reading.seen.seen.revision);
    readings
}

/// Whether nobody read an older state at a later hour. Nearly always, so that no pairs are looked at.
fn agree(readings: &[Reading<'_>]) -> bool {
    let mut latest_of_older: Option<Timestamp> = None;
    readings.chunk_by(|a, b| a.seen.seen.revision == b.seen.seen.revision).all(|same| {
        let is_right = same.iter().all(|reading| {
            latest_of_older.is_none_or(|latest| latest - TOLERATED <= reading.seen.seen.after)
        });
        latest_of_older = latest_of_older.max(same.iter().map(|reading| reading.seen.seen.before).max());
        is_right
    })
}

/// Nodes whose reads contradict each other: whoever contradicts most others is off.
fn contradictions(case: &Case<'_>, look: &mut Look<'_>, mut readings: Vec<Reading<'_>>) {
    loop {
        let mut against: BTreeMap<&NodeName, BTreeMap<&NodeName, (SignedDuration, [Reading<'_>; 2])>> =
            BTreeMap::new();
        for (index, older) in readings.iter().enumerate() {
            for newer in &readings[index + 1..] {
                let ahead = older.seen.seen.before.duration_since(newer.seen.seen.after);
                let is_older = older.seen.seen.revision < newer.seen.seen.revision;
                if !is_older || ahead <= TOLERATED || older.node == newer.node {
                    continue;
                }
                for (one, other, by) in [(older, newer, ahead), (newer, older, -ahead)] {
                    let known = against.entry(one.node).or_default().entry(other.node);
                    let known = known.or_insert((by, [*older, *newer]));
                    if by.abs() > known.0.abs() {
                        *known = (by, [*older, *newer]);
                    }
                }
            }
        }
        let most = against.values().map(BTreeMap::len).max();
        let Some((node, others)) = against.iter().find(|(_, others)| Some(others.len()) == most) else {
            return;
        };
        tell(case, look, node, others);
        let node = *node;
        readings.retain(|reading| reading.node != node);
    }
}

fn tell(
    case: &Case<'_>,
    look: &mut Look<'_>,
    node: &NodeName,
    others: &BTreeMap<&NodeName, (SignedDuration, [Reading<'_>; 2])>,
) {
    let Some((by, pair)) = others.values().max_by_key(|(by, _)| by.abs()) else { return };
    let names: Vec<&NodeName> = others.keys().copied().collect();
    let (seconds, direction) = (by.abs().as_secs(), if by.is_negative() { "behind" } else { "ahead of" });
    let summary =
        format!("the clock of {node} is at least {seconds} s {direction} that of {}", listed(&names));
    let finding = look.found(node, summary).known_by(direction);
    let [older, newer] = pair;
    finding.because(format!(
        "by their clocks, {} read an older store revision later than {} read a newer one",
        older.node, newer.node
    ));
    if names.len() == 1 {
        finding.because("the evidence does not show which of the two clocks is wrong".to_owned());
    }
    for reading in pair {
        let ClockReading { revision, after, .. } = reading.seen.seen;
        finding.seen(reading.seen.exhibit(format!("{}: revision {revision} at {after}", reading.node)));
    }
    explain_by_kernel(case, finding, node);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;
    use evidence::{Evidence, Origin};

    #[test]
    fn fires_in_either_direction() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let clock = evidence.node_mut("worker-0000").setup.clock_ahead.as_mut().unwrap();
        clock.seen = SignedDuration::from_secs(-90);
        assert_eq!(only(&CHECK, &evidence).summary, "the clock of worker-0000 is 90 s behind");
        let kept = Sighted::new(false, Origin::probe("worker-0000", "timedatectl"));
        evidence.node_mut("worker-0000").setup.is_clock_kept = Some(kept);
        assert_eq!(only(&CHECK, &evidence).cause.len(), 1);
    }

    /// Nodes that read the store: which revision, and when by their own clock.
    fn read(reads: &[(&str, u64, i64)]) -> Evidence {
        let mut evidence = Evidence::default();
        for (node, revision, second) in reads {
            let before = Timestamp::from_second(*second).unwrap();
            let reading =
                ClockReading { revision: *revision, before, after: before + SignedDuration::from_secs(1) };
            let seen = Sighted::new(reading, Origin::probe(*node, "clock"));
            evidence.node_mut(*node).setup.clock_readings.get_or_insert_default().push(seen);
        }
        evidence
    }

    #[test]
    fn fires_for_a_node_that_read_an_older_state_later() {
        // In the order of the store, as far as seconds can tell; a read takes one.
        silent(&CHECK, &read(&[("a", 5, 100), ("b", 6, 160), ("c", 7, 156)]));
        // Nothing is known of the order of reads of the same state.
        silent(&CHECK, &read(&[("a", 5, 100), ("b", 5, 9_000)]));
        let finding = only(&CHECK, &read(&[("a", 5, 100), ("b", 6, 3_760), ("c", 7, 220), ("d", 8, 280)]));
        assert_eq!(finding.summary, "the clock of b is at least 3539 s ahead of that of c, d");
        assert_eq!(finding.cause.len(), 1, "{:?}", finding.cause);
        let finding = only(&CHECK, &read(&[("a", 5, 100), ("b", 6, 160), ("c", 7, 20)]));
        assert_eq!(finding.summary, "the clock of c is at least 139 s behind that of a, b");
    }

    #[test]
    fn does_not_say_which_of_two_is_off() {
        let finding = only(&CHECK, &read(&[("a", 5, 100), ("b", 6, 20)]));
        assert_eq!(finding.summary, "the clock of a is at least 79 s ahead of that of b");
        assert!(finding.cause[1].ends_with("which of the two clocks is wrong"), "{:?}", finding.cause);
    }

    #[test]
    fn an_earlier_look_counts_as_well() {
        let mut evidence = read(&[("a", 9, 100)]);
        evidence.earlier = Some(Box::new(read(&[("b", 8, 300)])));
        only(&CHECK, &evidence);
    }
}
