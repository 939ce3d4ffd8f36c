//! Names that try to give orders: no output obeys them.

use doctor::{Report, Severity, Subject};
use evidence::Origin;
use evidence::Unseen;
use model::FindingCode;
use proptest::prelude::*;
use render::{Changes, Style, json, text};

use crate::reports::finding;

/// Everything a stranger may have written, in every place where it can stand.
fn report(name: &str) -> Report {
    let mut odd = finding(FindingCode::AddressShared, Subject::node(name), name);
    odd.because(name).remedy(name);
    odd.seen(Origin::line(name, 1, name).exhibit("")).seen(Origin::probe(name, name).exhibit(name));
    let mut other = finding(FindingCode::PoolOverlap, Subject::File(name.to_owned()), name);
    other.severity(Severity::Info);
    Report {
        findings: vec![odd, other],
        unseen: vec![Unseen::Reported(name.to_owned())],
        ..Report::default()
    }
}

fn check(name: &str) {
    let report = report(name);
    let changes =
        Changes::between(&report, &Report::default()).text(jiff::Timestamp::UNIX_EPOCH, &Style::PLAIN);
    for shown in [text(&report, &Style::PLAIN), json(&report, None), changes] {
        let orders: Vec<char> = shown.chars().filter(|shown| shown.is_control() && *shown != '\n').collect();
        assert!(orders.is_empty(), "{orders:?} in {shown}");
        assert!(!shown.contains(['\u{202e}', '\u{200b}', '\u{2028}']), "{shown}");
    }
    let read: serde_json::Value = serde_json::from_str(&json(&report, None)).unwrap();
    assert_eq!(read["findings"][0]["summary"], name, "JSON says exactly what was found");
}

#[test]
fn nothing_is_obeyed() {
    for name in [
        "\u{1b}[2J\u{1b}]0;gone\u{7}",
        "\u{9b}31m",
        "a\r\nError: b",
        "\u{202e}dlrow",
        "</script><b>",
        "\u{0}",
    ] {
        check(name);
    }
}

proptest! {
    #[test]
    fn nothing_at_all_is_obeyed(name in any::<String>()) {
        check(&name);
    }
}
