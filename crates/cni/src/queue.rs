//! DELs that no agent took: one file each, synced to disk before the plugin reports success. The agent runs them when it is back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use wire::{Call, QUEUE_DIR, STATE_DIR};

use crate::failpoint;
use crate::request::setting;

/// The queue of this network's agent.
pub(crate) fn directory(netconf: &Value) -> PathBuf {
    Path::new(setting(netconf, "state_dir").unwrap_or(STATE_DIR)).join(QUEUE_DIR)
}

/// Queues a call. When this returns, it survives a power failure.
pub(crate) fn add(directory: &Path, call: &Call) -> io::Result<()> {
    failpoint::hit("cni.before-queue");
    let created = missing(directory);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let text = call.encode();
    let name = wire::queue_name(&text);
    let temporary = directory.join(format!("{name}.{}.tmp", std::process::id()));
    let file = directory.join(format!("{name}.json"));
    let mut written = write(&temporary, &file, &text);
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        // The agent removed the temporary file as stale before it was locked.
        written = write(&temporary, &file, &text);
    }
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(directory)?.sync_all()?;
    // The entry of a new directory is in its parent.
    for parent in created.iter().filter_map(|new| new.parent()) {
        File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()?;
    }
    failpoint::hit("cni.queue-synced");
    Ok(())
}

/// The directory and its parents, as far as they do not exist yet.
fn missing(directory: &Path) -> Vec<PathBuf> {
    directory.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect()
}

fn write(temporary: &Path, file: &Path, content: &[u8]) -> io::Result<()> {
    let mut written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    // The agent removes temporary files that are not locked. On a file system without locks it removes none.
    let _ = written.lock();
    written.write_all(content)?;
    written.sync_all()?;
    failpoint::hit("cni.queue-written");
    fs::rename(temporary, file)?;
    failpoint::hit("cni.queue-renamed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_directory_is_the_agents() {
        assert_eq!(directory(&json!({})), Path::new("/var/lib/plumb/queue"));
        assert_eq!(directory(&json!({"state_dir": ""})), Path::new("/var/lib/plumb/queue"));
        assert_eq!(directory(&json!({"state_dir": "/x"})), Path::new("/x/queue"));
    }

    #[test]
    fn a_repeated_del_is_queued_once() {
        let state = std::env::temp_dir().join(format!("plumb-cni-queue-{}", std::process::id()));
        let directory = state.join("queue");
        for config in ["{}", "{}", "{\"a\":1}"] {
            let call = Call::new(wire::Role::Network, [], config);
            add(&directory, &call).unwrap();
            let name = wire::queue_name(&call.encode()) + ".json";
            assert_eq!(fs::read(directory.join(name)).unwrap(), call.encode());
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn an_unwritable_directory_is_an_error() {
        let call = Call::new(wire::Role::Network, [], "{}");
        assert!(add(Path::new("/dev/null/queue"), &call).is_err());
    }
}
