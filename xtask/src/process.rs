//! Runs a program with a deadline, keeps what it says, and ends all of it when the time is up.

use std::fmt;
use std::io::{BufRead as _, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How long to go on listening once the program itself has ended: a process that it left behind may hold the
/// pipe open for ever.
const LISTEN_AFTER_END: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) end: End,
    /// Standard output and standard error, in the order they were written.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

impl Finished {
    pub(crate) fn succeeded(&self) -> bool {
        matches!(self.end, End::Exited(status) if status.success())
    }

    /// Both as one: the later one decides how it ended.
    pub(crate) fn followed_by(mut self, later: Finished) -> Finished {
        self.output.push_str(&later.output);
        Finished { end: later.end, output: self.output, took: self.took + later.took }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    TimedOut(Duration),
    /// Nothing was heard of it for this long: see [`Limits::quiet`].
    Quiet(Duration),
}

/// Whether a line shows that the program gets on.
pub(crate) type SignOfLife = fn(&str) -> bool;

/// How long a program may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) total: Duration,
    /// The longest time without a line that is a sign of life, and what such a line is.
    pub(crate) quiet: Option<(Duration, SignOfLife)>,
}

impl From<Duration> for Limits {
    fn from(total: Duration) -> Limits {
        Limits { total, quiet: None }
    }
}

impl Limits {
    /// How the program ends if it has run since `started` and was heard of at `heard`.
    fn exceeded(&self, started: Instant, heard: Instant) -> Option<End> {
        match self.quiet {
            Some((quiet, _)) if heard.elapsed() > quiet => Some(End::Quiet(quiet)),
            _ => (started.elapsed() > self.total).then_some(End::TimedOut(self.total)),
        }
    }

    fn is_sign_of_life(&self, line: &str) -> bool {
        self.quiet.is_some_and(|(_, is_sign)| is_sign(line))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(status) => write!(f, "ended with {status}"),
            End::TimedOut(after) => write!(f, "was stopped: not finished after {} s", after.as_secs()),
            End::Quiet(after) => write!(f, "was stopped: no test finished for {} s", after.as_secs()),
        }
    }
}

/// Runs `command` with both outputs captured. `on_line` sees each line as it comes.
pub(crate) fn capture(
    command: &mut Command,
    limits: impl Into<Limits>,
    on_line: &mut dyn FnMut(&str),
) -> Result<Finished> {
    let limits = limits.into();
    let program = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let (reader, writer) = std::io::pipe().context("a pipe for the output")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let spawned = command.spawn();
    // The command keeps its copies of the pipe's write end until told otherwise, and with them the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.with_context(|| format!("{program} could not be started"))?;
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || send_lines(reader, &sender));
    let mut output = String::new();
    let end = wait(&mut child, &lines, limits, &mut |line| {
        on_line(line.trim_end_matches('\n'));
        output.push_str(line);
    })?;
    Ok(Finished { end, output, took: started.elapsed() })
}

fn send_lines(reader: PipeReader, sender: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
        line.clear();
    }
}

fn wait(
    child: &mut Child,
    lines: &Receiver<String>,
    limits: Limits,
    on_line: &mut dyn FnMut(&str),
) -> Result<End> {
    let started = Instant::now();
    let mut heard = started;
    let mut ended: Option<(ExitStatus, Instant)> = None;
    let mut all_said = false;
    loop {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => {
                if limits.is_sign_of_life(&line) {
                    heard = Instant::now();
                }
                on_line(&line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => all_said = true,
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        match ended {
            Some((status, at)) if all_said || at.elapsed() > LISTEN_AFTER_END => {
                return Ok(End::Exited(status));
            }
            None if let Some(end) = limits.exceeded(started, heard) => {
                end_all(child);
                return Ok(end);
            }
            // The outputs are closed, the program is still on its way out.
            None if all_said => std::thread::sleep(LOOK_EVERY),
            _ => {}
        }
    }
}

/// Ends the child and everything it started, found before the first is killed: an orphan has another parent.
fn end_all(child: &mut Child) {
    let mut family = vec![child.id()];
    let mut next = 0;
    while next < family.len() {
        family.extend(children_of(family[next]));
        next += 1;
    }
    let pids: Vec<String> = family.iter().map(u32::to_string).collect();
    // `kill` is built into every shell; as a program of its own it may be missing.
    let kill = format!("kill -9 {} 2>/dev/null", pids.join(" "));
    if Command::new("sh").args(["-c", &kill]).status().is_err() {
        child.kill().ok();
    }
    child.wait().ok();
}

fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may itself hold spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, allowed: Duration) -> Finished {
        capture(Command::new("sh").args(["-c", script]), allowed, &mut |_| ()).unwrap()
    }

    #[test]
    fn both_outputs_are_kept_in_order() {
        let finished = shell("echo one; echo two >&2; echo three; exit 3", Duration::from_secs(60));
        assert_eq!(finished.output, "one\ntwo\nthree\n");
        assert!(matches!(finished.end, End::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn a_process_left_behind_does_not_hold_us_up() {
        let finished = shell("sleep 50 & echo $!", Duration::from_secs(30));
        assert!(finished.succeeded(), "{finished:?}");
        let left_behind = finished.output.trim();
        Command::new("sh").args(["-c", &format!("kill {left_behind}")]).status().unwrap();
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let finished = shell("sleep 61 & echo $!; wait", Duration::from_millis(300));
        assert!(matches!(finished.end, End::TimedOut(_)));
        let child: u32 = finished.output.trim().parse().unwrap();
        let is_running = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.contains("sleep") && !stat.contains(") Z ")
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_running() {
            assert!(Instant::now() < deadline, "the child of the stopped program still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
