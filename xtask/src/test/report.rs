//! What is told at the end: one line per kind, what was skipped and why, what failed, and the sum.

use std::time::Duration;

use crate::process::Finished;
use crate::test::libtest::Tally;
use crate::test::skips;

#[derive(Debug, Default)]
pub(crate) struct KindReport {
    pub(crate) kind: &'static str,
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) skipped: Vec<(String, String)>,
    pub(crate) took: Duration,
}

impl KindReport {
    pub(crate) fn new(kind: &'static str) -> KindReport {
        KindReport { kind, ..KindReport::default() }
    }

    /// Adds what one test program did, and shows it: a line if all is well, everything it said if not.
    pub(crate) fn add_program(
        &mut self,
        program: &str,
        tally: &Tally,
        skipped: Vec<(String, String)>,
        finished: &Finished,
    ) {
        let counts = tally.counted.unwrap_or_default();
        let in_name_only = skips::passed_in_name_only(tally, &skipped);
        let passed = counts.passed.max(tally.passed.len()) - in_name_only;
        let failed_unnamed = counts.failed.saturating_sub(tally.failed.len());
        let ignored_unnamed = counts.ignored.saturating_sub(tally.ignored.len());
        let qualified = |name: &String| format!("{program}: {name}");

        let named = |name: &String| {
            let hangs = if tally.hung.contains(name) { " (hangs: stopped)" } else { "" };
            qualified(name) + hangs
        };
        let mut failed: Vec<String> = tally.failed.iter().map(named).collect();
        failed.extend(std::iter::repeat_n(format!("{program}: a test, see its output"), failed_unnamed));
        let mut all_skipped = skipped;
        all_skipped.extend(tally.ignored.iter().cloned());
        all_skipped.extend(std::iter::repeat_n(("a test".to_owned(), "ignored".to_owned()), ignored_unnamed));
        if passed + failed.len() + all_skipped.len() > 0 {
            show(self.kind, program, passed, failed.len(), all_skipped.len(), finished.took);
        }
        if !failed.is_empty() {
            println!("{}", finished.output.trim_end());
        }
        self.passed += passed;
        self.failed.append(&mut failed);
        self.skipped.extend(all_skipped.into_iter().map(|(name, reason)| (qualified(&name), reason)));
        self.took += finished.took;
    }

    /// Adds a test that is not run by a harness. `failure` is what to show if it failed.
    pub(crate) fn add(&mut self, name: &str, failure: Option<String>, took: Duration) {
        self.add_all(name, vec![(name.to_owned(), failure)], took);
    }

    /// Adds several tests that are shown as one line.
    pub(crate) fn add_group(&mut self, name: &str, tests: Vec<(String, Option<String>)>, took: Duration) {
        let qualified =
            tests.into_iter().map(|(test, failure)| (format!("{name}: {test}"), failure)).collect();
        self.add_all(name, qualified, took);
    }

    fn add_all(&mut self, shown_as: &str, tests: Vec<(String, Option<String>)>, took: Duration) {
        let failed = tests.iter().filter(|(_, failure)| failure.is_some()).count();
        if !tests.is_empty() {
            show(self.kind, shown_as, tests.len() - failed, failed, 0, took);
        }
        self.passed += tests.len() - failed;
        self.took += took;
        for (name, failure) in tests {
            if let Some(failure) = failure {
                println!("{}", failure.trim_end());
                self.failed.push(name);
            }
        }
    }

    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("{:<13}{name:<36} skipped: {reason}", self.kind);
        self.skipped.push((name.to_owned(), reason.to_owned()));
    }
}

fn show(kind: &str, name: &str, passed: usize, failed: usize, skipped: usize, took: Duration) {
    let mut counts = format!("{passed} passed");
    if failed > 0 {
        counts += &format!(", {failed} FAILED");
    }
    if skipped > 0 {
        counts += &format!(", {skipped} skipped");
    }
    println!("{kind:<13}{name:<36} {counts:<24} {:>7.1} s", took.as_secs_f64());
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    kinds: Vec<KindReport>,
    /// What tests have measured, a line each.
    pub(crate) notes: String,
}

impl Report {
    pub(crate) fn add(&mut self, kind: KindReport) {
        self.kinds.push(kind);
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.kinds.iter().all(|kind| kind.failed.is_empty())
    }

