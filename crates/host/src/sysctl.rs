//! Kernel settings below `/proc/sys`, of the calling thread's namespace.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;

use plan::Sysctl;

use crate::HostError;

pub(crate) fn read(path: &str) -> Result<String, HostError> {
    read_file(path).map(|text| text.trim_end().to_owned()).map_err(|source| HostError::Sysctl {
        verb: "read",
        path: path.to_owned(),
        source,
    })
}

/// In one read: the kernel gives a setting as a whole, and has no size to ask for beforehand.
fn read_file(path: &str) -> io::Result<String> {
    let mut text = [0; 256];
    let length = File::open(file(path))?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
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
