//! Directories for one test. A test that is killed cannot remove its own, so the next one does it.

use std::io;
use std::path::Path;

use tempfile::TempDir;

/// A new directory, named for its purpose and for this process; gone when dropped.
pub fn scratch(purpose: &str) -> io::Result<TempDir> {
    let prefix = format!("plumb-{purpose}-");
    remove_orphans(&std::env::temp_dir(), &prefix);
    tempfile::Builder::new().prefix(&format!("{prefix}{}-", std::process::id())).tempdir()
}

/// Removes what processes that are gone have left. What cannot be removed does no harm.
fn remove_orphans(parent: &Path, prefix: &str) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(prefix)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_owns_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this number: it is beyond what Linux gives out.
        let names =
            ["plumb-x-4194305-aa".to_owned(), format!("plumb-x-{}-bb", std::process::id()), "other".into()];
        for name in &names {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_orphans(parent.path(), "plumb-x-");
        let left = names.map(|name| parent.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn a_dropped_directory_is_gone() {
        let directory = scratch("scratch-test").unwrap();
        let path = directory.path().to_owned();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }
}
