//! Child processes that never outlive the test.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Generous: a deadline that only something that hangs will meet.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A child that is killed when this is dropped, and also when this process dies in any other way.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

/// A command whose process dies with ours, by the kernel's hand, if `setpriv` (util-linux) is there.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    if !on_path("setpriv") {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl Process {
    /// Starts what [`command`] has prepared.
    pub fn spawn(command: Command) -> io::Result<Process> {
        Ok(Process { child: spawn_on_keeper_thread(command)? })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end; a failure shows what it printed.
pub fn run(command: &mut Command) -> anyhow::Result<Output> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed ({}): {}", output.status, printed.trim());
    }
    Ok(output)
}

/// Asks again and again until `done` says yes, at most for [`PATIENCE`].
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            bail!("waited {} s in vain for {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a program can be started by its name.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

type Request = (Command, Sender<io::Result<Child>>);

/// "When the parent dies" means the parent *thread*, and the threads of tests and runtimes come and go. So one
/// thread that lives as long as the process starts them all.
fn spawn_on_keeper_thread(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts children is gone");
    keeper.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn is_running(pid: u32) -> bool {
        let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    fn sleeper() -> Command {
        let mut command = super::command("sleep");
        command.arg("1000");
        command
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::spawn(sleeper()).unwrap();
        let pid = process.id();
        assert!(is_running(pid));
        drop(process);
        assert!(!is_running(pid));
    }

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it() {
        let mut process = std::thread::spawn(|| Process::spawn(sleeper()).unwrap()).join().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert!(process.exit_status().is_none() && is_running(process.id()));
    }
}
