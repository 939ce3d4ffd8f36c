//! The clusters of `tests/corpus`: every cause is named, and healthy clusters are left in peace.
//!
//! `cargo test -p doctor --test corpus -- --nocapture` prints what was found in each.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "evidence is files of this test, and it shows what was found"
)]

mod score;

use score::{Judged, judge_all, score};

fn shown(cluster: &Judged) -> String {
    let mut text = format!("{}\n", cluster.name);
    for (cause, found) in cluster.expectation.causes.iter().zip(&cluster.found) {
        let mark = match found {
            Some((_, true)) => "found",
            Some((_, false)) => "quoted",
            None => "MISSED",
        };
        text.push_str(&format!("  {mark}: {}\n", cause.words.join(" | ")));
    }
    for (index, finding) in cluster.report.findings.iter().enumerate() {
        let mark = if cluster.extra.contains(&index) { "EXTRA " } else { "" };
        text.push_str(&format!("    {mark}{} [{}] {}\n", finding.code, finding.subject, finding.summary));
        finding.cause.iter().for_each(|step| text.push_str(&format!("        - {step}\n")));
    }
    for unseen in cluster.report.unseen.iter().filter(|unseen| !unseen.is_not_collected()) {
        text.push_str(&format!("    unseen: {unseen}\n"));
    }
    for new in &cluster.report.not_judged {
        text.push_str(&format!(
            "    not judged: {} [{}] {} ({})\n",
            new.code, new.subject, new.summary, new.why
        ));
    }
    text
}

#[test]
fn every_cause_is_named_and_health_is_left_in_peace() {
    let judged = judge_all();
    let score = score(&judged);
    judged.iter().for_each(|cluster| println!("{}", shown(cluster)));
    println!("{score:?}");
    let mut wrong = Vec::new();
    for cluster in &judged {
        for (cause, found) in cluster.expectation.causes.iter().zip(&cluster.found) {
            if found.is_some() == cause.is_missed {
                wrong.push(format!(
                    "{}: {}, found: {}",
                    cluster.name,
                    cause.words.join(" | "),
                    found.is_some()
                ));
            }
        }
        let extra = cluster.extra.iter().filter_map(|index| cluster.report.findings.get(*index));
        wrong.extend(extra.map(|finding| format!("{}: {} beside the cause", cluster.name, finding.code)));
        wrong.extend(cluster.forbidden.iter().map(|word| format!("{}: forbidden {word:?}", cluster.name)));
    }
    assert!(wrong.is_empty(), "{score:?}\n{}", wrong.join("\n"));
}
