//! A named network namespace that goes away with its owner.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use host::NetNs;

use crate::name::RunName;

pub(crate) const NAMESPACES: &str = "/run/netns";

#[derive(Debug)]
pub struct Namespace {
    name: String,
    path: PathBuf,
}

impl Namespace {
    pub(crate) fn create(name: String) -> Result<Namespace> {
        ip(&["netns", "add", &name])?;
        let path = Path::new(NAMESPACES).join(&name);
        let namespace = Namespace { name, path };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `act` inside, on a thread of its own. A process started there lives there.
    pub fn visit<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(NetNs::open(&self.path)?.visit(act)?)
    }

    /// Runs a program inside and waits for it.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Result<Output> {
        self.visit(|| Command::new(program).args(arguments).output())?
            .with_context(|| format!("cannot run {}", program.display()))
    }

    /// `ip` inside; what it printed.
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments);
        ip(&all)
    }

    /// Whether `address` answers a ping from inside.
    pub fn can_ping(&self, address: &str) -> Result<bool> {
        let output = self.run(Path::new("ping"), &["-n", "-c", "1", "-W", "5", address])?;
        Ok(output.status.success())
    }

    /// Removes the namespace now, as a runtime does before its last DEL.
    pub fn delete(&self) -> Result<()> {
        ip(&["netns", "del", &self.name]).map(|_| ())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = self.delete()
        {
            eprintln!("lab: namespace {} was not removed: {error:#}", self.name);
        }
    }
}

/// Removes the namespaces of runs that are no more.
pub(crate) fn remove_stale() -> Result<()> {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return Ok(()) };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_stale = RunName::of_thing(&name).is_some_and(|run| !run.is_alive());
        // Another run may be cleaning up at the same time.
        if is_stale && ip(&["netns", "del", &name]).is_err() && entry.path().exists() {
            eprintln!("lab: namespace {name} of an earlier run was not removed");
        }
    }
    Ok(())
}

pub(crate) fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
