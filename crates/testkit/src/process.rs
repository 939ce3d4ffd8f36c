//! Child processes that never outlive the test.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::PATIENCE;

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

/// How long a command takes whose output nobody reads.
pub fn seconds(mut command: Command) -> anyhow::Result<f64> {
    let started = Instant::now();
    let status =
        command.stdout(Stdio::null()).status().with_context(|| format!("cannot start {command:?}"))?;
    let seconds = started.elapsed().as_secs_f64();
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(seconds)
}

/// The most memory a command holds at once. The kernel keeps the peak for as long as the process lives, so looking now
/// and then is enough, up to what changes between the last look and the end.
pub fn peak_mib(mut command: Command) -> anyhow::Result<f64> {
    let mut child =
        command.stdout(Stdio::null()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut peak_kib = 0.0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
        peak_kib = kib.unwrap_or(peak_kib);
        std::thread::sleep(Duration::from_millis(1));
    };
    ensure!(ended.success(), "{command:?} failed ({ended})");
    Ok(peak_kib / 1024.0)
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

type Request = (Command, File, Sender<io::Result<Child>>);

/// "When the parent dies" means the parent *thread*, and the threads of tests and runtimes come and go. So one
/// thread that lives as long as the process starts them all, each in the network namespace of who asked for it.
fn spawn_on_keeper_thread(command: Command) -> io::Result<Child> {
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, namespace, reply) in requests {
                let _ = reply.send(move_into(&namespace).and_then(|()| command.spawn()));
            }
        });
        sender
    });
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that starts children is gone");
    keeper.send((command, File::open(OWN_NAMESPACE)?, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Needs no rights if the thread is there already.
fn move_into(namespace: &File) -> io::Result<()> {
    if namespace.metadata()?.ino() == std::fs::metadata(OWN_NAMESPACE)?.ino() {
        return Ok(());
    }
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?)
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
    fn the_memory_of_a_command_is_seen() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.1"]);
        let mib = peak_mib(command).unwrap();
        assert!(mib > 0.1 && mib < 100.0, "{mib}");
        assert!(peak_mib(Command::new("false")).is_err());
        assert!(seconds(Command::new("false")).is_err());
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
