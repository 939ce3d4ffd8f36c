//! DELs that nobody could take: one file each, on disk before the runtime hears of success. The agent works them
//! off when it is back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failpoint;
use crate::request::{Request, setting};

const STATE_FOLDER: &str = "/var/lib/plumb";
const QUEUE: &str = "queue";

/// Where the agent of this network looks for them.
pub(crate) fn folder(netconf: &Value) -> PathBuf {
    Path::new(setting(netconf, "state_dir").unwrap_or(STATE_FOLDER)).join(QUEUE)
}

/// Keeps a request. When this returns, it survives a crash of the machine.
pub(crate) fn keep(folder: &Path, request: &Request) -> io::Result<()> {
    failpoint::hit("cni.before-queue");
    let made = missing(folder);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let text = request.text();
    // The same request again gets the same name: repeating a DEL does not fill the disk.
    let name = format!("del-{:016x}", fingerprint(text.as_bytes()));
    let unfinished = folder.join(format!("{name}.{}.tmp", std::process::id()));
    let place = folder.join(format!("{name}.json"));
    let mut written = put(&unfinished, &place, text.as_bytes());
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        // The agent took it for abandoned in the moment before it was locked.
        written = put(&unfinished, &place, text.as_bytes());
    }
    if written.is_err() {
        // What remains says nothing of why it failed, and would be in the way of nothing.
        let _ = fs::remove_file(&unfinished);
    }
    written?;
    File::open(folder)?.sync_all()?;
    // A folder that is new is kept by the one that it lies in.
    for parent in made.iter().filter_map(|new| new.parent()) {
        File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()?;
    }
    failpoint::hit("cni.queue-synced");
    Ok(())
}

/// Those of the folders of a path that are not there yet.
fn missing(folder: &Path) -> Vec<PathBuf> {
    folder.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect()
}

fn put(unfinished: &Path, place: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(unfinished)?;
    // Tells the agent, which removes what killed writers leave, that this one is at work. Where a file system has no
    // locks, it removes nothing.
    let _ = file.lock();
    file.write_all(content)?;
    file.sync_all()?;
    failpoint::hit("cni.queue-written");
    fs::rename(unfinished, place)?;
    failpoint::hit("cni.queue-renamed");
    Ok(())
}

/// FNV-1a: good enough to tell requests of one node apart.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Role;

    #[test]
    fn the_folder_is_the_agents() {
        assert_eq!(folder(&json!({})), Path::new("/var/lib/plumb/queue"));
        assert_eq!(folder(&json!({"state_dir": ""})), Path::new("/var/lib/plumb/queue"));
        assert_eq!(folder(&json!({"state_dir": "/x"})), Path::new("/x/queue"));
    }

    #[test]
    fn a_request_is_kept_once() {
        let state = std::env::temp_dir().join(format!("plumb-cni-queue-{}", std::process::id()));
        let folder = state.join("queue");
        for config in [&b"{}"[..], b"{}", b"{\"a\":1}"] {
            let request = Request::of_process(Role::Network, config).unwrap();
            keep(&folder, &request).unwrap();
            let name = format!("del-{:016x}.json", fingerprint(request.text().as_bytes()));
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), request.text());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        let request = Request::of_process(Role::Network, b"{}").unwrap();
        assert!(keep(Path::new("/dev/null/queue"), &request).is_err());
    }
}
