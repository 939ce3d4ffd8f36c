//! Names that say which process made a thing, so that what a dead one left can be told from what is in use.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// Apart from labs that are meant to outlive the process that made them.
const PREFIX: &str = "plumb-run";

/// One experiment of one process. A process number comes back one day; together with its start time it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunName {
    process: u32,
    started: u64,
    experiment: u32,
}

impl RunName {
    pub(crate) fn of_this_process() -> RunName {
        static EXPERIMENTS: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        RunName {
            process,
            started: start_time(process).unwrap_or_default(),
            experiment: EXPERIMENTS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The run that made a thing of this name; `None` if no lab did.
    pub(crate) fn of_thing(name: &str) -> Option<RunName> {
        let mut words = name.strip_prefix(PREFIX)?.strip_prefix('-')?.splitn(4, '-');
        let process = words.next()?.parse().ok()?;
        let started = words.next()?.parse().ok()?;
        let experiment = words.next()?.parse().ok()?;
        Some(RunName { process, started, experiment })
    }

    /// A name for one of the run's things.
    pub(crate) fn thing(&self, word: &str) -> String {
        format!("{self}-{word}")
    }

    pub(crate) fn is_alive(&self) -> bool {
        start_time(self.process) == Some(self.started)
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}-{}-{}-{}", self.process, self.started, self.experiment)
    }
}

/// When a process started, in the kernel's own ticks. `None` for one that has ended, even if nobody has collected
/// it yet.
fn start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parse_start_time(&text)
}

/// The command's name, in brackets, may hold anything, brackets and spaces too.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3 and the start time field 22.
    fields.nth(22 - 3 - 1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_made_them() {
        let run = RunName { process: 12, started: 3456, experiment: 7 };
        assert_eq!(run.thing("pod-a"), "plumb-run-12-3456-7-pod-a");
        assert_eq!(RunName::of_thing("plumb-run-12-3456-7-pod-a"), Some(run));
        assert_eq!(RunName::of_thing("plumb-run-12-3456-7"), Some(run));
        for strange in ["plumb-run-", "plumb-run-a-1-1-x", "plumb-run-1-2", "cni-1234", ""] {
            assert_eq!(RunName::of_thing(strange), None, "{strange}");
        }
    }

    #[test]
    fn this_process_lives_and_its_predecessor_does_not() {
        let run = RunName::of_this_process();
        assert!(run.is_alive());
        assert!(!RunName { started: run.started.wrapping_sub(1), ..run }.is_alive());
    }

    #[test]
    fn a_command_may_have_any_name() {
        let stat = "1 (a) Z 1 (b)) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2";
        assert_eq!(parse_start_time(stat), Some(987));
        assert_eq!(parse_start_time("1 (a) Z 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 2"), None);
    }
}
