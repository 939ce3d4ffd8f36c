//! Kernel settings below `/proc/sys`, of the calling thread's namespace.

use std::fs;
use std::path::PathBuf;

use plan::Sysctl;

use crate::HostError;

pub(crate) fn read(path: &str) -> Result<String, HostError> {
    fs::read_to_string(file(path))
        .map(|text| text.trim_end().to_owned())
        .map_err(|source| HostError::Sysctl { verb: "read", path: path.to_owned(), source })
}

/// Those of `wanted` that can be read, as they are now.
pub(crate) fn read_all(wanted: &[&Sysctl]) -> Vec<Sysctl> {
    let read_one = |sysctl: &&Sysctl| {
        let value = read(&sysctl.path).ok()?;
        Some(Sysctl { path: sysctl.path.clone(), value })
    };
    wanted.iter().filter_map(read_one).collect()
}

pub(crate) fn write(sysctl: &Sysctl) -> Result<(), HostError> {
    fs::write(file(&sysctl.path), &sysctl.value).map_err(|source| HostError::Sysctl {
        verb: "write",
        path: sysctl.path.clone(),
        source,
    })
}

fn file(path: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(path)
}