    pub(crate) fn print(&self, seed: u64, took: Duration) {
        println!("\n{}", self.render(seed, took));
    }

    fn render(&self, seed: u64, took: Duration) -> String {
        let mut text =
            format!("{:<13}{:>7}{:>8}{:>9}{:>11}\n", "kind", "passed", "failed", "skipped", "time");
        for kind in &self.kinds {
            let seconds = kind.took.as_secs_f64();
            let (failed, skipped) = (kind.failed.len(), kind.skipped.len());
            text += &format!("{:<13}{:>7}{failed:>8}{skipped:>9}{seconds:>9.1} s\n", kind.kind, kind.passed);
        }
        text += &section("measured", self.notes.lines().map(str::to_owned));
        text += &section(
            "skipped",
            self.kinds
                .iter()
                .flat_map(|kind| &kind.skipped)
                .map(|(name, reason)| format!("{name}: {reason}")),
        );
        text += &section("failed", self.kinds.iter().flat_map(|kind| &kind.failed).cloned());
        text += &format!("\nseed {seed}, {:.0} s\n", took.as_secs_f64());
        let sum = |count: fn(&KindReport) -> usize| self.kinds.iter().map(count).sum::<usize>();
        let passed = sum(|kind| kind.passed);
        let failed = sum(|kind| kind.failed.len());
        let skipped = sum(|kind| kind.skipped.len());
        text + &format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

fn section(title: &str, lines: impl Iterator<Item = String>) -> String {
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() { lines } else { format!("\n{title}:\n{lines}") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;
    use crate::process::End;
    use crate::test::libtest;

    fn finished(output: &str, code: i32) -> Finished {
        let end = End::Exited(ExitStatus::from_raw(code << 8));
        Finished { end, output: output.to_owned(), took: Duration::from_millis(1500) }
    }

    fn unit_report(output: &str, code: i32, skips: &[(&str, &str)]) -> KindReport {
        let finished = finished(output, code);
        let skips = skips.iter().map(|(name, reason)| ((*name).to_owned(), (*reason).to_owned())).collect();
        let mut report = KindReport::new("unit");
        report.add_program("store", &libtest::tally("store", &finished), skips, &finished);
        report
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let output = "test a ... ok\ntest b ... ok\ntest c ... ignored, slow\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let mut report = Report::default();
        report.add(unit_report(output, 0, &[("b", "no etcd here")]));
        report.add(KindReport { kind: "demo", passed: 1, ..KindReport::default() });
        report.notes = "churn: 20 MiB, 20 MiB\n".to_owned();
        let text = report.render(7, Duration::from_secs(2));
        assert!(text.contains("\nmeasured:\n  churn: 20 MiB, 20 MiB\n"), "{text}");
        assert_eq!(text.lines().last(), Some("2 passed, 0 failed, 2 skipped"));
        assert!(text.contains("  store: b: no etcd here\n  store: c: slow\n"), "{text}");
        assert!(report.succeeded());
    }

    #[test]
    fn a_failure_is_named_and_decides() {
        let output = "test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n";
        let mut report = Report::default();
        report.add(unit_report(output, 101, &[]));
        let text = report.render(7, Duration::ZERO);
        assert!(text.contains("\nfailed:\n  store: a\n"), "{text}");
        assert_eq!(text.lines().last(), Some("0 passed, 1 failed, 0 skipped"));
        assert!(!report.succeeded());
    }

    #[test]
    fn each_test_of_a_group_counts() {
        let mut report = KindReport::new("transcripts");
        let tests = vec![("line 3".to_owned(), None), ("line 9".to_owned(), Some("prints x".to_owned()))];
        report.add_group("docs/page.md", tests, Duration::ZERO);
        assert_eq!((report.passed, report.failed), (1, vec!["docs/page.md: line 9".to_owned()]));
    }

    #[test]
    fn tests_whose_names_were_lost_still_count() {
        let output = "garbage test a ... ok\ngarbage test b ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured\n";
        let report = unit_report(output, 101, &[]);
        assert_eq!((report.passed, report.failed.len(), report.skipped.len()), (1, 1, 1));
    }
}
