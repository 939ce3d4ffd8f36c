//! A tree of files, and tar archives of it that are the same whenever and wherever they are written.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Archive, Builder, EntryType, Header};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: String },
}

/// By their paths without the first slash, so that a directory comes before what is in it.
pub(super) type Tree = BTreeMap<String, Entry>;

pub(super) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub(super) fn sha1(bytes: &[u8]) -> String {
    hexadecimal(&sha1::Sha1::digest(bytes))
}

fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn read_tar(bytes: &[u8]) -> Result<Tree> {
    let mut tree = Tree::new();
    for entry in Archive::new(bytes).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().trim_start_matches("./").trim_end_matches('/').to_owned();
        if path.is_empty() {
            continue;
        }
        let mode = entry.header().mode()?;
        let found = match entry.header().entry_type() {
            EntryType::Directory => Entry::Directory { mode },
            EntryType::Symlink => {
                let target = entry.link_name()?.context("a link has a target")?;
                Entry::Link { target: target.to_string_lossy().into_owned() }
            }
            EntryType::Regular => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                Entry::File { mode, content }
            }
            // Devices and the like: no package that we use has any.
            _ => continue,
        };
        tree.insert(path, found);
    }
    Ok(tree)
}

/// Every file is root's and of the same moment.
pub(super) fn write_tar(tree: &Tree) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, entry) in tree {
        let mut header = Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match entry {
            Entry::Directory { mode } => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(*mode);
                header.set_size(0);
                builder.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Entry::File { mode, content } => {
                header.set_entry_type(EntryType::Regular);
                header.set_mode(*mode);
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_slice())?;
            }
            Entry::Link { target } => {
                header.set_entry_type(EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                builder.append_link(&mut header, path, target)?;
            }
        }
    }
    Ok(builder.into_inner()?)
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
