//! What comes first, what is left out, and that it is said to be.

use doctor::{Finding, Report, Severity, Subject, Symptom};
use evidence::Origin;
use evidence::Unseen;
use model::FindingCode;
use render::{Changes, Style, text};

use crate::reports::{finding, huge};

fn report(findings: impl Into<Vec<Finding>>) -> Report {
    Report { findings: findings.into(), unseen: Vec::new(), ..Report::default() }
}

fn symptom(code: FindingCode) -> Symptom {
    let summary = format!("{code} follows from it");
    Symptom { code, severity: Severity::Error, subject: Subject::node("node-a"), summary }
}

/// The codes of the groups, in the order in which they are shown.
fn order(report: &Report) -> Vec<FindingCode> {
    let shown = text(report, &Style::PLAIN);
    let code = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.parse().expect("a code"));
    shown.lines().filter(|line| line.starts_with("ERROR")).filter_map(code).collect()
}

#[test]
fn of_the_equally_bad_what_explains_most_comes_first_and_then_what_there_is_most_of() {
    let shared = finding(FindingCode::AddressShared, Subject::node("a"), "one");
    let pools =
        [1, 2].map(|number| finding(FindingCode::PoolOverlap, Subject::node("a"), &format!("pool {number}")));
    let all = [vec![shared.clone()], pools.to_vec()].concat();
    assert_eq!(order(&report(all.clone())), [FindingCode::PoolOverlap, FindingCode::AddressShared]);
    let mut root = all;
    root[0].symptoms = vec![symptom(FindingCode::RouteMissing)];
    assert_eq!(order(&report(root)), [FindingCode::AddressShared, FindingCode::PoolOverlap]);
    let mut alone = [shared, pools[0].clone()];
    assert_eq!(order(&report(alone.clone())), [FindingCode::AddressShared, FindingCode::PoolOverlap]);
    alone[1].symptoms = vec![symptom(FindingCode::RouteMissing)];
    assert_eq!(order(&report(alone)), [FindingCode::PoolOverlap, FindingCode::AddressShared]);
}

#[test]
fn what_a_finding_explains_is_counted_by_code() {
    let mut root = finding(FindingCode::AddressShared, Subject::node("a"), "one");
    root.symptoms = [FindingCode::RouteMissing, FindingCode::NodeNotReady, FindingCode::RouteMissing]
        .map(symptom)
        .to_vec();
    let shown = text(&report([root.clone()]), &Style::PLAIN);
    assert!(shown.contains("\n    also  explains node-not-ready, route-missing (2)\n"), "{shown}");
    let page = render::html(&report([root]), &evidence::Evidence::default());
    assert_eq!(page.matches("<code>route-missing</code> route-missing follows from it").count(), 2);
}

#[test]
fn remedies_that_differ_stand_with_their_findings() {
    let mut pools =
        [1, 2].map(|number| finding(FindingCode::PoolOverlap, Subject::node("a"), &format!("pool {number}")));
    pools[1].remedy("leave it");
    let shown = text(&report(pools), &Style::PLAIN);
    assert_eq!(shown.matches("    next  ").count(), 2, "{shown}");
    assert!(shown.contains("    next  leave it\n"), "{shown}");
}

#[test]
fn what_is_left_out_is_counted_and_there_if_it_is_asked_for() {
    let mut long = finding(FindingCode::AddressShared, Subject::node("a"), "one");
    for number in 1..=9 {
        long.because(format!("step {number}"));
        long.seen(Origin::line("log", number, "x").exhibit(""));
    }
    let unseen = (1..=13).map(|number| Unseen::Reported(format!("thing {number}"))).collect();
    let report = Report { findings: vec![long], unseen, ..Report::default() };
    let shown = text(&report, &Style::PLAIN);
    for told in ["1 more steps: --all", "4 more pieces of evidence: --all", "  3 more: --all"] {
        assert!(shown.contains(told), "{told}\n{shown}");
    }
    assert!(!shown.contains("step 9") && !shown.contains("log:6") && !shown.contains("thing 11"), "{shown}");
    let whole = text(&report, &Style { is_whole: true, ..Style::PLAIN });
    assert!(whole.contains("step 9") && whole.contains("log:9") && whole.contains("thing 13"), "{whole}");
    assert!(!whole.contains("--all"), "{whole}");
}

#[test]
fn many_changes_are_counted() {
    let (many, none) = (huge(25), Report::default());
    let at = jiff::Timestamp::UNIX_EPOCH;
    let told = Changes::between(&many, &none).text(at, &Style::PLAIN);
    assert!(told.starts_with("00:00:00 nothing wrong\n"), "{told}");
    assert_eq!((told.lines().count(), told.ends_with("  gone 5 more\n")), (22, true), "{told}");
    let whole = Changes::between(&many, &none).text(at, &Style { is_whole: true, ..Style::PLAIN });
    assert_eq!(whole.lines().count(), 26);
}
