//! A machine within this one: network, mounts, processes and names of its own, so that a container runtime can be
//! let loose in it. Ending its first process is a power cut: everything that ran in it is gone, with all its mounts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use host::NetNs;
use tempfile::TempDir;
use testkit::process::{self, Process, on_path, run};

/// What pods can ping.
pub(crate) const NODE_ADDRESS: &str = "192.0.2.1";

/// Where control groups are mounted. They belong to the whole machine: no namespace hides them.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Run by the first process of the machine. Its number, as everybody outside knows it, is the sign that all is done.
/// What runtimes write to fixed places lands in the machine's own folder, and `/run` is empty as after a boot.
const BOOT: &str = r#"
set -e
read -r init rest < /proc/self/stat
mkdir -p "$FOLDER/etc" "$FOLDER/etc.work" "$FOLDER/lib" "$FOLDER/lib.work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$FOLDER/etc,workdir=$FOLDER/etc.work" /etc
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$FOLDER/lib,workdir=$FOLDER/lib.work" /var/lib
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
mount -t tmpfs tmpfs /dev/shm
mount -t proc proc /proc
mount --make-rshared /
ip link set lo up
ip address add "$ADDRESS/32" dev lo
echo "$init"
exec sleep infinity
"#;

#[derive(Debug)]
pub(crate) struct Machine {
    power: Mutex<Power>,
    /// Below which the runtime must keep its control groups.
    cgroup: String,
    folder: TempDir,
}

/// What makes it run.
#[derive(Debug)]
struct Power {
    /// `unshare`, which holds the namespaces, and takes the first process with it when it ends.
    holder: Process,
    init: u32,
}

/// What is needed to run one, and lacking here.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    if let Some(reason) = lab::missing() {
        return Some(reason);
    }
    let all = ["unshare", "nsenter", "setpriv"].iter().chain(programs);
    all.copied().find(|program| !on_path(program)).map(|program| format!("{program} is not installed"))
}

impl Machine {
    pub(crate) fn boot() -> Result<Machine> {
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        remove_stale_cgroups();
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("plumb-machine-{}-{number}", std::process::id());
        let folder = testkit::scratch("machine")?;
        let power = Mutex::new(Power::on(folder.path())?);
        Ok(Machine { power, cgroup, folder })
    }

    /// Switches the power off and on again. What was on disk is still there.
    pub(crate) fn reboot(&self) -> Result<()> {
        let mut power = self.power();
        power.off();
        remove_cgroups(&self.cgroup);
        *power = Power::on(self.folder.path())?;
        Ok(())
    }

    fn power(&self) -> MutexGuard<'_, Power> {
        self.power.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// On disk, under the same path inside and outside.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// A command that runs inside. It dies with the machine.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = process::command("nsenter");
        command.args([
            "--target",
            &self.power().init.to_string(),
            "--mount",
            "--net",
            "--uts",
            "--ipc",
            "--pid",
            "--",
        ]);
        command.arg(program.as_ref()).stdin(Stdio::null());
        command
    }

    /// Runs a program inside; what it printed.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = run(self.command(program).args(arguments))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `act` in the machine's network, as far as that is a matter of sockets.
    pub(crate) fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from(format!("/proc/{}/ns/net", self.power().init));
        NetNs::open(&path)
            .and_then(|namespace| namespace.visit(act))
            .expect("the machine's network can be entered")
    }

    /// Whether `address` answers a ping from a network namespace of the machine.
    pub(crate) fn can_ping(&self, netns: &Path, address: &str) -> bool {
        let netns = format!("--net={}", netns.display());
        self.run("nsenter", &[&netns, "ping", "-n", "-c", "1", "-W", "5", address]).is_ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.power().off();
        remove_cgroups(&self.cgroup);
    }
}

impl Power {
    fn on(folder: &Path) -> Result<Power> {
        let mut command = process::command("unshare");
        command.args(["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]);
        command.args(["--propagation", "private", "sh", "-c", BOOT]);
        command
            .env("FOLDER", folder)
            .env("ADDRESS", NODE_ADDRESS)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut holder = Process::spawn(command)?;
        let output = holder.child().stdout.take().context("unshare has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let init =
            line.trim().parse().with_context(|| format!("the machine did not start: it said {line:?}"))?;
        Ok(Power { holder, init })
    }

    fn off(&mut self) {
        self.holder.kill();
        // The first process is gone only after all others of the machine.
        let gone = process::wait_until("the machine's processes to end", || !is_running(self.init));
        gone.expect("nothing survives a power cut");
    }
}

/// One that has ended but was not collected yet does not run.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn hierarchies() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(CGROUPS).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink())
}

fn remove_cgroups(name: &str) {
    for top in hierarchies().map(|hierarchy| hierarchy.join(name)).chain([Path::new(CGROUPS).join(name)]) {
        // A group can be removed a moment after its last process has ended.
        let gone = process::wait_until("control groups to be empty", || remove_group(&top));
        gone.unwrap_or_else(|error| eprintln!("{} stays behind: {error:#}", top.display()));
    }
}

/// Whether the group and all below it are gone.
fn remove_group(group: &Path) -> bool {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_group(&entry.path());
        }
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

/// Those of test programs that were killed.
fn remove_stale_cgroups() {
    let groups = hierarchies().flat_map(|hierarchy| fs::read_dir(hierarchy).into_iter().flatten().flatten());
    for group in groups {
        let name = group.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix("plumb-machine-")?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove_group(&group.path());
        }
    }
}
