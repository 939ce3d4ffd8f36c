//! Installs the real parts that tests and the demo run against, by their Debian package names: only what is
//! missing, and never without saying what and why.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::workspace::{has_program, is_root, search_path};

/// A program from outside, and what it is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    program: &'static str,
    package: &'static str,
    why: &'static str,
    /// The service that the package starts by itself. We want the program only.
    service: Option<&'static str>,
}

const fn tool(program: &'static str, package: &'static str, why: &'static str) -> Tool {
    Tool { program, package, why, service: None }
}

pub(crate) const IP: Tool = tool("ip", "iproute2", "shows what is programmed in the kernel");
pub(crate) const PING: Tool = tool("ping", "iputils-ping", "proves that pods reach each other");

pub(crate) const BIRD: Tool =
    Tool { service: Some("bird"), ..tool("bird", "bird2", "the BGP daemon that nodes run") };

/// Everything `cargo xtask test` can make use of.
pub(crate) const FOR_TESTS: &[Tool] = &[
    IP,
    PING,
    Tool {
        service: Some("etcd"),
        ..tool("etcd", "etcd-server", "a real etcd is one of the stores under test")
    },
    tool("etcdctl", "etcd-client", "reads and writes etcd's keys independently of our own code"),
    tool("nft", "nftables", "checks firewall rules against the real thing"),
    BIRD,
    Tool { service: Some("gobgpd"), ..tool("gobgpd", "gobgpd", "a BGP daemon that is none of ours") },
    // Daemons of FRR do not lie on the search path.
    Tool {
        service: Some("frr"),
        ..tool("/usr/lib/frr/bgpd", "frr", "another BGP daemon that is none of ours")
    },
    tool("nsenter", "util-linux", "runs a command inside a pod's network namespace"),
    Tool {
        service: Some("containerd"),
        ..tool("containerd", "containerd", "a real container runtime that calls our plugin")
    },
    tool("runc", "runc", "starts the pods of containerd and podman"),
    tool("podman", "podman", "another real caller of our plugin"),
    tool("conmon", "conmon", "looks after podman's containers"),
    tool("busybox", "busybox-static", "is all that the pods of real runtimes consist of"),
    // Plugins do not lie on the search path.
    tool(
        "/usr/lib/cni/ptp",
        "containernetworking-plugins",
        "plugins to work with and to be measured against",
    ),
    tool("iptables", "iptables", "the plugin portmap asks for it"),
    tool("protoc", "protobuf-compiler", "generates the protobuf code that is committed"),
    tool("chromium-headless-shell", "chromium-headless-shell", "shows the doctor's page as a browser does"),
];

/// How long to wait for another run, or the machine's own updates, to let go of the package database.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(600);

/// Sees to it that the tools are there. What cannot be installed is named, not an error: the tests that need
/// it skip themselves and say so.
pub(crate) fn ensure(tools: &[Tool]) -> Result<()> {
    let wanted = missing(tools, has_program);
    for tool in &wanted {
        println!("missing: {} from the Debian package {}: {}", tool.program, tool.package, tool.why);
    }
    match obstacle() {
        _ if wanted.is_empty() => {}
        Some(obstacle) => println!("not installed: {obstacle}. Tests that need these programs are skipped."),
        None => install_one_run_at_a_time(&wanted)?,
    }
    Ok(())
}

/// Another run may be at it just now: one installs, the other waits and finds everything there.
fn install_one_run_at_a_time(wanted: &[Tool]) -> Result<()> {
    let path = std::env::temp_dir().join("plumb-packages.lock");
    let lock = File::options().create(true).append(true).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    let still_wanted = missing(wanted, has_program);
    if !still_wanted.is_empty() {
        install(&still_wanted);
    }
    for tool in missing(wanted, has_program) {
        println!("still missing: {} (package {})", tool.program, tool.package);
    }
    Ok(())
}

fn missing(tools: &[Tool], is_there: impl Fn(&str) -> bool) -> Vec<Tool> {
    tools.iter().copied().filter(|tool| !is_there(tool.program)).collect()
}

/// Why we cannot install anything here.
fn obstacle() -> Option<&'static str> {
    if !has_program("apt-get") {
        Some("this machine has no apt-get; install what provides them by hand")
    } else if !is_root() {
        Some("that needs root; install the packages by hand or run this as root")
    } else {
        None
    }
}

fn install(tools: &[Tool]) {
    let names: Vec<&str> = tools.iter().map(|tool| tool.package).collect();
    println!("installing {}", names.join(" "));
    if !apt_succeeds(&["update"]) {
        println!("apt-get update failed (no network?); trying with the package lists that are here");
    }
    let install_args = ["install", "--yes", "--no-install-recommends"];
    let args = |packages: &[&'static str]| [&install_args[..], packages].concat();
    if !apt_succeeds(&args(&names)) {
        // A run that was killed half way through leaves the database for the next one to mend.
        run(Command::new("dpkg").args(["--configure", "-a"])).ok();
        // One unknown package makes apt refuse them all.
        for name in &names {
            apt_succeeds(&args(&[*name]));
        }
    }
    stop_services(tools);
}

/// Runs apt-get, waiting while someone else holds its locks. Shows its words only when it fails.
fn apt_succeeds(args: &[&str]) -> bool {
    let started = Instant::now();
    loop {
        let mut apt = Command::new("apt-get");
        apt.args(["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=2"]).args(args);
        match run(&mut apt) {
            Ok(output) if output.status.success() => return true,
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                if !is_lock_held(&said) || started.elapsed() > LOCK_WAIT_MAX {
                    print!("apt-get {}: {}", args.join(" "), said);
                    return false;
                }
                println!("another program is installing packages; waiting for it");
                std::thread::sleep(Duration::from_secs(3));
            }
            Err(error) => {
                println!("apt-get {}: {error:#}", args.join(" "));
                return false;
            }
        }
    }
}

/// `DPkg::Lock::Timeout` covers dpkg's lock but not that of the package lists, which `update` takes.
fn is_lock_held(stderr: &str) -> bool {
    stderr.contains("Could not get lock") || stderr.contains("Unable to acquire the dpkg frontend lock")
}

fn run(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").env("PATH", search_path());
    command.stdin(Stdio::null()).output().with_context(|| format!("{program} could not be started"))
}

/// The tests start their own etcd and BIRD, on ports of their own. The services that come with the packages
/// would only sit there, so those that we just installed are stopped, where there is a service manager.
fn stop_services(tools: &[Tool]) {
    if !Path::new("/run/systemd/system").exists() {
        return;
    }
    for service in tools.iter().filter_map(|tool| tool.service) {
        println!("stopping and disabling the service {service}, which came with its package");
        run(Command::new("systemctl").args(["disable", "--now", service])).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_wanted() {
        let wanted = missing(FOR_TESTS, |program| program != "etcd" && program != "bird");
        let packages: Vec<&str> = wanted.iter().map(|tool| tool.package).collect();
        assert_eq!(packages, ["etcd-server", "bird2"]);
        assert_eq!(missing(FOR_TESTS, |_| true), []);
    }

    #[test]
    fn a_held_lock_is_told_from_other_failures() {
        let held = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)\n";
        assert!(is_lock_held(held));
        assert!(!is_lock_held("E: Unable to locate package bird9\n"));
    }
}
