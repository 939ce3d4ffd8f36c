//! Runs a test program a portion at a time, so that a run that is late can leave tests out between portions.

use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;

use super::hangs::Harness;
use super::hurry::Hurry;
use super::libtest::Tally;
use crate::process::{End, Finished};

/// What a test program did.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) finished: Finished,
    /// Tests that did not run, or did not end in time, each with the reason.
    pub(crate) left_out: Vec<(String, String)>,
}

impl Outcome {
    pub(crate) fn whole((tally, finished): (Tally, Finished)) -> Outcome {
        Outcome { tally, finished, left_out: Vec::new() }
    }

    fn nothing() -> Outcome {
        let end = End::Exited(ExitStatus::default());
        Outcome::whole((Tally::default(), Finished { end, output: String::new(), took: Duration::ZERO }))
    }

    fn followed_by(mut self, (tally, finished): (Tally, Finished)) -> Outcome {
        self.tally.add(tally);
        Outcome { finished: self.finished.followed_by(finished), ..self }
    }

    fn leave_out(&mut self, tests: Vec<String>, hurry: &Hurry) {
        self.left_out.extend(tests.into_iter().map(|test| (test, hurry.reason())));
    }
}

/// Runs all tests that there is time for.
pub(crate) fn run(harness: &Harness<'_>, hurry: &Hurry, on_line: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let tests = harness.list()?;
    if tests.is_empty() {
        // It has no harness, and is one test.
        return Ok(Outcome::whole(harness.run(on_line)?));
    }
    let mut outcome = Outcome::nothing();
    for portion in hurry.portions(tests) {
        let (now, left_out) = hurry.divide(portion);
        outcome.leave_out(left_out, hurry);
        if !now.is_empty() {
            let (part, unfinished) = run_portion(harness, hurry, now, on_line)?;
            outcome = outcome.followed_by(part);
            outcome.leave_out(unfinished, hurry);
        }
    }
    Ok(outcome)
}

/// Also returns the tests that were stopped because the run has no time left: these have not failed.
fn run_portion(
    harness: &Harness<'_>,
    hurry: &Hurry,
    tests: Vec<String>,
    on_line: &mut dyn FnMut(&str),
) -> Result<((Tally, Finished), Vec<String>)> {
    let filters: Vec<String> = std::iter::once("--exact".to_owned()).chain(tests.iter().cloned()).collect();
    let mut limits = harness.limits;
    let is_cut = hurry.left() < limits.total;
    limits.total = limits.total.min(hurry.left());
    let (mut tally, finished) = Harness { filters: &filters, limits, ..*harness }.run(on_line)?;
    if !is_cut || !matches!(finished.end, End::TimedOut(_)) {
        return Ok(((tally, finished), Vec::new()));
    }
    // The last of the failures is that the program was stopped.
    tally.failed.pop();
    let is_done = |test: &String| tally.passed.contains(test) || tally.failed.contains(test);
    let unfinished = tests.into_iter().filter(|test| !is_done(test)).collect();
    Ok(((tally, finished), unfinished))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::hangs::HarnessLimits;
    use super::*;

    /// Lists four tests; each of those that it is asked for passes, but `d` does not end.
    const HARNESS: &str = r#"
        case "$*" in
        *--list*) printf 'a: test\nb: test\nc: test\nd: test\n' ;;
        *) shift; for name; do [ $name = d ] || echo "test $name ... ok"; done
           case "$*" in *d*) sleep 1000 ;; esac
           echo "test result: ok. $# passed; 0 failed; 0 ignored; 0 measured; 0 filtered out" ;;
        esac"#;

    fn run_fake(hurry: Hurry) -> Outcome {
        let command = |arguments: &[String]| {
            let mut command = Command::new("sh");
            command.args(["-c", HARNESS, "harness"]).args(arguments);
            command
        };
        let limits = HarnessLimits { total: Duration::from_secs(600), quiet: Duration::from_secs(300) };
        let harness = Harness { name: "fake", command: &command, filters: &[], limits, seed: 7 };
        run(&harness, &hurry, &mut |_| ()).unwrap()
    }

    #[test]
    fn what_does_not_end_in_time_is_left_out_and_has_not_failed() {
        let outcome = run_fake(Hurry::new(7, false).with_little_left(Duration::from_secs(3)));
        let run: Vec<&String> = outcome.tally.passed.iter().collect();
        let left_out: Vec<&String> = outcome.left_out.iter().map(|(name, _)| name).collect();
        assert!(outcome.tally.failed.is_empty(), "{:?}", outcome.tally);
        assert_eq!(run.len() + left_out.len(), 4, "{run:?} {left_out:?}");
        assert!(left_out.contains(&&"d".to_owned()));
    }

    #[test]
    fn without_time_everything_is_left_out() {
        let outcome = run_fake(Hurry::new(7, false).with_little_left(Duration::ZERO));
        assert_eq!((outcome.tally.passed.len(), outcome.left_out.len()), (0, 4));
        assert!(outcome.left_out[0].1.contains("75 minutes"), "{:?}", outcome.left_out);
    }
}
