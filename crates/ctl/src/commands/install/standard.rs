//! The plugins of others that we ship for nodes that lack them, and which of those on the node are ours to replace and to remove.
//!
//! The list is a file in the state directory, as `sha256sum` writes one. A file whose content is not in the list is somebody else's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::files::{Content, Existing, Item};
use super::{below, read};
use crate::failure::Failure;

/// What a chain of plugins customarily has, and what container runtimes call themselves.
const NAMES: [&str; 3] = ["portmap", "bandwidth", "loopback"];
const LIST: &str = "standard-plugins";

#[derive(Debug)]
pub(in crate::commands) struct Standard {
    root: PathBuf,
    /// Content and path, as the node sees the path.
    ours: Vec<(String, PathBuf)>,
}

impl Standard {
    pub(in crate::commands) fn read(root: &Path) -> Result<Standard, Failure> {
        let mut standard = Standard { root: root.to_owned(), ours: Vec::new() };
        let path = standard.path();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text
                .map_err(|error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error))?,
        };
        let line = |line: &str| {
            let (sum, path) = line.split_once("  ")?;
            Some((sum.to_owned(), PathBuf::from(path)))
        };
        standard.ours = text.lines().filter_map(line).collect();
        Ok(standard)
    }

    pub(in crate::commands) fn path(&self) -> PathBuf {
        below(&self.root, &Path::new(wire::STATE_DIR).join(LIST))
    }

    /// Files of ours that are on the node as we put them there.
    pub(in crate::commands) fn installed(&self) -> Vec<PathBuf> {
        let paths = self.ours.iter().filter(|(sum, path)| self.sum_of(path).as_ref() == Some(sum));
        paths.map(|(_, path)| below(&self.root, path)).collect()
    }

    /// What of a directory goes to the node. Files of others stay. Notes which ones are ours now.
    pub(super) fn items(&mut self, source: &Path, cni_bin: &Path) -> Result<Vec<Item>, Failure> {
        self.ours.retain(|(sum, path)| Standard::sum(&below(&self.root, path)).as_ref() == Some(sum));
        let mut items = Vec::new();
        for name in NAMES {
            let (content, path) = (read(&source.join(name))?, cni_bin.join(name));
            let is_ours = |there: &String| self.ours.iter().any(|(sum, of)| sum == there && *of == path);
            let existing = match self.sum_of(&path) {
                Some(there) if !is_ours(&there) => Existing::IsKept,
                _ => {
                    self.ours.push((sha256(&content), path.clone()));
                    Existing::IsReplaced
                }
            };
            items.push(Item::new(below(&self.root, &path), 0o755, Content::Text(content)).or_kept(existing));
        }
        self.ours.sort();
        self.ours.dedup();
        Ok(items)
    }

    pub(super) fn write(&self) -> io::Result<()> {
        let text: String =
            self.ours.iter().map(|(sum, path)| format!("{sum}  {}\n", path.display())).collect();
        let (path, new) = (self.path(), self.path().with_extension("new"));
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&new, text)?;
        fs::File::open(&new)?.sync_all()?;
        fs::rename(new, path)
    }

    fn sum_of(&self, path: &Path) -> Option<String> {
        Standard::sum(&below(&self.root, path))
    }

    fn sum(path: &Path) -> Option<String> {
        fs::read(path).ok().map(|content| sha256(&content))
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}
