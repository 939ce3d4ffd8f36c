//! Removes a lab, whole or half made, by what carries its name: no memory of what was made is needed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::wait::PATIENCE;
use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::LabName;
use super::place::Place;
use crate::namespace::{NAMESPACES, ip};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub processes: usize,
    pub namespaces: usize,
    pub folder: bool,
}

impl Removed {
    pub fn is_nothing(&self) -> bool {
        *self == Removed::default()
    }
}

/// Removes everything of a lab. There may be nothing.
pub fn down(name: &LabName) -> Result<Removed> {
    let place = Place::of(name);
    let _lock = place.lock()?;
    let removed = remove_locked(name, &place)?;
    place.remove_lock();
    Ok(removed)
}

/// Removes the labs whose processes made them for themselves and are no more.
pub fn remove_abandoned() -> Result<()> {
    let mut names = super::place::names();
    names.extend(namespaces().iter().filter_map(|namespace| owner(namespace)));
    names.retain(LabName::is_abandoned);
    names.sort();
    names.dedup();
    names.iter().try_for_each(|name| down(name).map(|_| ()))
}

/// With the lab's lock held.
pub(super) fn remove_locked(name: &LabName, place: &Place) -> Result<Removed> {
    let namespaces: Vec<String> =
        namespaces().into_iter().filter(|namespace| name.owns_namespace(namespace)).collect();
    let mut removed = Removed { folder: place.folder().exists(), ..Removed::default() };
    // First all processes, then the namespaces: those of pods and everything that is mounted go with the former.
    removed.processes = kill_inhabitants(&namespaces)?;
    for namespace in &namespaces {
        // Another `down` of a killed process may have been at it.
        let result = ip(&["netns", "del", namespace]);
        if Path::new(NAMESPACES).join(namespace).exists() {
            result?;
        }
        removed.namespaces += 1;
    }
    place.remove()?;
    Ok(removed)
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn owner(namespace: &str) -> Option<LabName> {
    let mut parts = namespace.strip_prefix("plumb-lab.")?.splitn(2, '.');
    parts.next()?.parse().ok()
}

/// Kills whoever lives in one of the namespaces. The first process of a node takes all others of the node with it,
/// also those that live in the namespaces of pods.
fn kill_inhabitants(namespaces: &[String]) -> Result<usize> {
    let identities: Vec<(u64, u64)> =
        namespaces.iter().filter_map(|name| identity(&Path::new(NAMESPACES).join(name))).collect();
    let deadline = Instant::now() + PATIENCE;
    let mut killed = std::collections::BTreeSet::new();
    loop {
        let inhabitants = inhabitants(&identities);
        if inhabitants.is_empty() {
            return Ok(killed.len());
        }
        if Instant::now() > deadline {
            bail!("processes {inhabitants:?} of the lab do not end");
        }
        for process in inhabitants {
            killed.insert(process);
            if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                // It may be gone by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One that has ended and that nobody has collected yet has no namespace any more.
fn inhabitants(identities: &[(u64, u64)]) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    let lives_there = |process: &u32| {
        identity(Path::new(&format!("/proc/{process}/ns/net"))).is_some_and(|net| identities.contains(&net))
    };
    processes.filter(|process| *process != own && lives_there(process)).collect()
}

pub(super) fn identity(namespace: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(namespace).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_lab() {
        assert_eq!(owner("plumb-lab.a-b.node1").unwrap().as_str(), "a-b");
        assert_eq!(owner("plumb-lab"), None);
        assert_eq!(owner("other.a.b"), None);
    }
}
