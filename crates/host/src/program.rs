//! Programs of the machine, run to their end within a limit of time.
//!
//! One that takes longer is killed with everything it started, so that nobody waits for a program that hangs.

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// More than any program that is run here prints.
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// How long a program may take to go after it was killed. One that hangs in the kernel does not go.
const KILL_PATIENCE: Duration = Duration::from_secs(1);
/// With this many that were killed and did not go, no further one is started.
const STUCK_MAX: usize = 8;
/// How often to look whether a program that prints nothing has ended: older kernels do not tell.
const STEP: Duration = Duration::from_millis(5);

/// Killed, and still there.
static STUCK: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Where the system's programs are, where there is no `PATH`.
const USUAL_FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// How to start a program of the system. A runtime starts plugins with whatever environment it likes, even without a `PATH`: then the
/// usual folders are looked through.
pub fn find(name: &str) -> PathBuf {
    let has_path = std::env::var_os("PATH").is_some_and(|path| !path.is_empty());
    if has_path { name.into() } else { find_in_usual_folders(name) }
}

fn find_in_usual_folders(name: &str) -> PathBuf {
    let mut files = USUAL_FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| name.into())
}

/// Runs a program with this input, and gives back what it printed. One that is not done after `time` is killed, and the
/// error is [`io::ErrorKind::TimedOut`].
pub fn run(command: &mut Command, input: &[u8], time: Duration) -> io::Result<Output> {
    refuse_when_stuck()?;
    let deadline = Instant::now() + time;
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    // In a group of its own, so that what it starts can be killed with it.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let mut talk = Talk::with(&mut child)?;
    match talk.until_end(&mut child, input, deadline) {
        Ok(status) => Ok(Output { status, stdout: talk.printed, stderr: talk.complained }),
        Err(error) => {
            end(child);
            Err(match error.kind() {
                io::ErrorKind::TimedOut => {
                    let words = format!("it did not end within {} s", time.as_secs_f32());
                    io::Error::new(io::ErrorKind::TimedOut, words)
                }
                _ => error,
            })
        }
    }
}

/// The same where only the end matters.
pub fn status(command: &mut Command, time: Duration) -> io::Result<ExitStatus> {
    run(command, b"", time).map(|output| output.status)
}

fn refuse_when_stuck() -> io::Result<()> {
    let mut stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    stuck.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    if stuck.len() < STUCK_MAX {
        return Ok(());
    }
    let words = format!("{STUCK_MAX} programs that were killed are still there, so the machine hangs");
    Err(io::Error::new(io::ErrorKind::ResourceBusy, words))
}

/// Kills it and its group. Whether it goes is up to the kernel: it is not waited for without a limit.
fn end(mut child: Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let deadline = Instant::now() + KILL_PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            STUCK.lock().unwrap_or_else(PoisonError::into_inner).push(child);
            return;
        }
        std::thread::sleep(STEP);
    }
}

/// A program under way, with its pipes.
struct Talk {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    printed: Vec<u8>,
    complained: Vec<u8>,
}

impl Talk {
    fn with(child: &mut Child) -> io::Result<Talk> {
        let talk = Talk {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            printed: Vec::new(),
            complained: Vec::new(),
        };
        let pipes = [
            talk.stdin.as_ref().map(|pipe| pipe.as_fd()),
            talk.stdout.as_ref().map(|pipe| pipe.as_fd()),
            talk.stderr.as_ref().map(|pipe| pipe.as_fd()),
        ];
        for pipe in pipes.into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(talk)
    }

    /// Writes and reads until the program has ended. What others that it started still print is not waited for.
    fn until_end(
        &mut self,
        child: &mut Child,
        mut input: &[u8],
        deadline: Instant,
    ) -> io::Result<ExitStatus> {
        loop {
            // Before the last look at its pipes, so that nothing it printed is missed.
            let ended = child.try_wait()?;
            self.write(&mut input);
            read(&mut self.stdout, &mut self.printed)?;
            read(&mut self.stderr, &mut self.complained)?;
            match ended {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
                None => self.wait()?,
            }
        }
    }

    /// Waits for a moment, or until something can be written or read.
    fn wait(&self) -> io::Result<()> {
        let pipes: [(Option<BorrowedFd<'_>>, PollFlags); 3] = [
            (self.stdin.as_ref().map(|pipe| pipe.as_fd()), PollFlags::OUT),
            (self.stdout.as_ref().map(|pipe| pipe.as_fd()), PollFlags::IN),
            (self.stderr.as_ref().map(|pipe| pipe.as_fd()), PollFlags::IN),
        ];
        let open = pipes.iter().filter_map(|(pipe, flags)| Some((pipe.as_ref()?, *flags)));
        let mut waiting: Vec<PollFd<'_>> = open.map(|(pipe, flags)| PollFd::new(pipe, flags)).collect();
        let time = Timespec { tv_sec: 0, tv_nsec: STEP.subsec_nanos().into() };
        match poll(&mut waiting, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn write(&mut self, input: &mut &[u8]) {
        while let Some(pipe) = &mut self.stdin {
            if input.is_empty() {
                self.stdin = None;
                break;
            }
            match pipe.write(input) {
                Ok(length) => *input = input.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It does not read on; its own words say why.
                Err(_) => self.stdin = None,
            }
        }
    }
}

/// Takes what is there.
fn read(pipe: &mut Option<impl io::Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut part = [0; 16 * 1024];
    while let Some(open) = pipe {
        match open.read(&mut part) {
            Ok(0) => *pipe = None,
            Ok(length) => into.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if into.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other(format!("it printed more than {} MiB", OUTPUT_BYTES_MAX >> 20)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_programs_are_found_without_being_told_where() {
        assert!(find_in_usual_folders("sh").is_absolute());
        assert_eq!(find_in_usual_folders("no-such-program"), PathBuf::from("no-such-program"));
    }

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_program_prints_comes_back() {
        let output = run(&mut shell("cat; echo no >&2; exit 3"), b"yes", LONG).unwrap();
        assert_eq!(
            (output.stdout, output.stderr, output.status.code()),
            (b"yes".into(), b"no\n".into(), Some(3))
        );
        assert!(status(&mut shell("true"), LONG).unwrap().success());
        assert_eq!(
            run(&mut Command::new("/nowhere/x"), b"", LONG).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn more_than_a_pipe_holds_passes_both_ways() {
        let input = vec![b'x'; 1 << 20];
        assert!(run(&mut Command::new("cat"), &input, LONG).unwrap().stdout == input);
        // One that does not read its input, and still has an answer.
        assert_eq!(run(&mut shell("echo done"), &input, LONG).unwrap().stdout, b"done\n");
    }

    #[test]
    fn one_that_hangs_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("pids");
        let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; wait", mark.display());
        let error = run(&mut shell(&script), b"", Duration::from_millis(500)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        let started = std::fs::read_to_string(mark).unwrap();
        let deadline = Instant::now() + LONG;
        // What is left of it until somebody asks for its end has no command any more.
        let runs =
            || std::fs::read(format!("/proc/{}/cmdline", started.trim())).is_ok_and(|line| !line.is_empty());
        while runs() {
            assert!(Instant::now() < deadline, "{started} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn one_that_leaves_somebody_with_its_pipe_is_not_waited_for_twice() {
        let output = run(&mut shell("sleep 1000 & echo $!"), b"", LONG).unwrap();
        let left: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
    }
}
