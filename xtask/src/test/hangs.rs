//! Runs a test program to its end even if one of its tests never ends: the program is stopped when no test has finished for
//! minutes, the tests that were running then have failed, and the program is started again for the rest.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::libtest::{Counts, Tally, finished_test, long_running, read, tally};
use crate::process::{End, Finished, Limits, capture};

/// How one test program is run.
pub(crate) struct Harness<'a> {
    /// The program's name in the report.
    pub(crate) name: &'a str,
    /// A command that runs the program with these arguments.
    pub(crate) command: &'a dyn Fn(&[String]) -> Command,
    /// Parts of the names of the tests that are wanted; empty for all.
    pub(crate) filters: &'a [String],
    pub(crate) limits: HarnessLimits,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HarnessLimits {
    /// For the program as a whole.
    pub(crate) total: Duration,
    /// No test takes this long.
    pub(crate) quiet: Duration,
}

impl Harness<'_> {
    /// What all tests did, and all that was printed.
    pub(crate) fn run(&self, on_line: &mut dyn FnMut(&str)) -> Result<(Tally, Finished)> {
        let limits = Limits {
            total: self.limits.total,
            quiet: Some((self.limits.quiet, |line| finished_test(line).is_some())),
        };
        let mut sum: Option<(Tally, Finished)> = None;
        let mut arguments = self.filters.to_vec();
        loop {
            let finished = capture(&mut (self.command)(&arguments), limits, on_line)?;
            let hung = match finished.end {
                End::Quiet(_) => long_running(&finished.output),
                End::Exited(_) | End::TimedOut(_) => Vec::new(),
            };
            let ended = hung.is_empty();
            let part = if ended { tally(self.name, &finished) } else { self.tally_of_hung(&finished, hung) };
            let (sum_tally, sum_finished) = match sum.take() {
                None => (part, finished),
                Some((mut before, earlier)) => {
                    before.add(part);
                    (before, earlier.followed_by(finished))
                }
            };
            let rest = if ended { Vec::new() } else { self.rest(&sum_tally)? };
            if rest.is_empty() {
                return Ok((sum_tally, sum_finished));
            }
            println!("  … {}: {}; {} tests are left", self.name, sum_finished.end, rest.len());
            arguments = std::iter::once("--exact".to_owned()).chain(rest).collect();
            sum = Some((sum_tally, sum_finished));
        }
    }

    /// The harness was stopped before it could count.
    fn tally_of_hung(&self, finished: &Finished, hung: Vec<String>) -> Tally {
        let mut tally = read(&finished.output);
        let seconds = self.limits.quiet.as_secs();
        for name in hung {
            println!("{name} of {} hangs: no test finished for {seconds} s (seed {})", self.name, self.seed);
            tally.failed.push(name.clone());
            tally.hung.push(name);
        }
        tally.counted = Some(Counts {
            passed: tally.passed.len(),
            failed: tally.failed.len(),
            ignored: tally.ignored.len(),
        });
        tally
    }

    /// The tests of which nothing was heard yet.
    fn rest(&self, done: &Tally) -> Result<Vec<String>> {
        let list: Vec<String> = ["--list", "--format", "terse"]
            .map(str::to_owned)
            .into_iter()
            .chain(self.filters.to_vec())
            .collect();
        let limits = Limits { total: self.limits.total, quiet: None };
        let listed = capture(&mut (self.command)(&list), limits, &mut |_| ())?;
        let names = listed.output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
        let is_done = |name: &String| {
            let ignored = done.ignored.iter().map(|(name, _)| name);
            done.passed.iter().chain(&done.failed).chain(ignored).any(|known| bare(known) == name)
        };
        Ok(names.filter(|name| !is_done(name)).collect())
    }
}

/// The harness adds to the name of a test that it is to panic.
fn bare(name: &str) -> &str {
    name.strip_suffix(" - should panic").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A harness as Rust's is: four tests, of which the second never ends when it is run.
    const HARNESS: &str = r#"
        case "$*" in
        *--list*) printf 'a: test\nb: test\nc: test\nd: test\n' ;;
        --exact*) shift; for name; do echo "test $name ... ok"; done
            echo "test result: ok. $# passed; 0 failed; 0 ignored; 0 measured; 0 filtered out" ;;
        *) echo 'test a ... ok'; echo 'test c ... FAILED'
            echo 'test b ... test b has been running for over 60 seconds'; sleep 1000 ;;
        esac"#;

    fn run(script: &str) -> (Tally, Finished) {
        let command = |arguments: &[String]| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "harness"]).args(arguments);
            command
        };
        let limits = HarnessLimits { total: Duration::from_secs(600), quiet: Duration::from_secs(5) };
        let harness = Harness { name: "fake", command: &command, filters: &[], limits, seed: 7 };
        harness.run(&mut |_| ()).unwrap()
    }

    #[test]
    fn a_test_that_hangs_is_named_and_the_rest_still_runs() {
        let (tally, finished) = run(HARNESS);
        assert_eq!(tally.hung, ["b"]);
        assert_eq!(tally.failed, ["c", "b"]);
        assert_eq!(tally.passed, ["a", "d"]);
        assert_eq!(tally.counted, Some(Counts { passed: 2, failed: 2, ignored: 0 }));
        assert!(finished.output.contains("over 60 seconds") && finished.output.contains("test d ... ok"));
    }

    #[test]
    fn a_program_that_hangs_without_a_word_fails_as_a_whole() {
        let (tally, _) = run("echo 'test a ... ok'; sleep 1000");
        assert_eq!(tally.passed, ["a"]);
        assert_eq!(tally.failed, ["fake was stopped: no test finished for 5 s"]);
    }

    #[test]
    fn a_program_without_tests_left_is_not_run_again() {
        let (tally, _) = run("case \"$*\" in *--list*) echo 'b: test' ;; \
             *) echo 'test b has been running for over 60 seconds'; sleep 1000 ;; esac");
        assert_eq!((tally.passed.len(), tally.failed), (0, vec!["b".to_owned()]));
    }
}
