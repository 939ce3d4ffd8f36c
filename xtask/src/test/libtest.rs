//! Reads what Rust's test harness prints.

use crate::process::{End, Finished};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<String>,
    /// Those among the failed that never ended.
    pub(crate) hung: Vec<String>,
    /// Tests that the harness was told to ignore, with the reason if one is given.
    pub(crate) ignored: Vec<(String, String)>,
    /// What the harness itself counted. Names can be lost when a test writes past the harness into the middle
    /// of a line; these numbers cannot.
    pub(crate) counted: Option<Counts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

/// What a test program did, by its words and by the way it ended. `name` stands for the program where it has
/// no harness, or died before the harness could sum up.
pub(crate) fn tally(name: &str, finished: &Finished) -> Tally {
    let mut tally = read(&finished.output);
    let is_silent = tally == Tally::default();
    match finished.end {
        _ if finished.succeeded() && is_silent => tally.passed.push(name.to_owned()),
        _ if finished.succeeded() => {}
        End::Exited(_) if tally.counted.is_some_and(|counts| counts.failed > 0) => {}
        end => tally.failed.push(format!("{name} {end}")),
    }
    tally
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
        self.hung.extend(other.hung);
        self.ignored.extend(other.ignored);
        if let Some(counts) = other.counted {
            self.counted.get_or_insert_default().add(counts);
        }
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// The name and the outcome, if the line tells of a test that has ended.
pub(crate) fn finished_test(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = outcome.trim();
    let is_outcome = outcome == "ok" || outcome == "FAILED" || outcome.starts_with("ignored");
    is_outcome.then_some((name, outcome))
}

/// The tests of which the harness said that they take long, and nothing since.
pub(crate) fn long_running(output: &str) -> Vec<String> {
    let name = |line: &str| {
        let (before, _) = line.split_once(" has been running for over ")?;
        before.rsplit("test ").next().map(str::to_owned)
    };
    let done: Vec<&str> = output.lines().filter_map(finished_test).map(|(name, _)| name).collect();
    output.lines().filter_map(name).filter(|name| !done.contains(&name.as_str())).collect()
}

/// What can be read from an output, whole or not.
pub(crate) fn read(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        if let Some(counts) = line.strip_prefix("test result: ").and_then(read_counts) {
            tally.counted.get_or_insert_default().add(counts);
        } else if let Some((name, outcome)) = finished_test(line) {
            match outcome {
                "ok" => tally.passed.push(name.to_owned()),
                "FAILED" => tally.failed.push(name.to_owned()),
                other => tally.ignored.extend(read_ignored(name, other)),
            }
        }
    }
    tally
}

fn read_ignored(name: &str, outcome: &str) -> Option<(String, String)> {
    let reason = outcome.strip_prefix("ignored")?;
    let reason = reason.strip_prefix(", ").unwrap_or("ignored, no reason given");
    Some((name.to_owned(), reason.to_owned()))
}

/// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn read_counts(line: &str) -> Option<Counts> {
    let (_, numbers) = line.split_once(". ")?;
    let number = |label: &str| {
        let of_label = |part: &str| part.trim().strip_suffix(label)?.trim().parse().ok();
        numbers.split(';').find_map(of_label)
    };
    Some(Counts { passed: number("passed")?, failed: number("failed")?, ignored: number("ignored")? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::*;

    const MIXED: &str = "\nrunning 4 tests\ntest a::b ... ok\ntest a::c ... FAILED\n\
        test d ... ignored, needs a cluster\ntest e - should panic ... ok\ntest f ... ignored\n\nfailures:\n\n\
        ---- a::c stdout ----\ntest of something ... else\n\nfailures:\n    a::c\n\n\
        test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";

    fn finished(output: &str, code: i32) -> Finished {
        let end = End::Exited(ExitStatus::from_raw(code << 8));
        Finished { end, output: output.to_owned(), took: Duration::ZERO }
    }

    #[test]
    fn names_outcomes_and_reasons_are_read() {
        let tally = tally("unit", &finished(MIXED, 101));
        assert_eq!(tally.passed, ["a::b", "e - should panic"]);
        assert_eq!(tally.failed, ["a::c"]);
        assert_eq!(tally.ignored[0], ("d".to_owned(), "needs a cluster".to_owned()));
        assert_eq!(tally.ignored[1].1, "ignored, no reason given");
        assert_eq!(tally.counted, Some(Counts { passed: 2, failed: 1, ignored: 2 }));
    }

    #[test]
    fn a_program_without_harness_is_one_test() {
        assert_eq!(tally("contract", &finished("all is well\n", 0)).passed, ["contract"]);
        let broken = tally("contract", &finished("oh no\n", 1));
        assert_eq!(broken.failed, ["contract ended with exit status: 1"]);
    }

    #[test]
    fn a_program_that_dies_in_the_middle_has_failed() {
        let died = tally("unit", &finished("running 2 tests\ntest a ... ok\n", 134));
        assert_eq!(died.passed, ["a"]);
        assert_eq!(died.failed.len(), 1);
        let stuck = Finished {
            end: End::TimedOut(Duration::from_secs(9)),
            output: "running 2 tests\ntest a ... ok\n".to_owned(),
            took: Duration::ZERO,
        };
        assert_eq!(tally("unit", &stuck).failed, ["unit was stopped: not finished after 9 s"]);
    }

    #[test]
    fn a_failure_after_the_last_test_is_a_failure() {
        let ok =
            "test a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert!(tally("unit", &finished(ok, 0)).failed.is_empty());
        assert_eq!(tally("unit", &finished(ok, 3)).failed.len(), 1);
    }

    #[test]
    fn a_test_that_takes_long_is_one_that_has_not_ended() {
        let output = "test a has been running for over 60 seconds\ntest b::c has been running for over 60 seconds\n\
            test a ... ok\ntest d ... test d has been running for over 60 seconds\n";
        assert_eq!(long_running(output), ["b::c", "d"]);
        assert_eq!(finished_test("test a ... ignored, slow"), Some(("a", "ignored, slow")));
        assert_eq!(finished_test("test of something ... else"), None);
    }

    #[test]
    fn several_harnesses_in_one_output_are_added_up() {
        let twice = MIXED.repeat(2);
        assert_eq!(read(&twice).counted, Some(Counts { passed: 4, failed: 2, ignored: 4 }));
    }
}
