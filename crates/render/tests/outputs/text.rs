//! What people read.

use doctor::Report;
use evidence::Unseen;
use render::{Changes, Style, text};

use crate::reports::{huge, mixed};

#[test]
fn the_worst_comes_first_and_each_says_what_to_do() {
    let expected = "\
Incomplete evidence: logs were not collected.
Found 1 error, 1 warning, 1 note.

ERROR Several endpoints have the same address [address-shared]
  - 2 endpoints have address 10.0.0.7
    why   traffic to the address reaches one of them
    seen  wep.txt:3 node-a k8s shop.cart eth0 10.0.0.7/32
    seen  /calico/x it holds 10.0.0.7
  next  run plumb repair endpoints --apply, which keeps the sandbox that the address is allocated to
        and lists the commands that recreate the pods of the others

WARNING IP pools overlap [pool-overlap]
  - node node-b: it waits for something
  next  keep the common range in one pool: disable the other pool, recreate its pods, then delete it

INFO IP pools overlap [pool-overlap]
  - pod shop/cart-0: it is worth knowing
  next  keep the common range in one pool: disable the other pool, recreate its pods, then delete it

Could not be checked
  - logs were not collected

plumb doctor explain CODE describes a code in full
";
    assert_eq!(text(&mixed(), &Style::PLAIN), expected);
}

#[test]
fn nothing_found_is_said_with_its_limits() {
    assert_eq!(text(&Report::default(), &Style::PLAIN), "Nothing wrong was found.\n");
    let blind = Report { unseen: vec![Unseen::Reported("everything".to_owned())], ..Report::default() };
    assert!(
        text(&blind, &Style::PLAIN)
            .starts_with("Incomplete evidence: everything.\nNothing wrong was found in the rest.\n\n")
    );
}

#[test]
fn colours_are_only_there_if_they_are_wanted() {
    assert!(!text(&mixed(), &Style::PLAIN).contains('\u{1b}'));
    let coloured = text(&mixed(), &Style { is_coloured: true, ..Style::PLAIN });
    assert!(coloured.contains("\u{1b}[1;31mERROR\u{1b}[0m"), "{coloured}");
    let bare: String = strip(&coloured);
    assert_eq!(bare, text(&mixed(), &Style::PLAIN), "colours change nothing else");
}

#[test]
fn lines_fit_the_terminal() {
    for width in [40, 60, 80] {
        let shown = text(&mixed(), &Style { width, ..Style::PLAIN });
        // A heading stands on one line.
        for line in shown.lines().filter(|line| line.starts_with(' ')) {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
        }
    }
}

#[test]
fn very_many_findings_are_grouped_unless_all_are_asked_for() {
    let number = testkit::count(11_000, 150_000);
    let report = huge(number as u32);
    let shown = text(&report, &Style::PLAIN);
    assert!(shown.contains(",000 errors.\n"), "{shown}");
    assert!(shown.contains(",990 more like these: --all shows them"), "{shown}");
    assert!(shown.len() < 10_000, "{}", shown.len());
    let whole = text(&report, &Style { is_whole: true, ..Style::PLAIN });
    assert_eq!(whole.matches("  - 2 endpoints").count(), number);
}

#[test]
fn only_what_changed_is_told() {
    let (before, mut after) = (mixed(), mixed());
    let gone = after.findings.remove(0);
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let changes = Changes::between(&before, &after);
    assert_eq!((changes.new.len(), changes.gone.len()), (0, 1));
    let told = changes.text(at, &Style::PLAIN);
    assert_eq!(told, format!("03:04:05 1 warning, 1 note\n  gone error [address-shared] {}\n", gone.summary));
    assert_eq!(
        Changes::between(&after, &after).text(at, &Style::PLAIN),
        "03:04:05 no change: 1 warning, 1 note\n"
    );
    let line = Changes::between(&after, &before).json(at);
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["new"][0]["code"], "address-shared");
    assert_eq!((line.lines().count(), value["gone"].as_array().unwrap().len()), (1, 0));
}

/// Without colours.
fn strip(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('m').map_or(part, |(_, rest)| rest))
}
