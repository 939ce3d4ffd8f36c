//! Files that are whole or not there, and the ends of logs.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Puts a file in place of what was there; whoever reads meanwhile sees the one or the other.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
