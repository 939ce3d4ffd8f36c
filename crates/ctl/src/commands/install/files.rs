//! Files that must be there, each put in place whole: a reader or a program that runs sees the old one or the new one.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) path: PathBuf,
    mode: u32,
    content: Content,
    existing: Existing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    /// A link, by what it says.
    Link(PathBuf),
}

/// What becomes of a file that is there and differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existing {
    IsReplaced,
    /// Somebody made it his own.
    IsKept,
}

impl Existing {
    pub(super) fn kept_unless(is_to_be_replaced: bool) -> Existing {
        if is_to_be_replaced { Existing::IsReplaced } else { Existing::IsKept }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Installed,
    Replaced,
    UpToDate,
    Kept,
}

impl Item {
    pub(super) fn new(path: PathBuf, mode: u32, content: Content) -> Item {
        Item { path, mode, content, existing: Existing::IsReplaced }
    }

    pub(super) fn or_kept(self, existing: Existing) -> Item {
        Item { existing, ..self }
    }

    /// What would be done.
    pub(super) fn compare(&self) -> Result<Outcome, Failure> {
        let Ok(metadata) = fs::symlink_metadata(&self.path) else { return Ok(Outcome::Installed) };
        let is_same = match &self.content {
            Content::Link(target) => fs::read_link(&self.path).is_ok_and(|found| found == *target),
            Content::Text(text) => {
                let has_mode = metadata.permissions().mode() & 0o7777 == self.mode;
                metadata.is_file() && has_mode && self.holds(text)?
            }
        };
        Ok(match (is_same, self.existing) {
            (true, _) => Outcome::UpToDate,
            (false, Existing::IsReplaced) => Outcome::Replaced,
            (false, Existing::IsKept) => Outcome::Kept,
        })
    }

    pub(super) fn put_in_place(&self) -> Result<Outcome, Failure> {
        let outcome = self.compare()?;
        if matches!(outcome, Outcome::Installed | Outcome::Replaced) {
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder)
                .and_then(|()| self.write(folder))
                .map_err(|error| self.failure("install", &error))?;
        }
        Ok(outcome)
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // Runtimes pass over names that begin with a dot.
        let beside = folder.join(format!(".{name}.{}.new", std::process::id()));
        // An installation that was killed may have left one.
        let _ = fs::remove_file(&beside);
        let placed = self.write_beside(&beside).and_then(|()| fs::rename(&beside, &self.path));
        if placed.is_err() {
            let _ = fs::remove_file(&beside);
        }
        placed?;
        File::open(folder)?.sync_all()
    }

    fn write_beside(&self, beside: &Path) -> std::io::Result<()> {
        match &self.content {
            Content::Link(target) => symlink(target, beside),
            Content::Text(text) => {
                // Never readable by others on the way: whoever opens it then reads on.
                let mut file = File::options().write(true).create_new(true).mode(0o600).open(beside)?;
                file.set_permissions(Permissions::from_mode(self.mode))?;
                file.write_all(text)?;
                file.sync_all()
            }
        }
    }

    fn holds(&self, text: &[u8]) -> Result<bool, Failure> {
        fs::read(&self.path).map(|found| found == text).map_err(|error| self.failure("read", &error))
    }

    fn failure(&self, verb: &str, error: &std::io::Error) -> Failure {
        let failure = Failure::new(format!("cannot {verb} {}", self.path.display())).caused_by(error);
        let is_forbidden = error.kind() == std::io::ErrorKind::PermissionDenied;
        failure.maybe_hint(
            is_forbidden.then_some("installing on a node needs root; --root DIR installs elsewhere"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: PathBuf, content: &str) -> Item {
        Item::new(path, 0o640, Content::Text(content.as_bytes().to_vec()))
    }

    #[test]
    fn a_file_is_installed_once_and_replaced_when_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        assert_eq!(text(path.clone(), "1").compare().unwrap(), Outcome::Installed);
        assert!(!path.exists());
        for (content, outcome) in [
            ("1", Outcome::Installed),
            ("1", Outcome::UpToDate),
            ("2", Outcome::Replaced),
            ("2", Outcome::UpToDate),
        ] {
            assert_eq!(text(path.clone(), content).put_in_place().unwrap(), outcome);
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(text(path.clone(), "2").put_in_place().unwrap(), Outcome::Replaced);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_somebody_made_his_own_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "theirs").unwrap();
        let item = text(path.clone(), "ours").or_kept(Existing::IsKept);
        assert_eq!(item.put_in_place().unwrap(), Outcome::Kept);
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    }

    #[test]
    fn a_link_takes_the_place_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("link");
        fs::write(&path, "a file").unwrap();
        let item = Item::new(path.clone(), 0o777, Content::Link("target".into()));
        assert_eq!(item.put_in_place().unwrap(), Outcome::Replaced);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("target"));
        assert_eq!(item.put_in_place().unwrap(), Outcome::UpToDate);
    }

    #[test]
    fn a_folder_in_the_way_is_an_error_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::create_dir(&path).unwrap();
        assert!(text(path.clone(), "x").put_in_place().is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
