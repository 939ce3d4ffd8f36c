//! Makes a new database so that nobody ever sees half of one: under another name first, then renamed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, RenameFlags};

use super::error::Trouble;
use super::identity::{set_leftovers_aside, turn};
use super::schema;

/// What a crash in the middle left behind is this old when it is cleared away.
const LEFTOVER_AGE_MIN: Duration = Duration::from_secs(600);

/// Makes the database at `path`, readable for its owner only, and its directory if that alone is missing. If another
/// process makes it at the same time, theirs stays.
pub(super) fn create(path: &Path) -> Result<(), Trouble> {
    let directory = path.parent().ok_or_else(|| Trouble::new("is not the path of a file"))?;
    let name = path.file_name().ok_or_else(|| Trouble::new("is not the path of a file"))?;
    ensure_directory(directory)?;
    let mut prefix = OsString::from(".");
    prefix.push(name);
    prefix.push(".new-");
    clear_leftovers(directory, &prefix);

    let draft = draft_path(directory, &prefix);
    let made = make(&draft).and_then(|()| put_in_place(&draft, path));
    if made.is_err() {
        let _ = fs::remove_file(&draft);
    }
    made?;
    // The new name must survive a power cut, too.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Trouble::io("cannot make the new file durable", &error))
}

fn ensure_directory(directory: &Path) -> Result<(), Trouble> {
    if directory.is_dir() {
        return Ok(());
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = directory.parent().unwrap_or(directory);
            Err(Trouble::new(format!("the directory {} does not exist", parent.display()))
                .with_hint("is the path right? Only its last directory is created automatically"))
        }
        Err(error) => {
            let problem = format!("the directory {} cannot be made", directory.display());
            Err(Trouble::io(problem, &error))
        }
    }
}

/// A number of this process would not do: in another container another process has the same one.
fn draft_path(directory: &Path, prefix: &OsString) -> PathBuf {
    let mut name = prefix.clone();
    name.push(uuid::Uuid::new_v4().simple().to_string());
    directory.join(name)
}

fn make(draft: &Path) -> Result<(), Trouble> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft);
    drop(file.map_err(|error| Trouble::io("cannot be created", &error))?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(draft, flags)?;
    schema::prepare(&mut connection)?;
    connection.close().map_err(|(_, error)| Trouble::from(error))
}

fn put_in_place(draft: &Path, path: &Path) -> Result<(), Trouble> {
    // Whoever is faster opens the new database at once: its log must not be taken for one that was left behind.
    let _turn = turn(path)?;
    if !path.exists() {
        set_leftovers_aside(path)?;
    }
    match rustix::fs::renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => {
            let _ = fs::remove_file(draft);
            Ok(())
        }
        Err(error) => Err(Trouble::io("cannot be created", &error.into())),
    }
}

fn clear_leftovers(directory: &Path, prefix: &OsString) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_draft = name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
        let is_old = || {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > LEFTOVER_AGE_MIN))
        };
        if is_draft && is_old() {
            let _ = fs::remove_file(entry.path());
        }
    }
}
