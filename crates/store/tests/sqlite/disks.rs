//! Disks that are full or cannot be written. Each test runs itself again in a mount namespace of its own, or without
//! the right to pass over permissions, so that it works for root, too.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use model::KeyRange;
use store::{OpenMode, SqliteStore};

use super::*;

/// Runs a test again with `setup` done in a mount namespace of its own; says why if that is not possible.
fn in_own_mounts(test: &str, path: &Path, setup: &str) {
    let script = format!("{setup} && exec \"$@\"");
    let through = ["unshare", "--mount", "--", "sh", "-c", &script, "sh"];
    let possible = Command::new("unshare").args(["--mount", "--", "true"]).output();
    match possible {
        Ok(output) if output.status.success() => play(test, path, &through),
        _ => testkit::skip(test, "no mount namespaces here (needs root and unshare)"),
    }
}

/// Runs a test again as a user who must respect permissions, even if it is root's.
fn without_override(test: &str, path: &Path) {
    let capabilities = "-dac_override,-dac_read_search,-fowner";
    let through = ["setpriv", "--bounding-set", capabilities, "--"];
    let possible = Command::new(through[0]).args(&through[1..]).arg("true").output();
    match possible {
        Ok(output) if output.status.success() => play(test, path, &through),
        _ => testkit::skip(test, "cannot give up capabilities here (needs root and setpriv)"),
    }
}

/// Where the test runs inside the circumstances it asked for; `None` before.
fn role() -> Option<PathBuf> {
    testkit::role().map(|role| role.argument.into())
}

fn refusal(path: &Path, mode: OpenMode) -> (String, String) {
    storage_error(SqliteStore::open(path, mode).expect_err("the file is refused"))
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_is_survived() {
    const TEST: &str = "file::disks::a_full_disk_changes_nothing_and_is_survived";
    let Some(directory) = role() else {
        let scratch = Scratch::new();
        let setup = format!("mount -t tmpfs -o size=1m plumb-store-test '{}'", scratch.path("").display());
        return in_own_mounts(TEST, &scratch.path(""), &setup);
    };
    let ballast = directory.join("ballast");
    fs::write(&ballast, vec![0; 300 * 1024]).unwrap();
    let path = directory.join("plumb.db");
    let store = open(&path, OpenMode::CreateIfMissing);
    let mut made = 0;
    let refused = loop {
        let pair = ["a", "b"]
            .map(|part| store::Change::create(handle(format!("h{made:04}{part}")), vec![b'x'; 3000]));
        match store.commit(pair.to_vec()).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    let (problem, hint) = storage_error(refused);
    assert_eq!(problem, "no space left on the disk");
    assert!(hint.contains("free some space"), "{hint}");
    assert_eq!(storage_error(store.probe().await.unwrap_err()).0, "no space left on the disk");
    let (records, _) = store.list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(records.len(), made * 2, "what was refused left nothing, what was acknowledged is there");
    assert!(made > 10, "there was room for some");

    // A second store cannot even be made; nothing half-made is left.
    let (problem, _) = refusal(&directory.join("other.db"), OpenMode::CreateIfMissing);
    assert_eq!(problem, "no space left on the disk");
    let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("other")));

    fs::remove_file(&ballast).unwrap();
    store.probe().await.unwrap();
    store.create(handle("after"), b"x".to_vec()).await.unwrap();
    drop(store);
    let verdict: String = raw(&path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let (records, _) = open(&path, OpenMode::Existing).list_all(KeyRange::Handles).await.unwrap();
    assert_eq!(records.len(), made * 2 + 1);
}

#[tokio::test]
async fn a_read_only_file_system_can_be_read() {
    const TEST: &str = "file::disks::a_read_only_file_system_can_be_read";
    let Some(path) = role() else {
        let scratch = Scratch::new();
        let store = open(&scratch.db(), OpenMode::CreateIfMissing);
        store.create(handle("h"), b"x".to_vec()).await.unwrap();
        drop(store);
        let directory = scratch.path("");
        let mount =
            format!("mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}'", directory.display());
        return in_own_mounts(TEST, &scratch.db(), &mount);
    };
    for mode in [OpenMode::CreateIfMissing, OpenMode::Existing] {
        let (problem, _) = refusal(&path, mode);
        assert!(problem.contains("read-only"), "{mode:?}: {problem}");
    }
    let refused = SqliteStore::open(path.with_file_name("new.db"), OpenMode::CreateIfMissing).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("Read-only file system"), "{refused}: {cause}");
    assert!(!refused.to_string().contains(&cause), "{refused} repeats its cause");

    let store = open(&path, OpenMode::ReadOnly);
    let (records, revision) = store.list_all(KeyRange::Everything).await.unwrap();
    assert_eq!(records.len(), 1);
    store.watch(KeyRange::Everything, revision).await.unwrap();
}

/// The log of a writer that was killed holds commits that are not in the file yet. They must not be overlooked.
#[tokio::test]
async fn a_log_on_a_read_only_file_system_is_not_overlooked() {
    const TEST: &str = "file::disks::a_log_on_a_read_only_file_system_is_not_overlooked";
    let Some(path) = role() else {
        let scratch = Scratch::new();
        let store = open(&scratch.db(), OpenMode::CreateIfMissing);
        store.create(handle("h"), b"x".to_vec()).await.unwrap();
        for (directory, suffixes) in [("both", ["", "-wal", "-shm"].as_slice()), ("log", &["", "-wal"])] {
            fs::create_dir(scratch.path(directory)).unwrap();
            for suffix in suffixes {
                let name = format!("plumb.db{suffix}");
                fs::copy(scratch.path(&name), scratch.path(directory).join(name)).unwrap();
            }
        }
        let directory = scratch.path("");
        let mount =
            format!("mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}'", directory.display());
        return in_own_mounts(TEST, &directory, &mount);
    };
    let store = open(&path.join("both/plumb.db"), OpenMode::ReadOnly);
    assert!(store.get(&handle("h")).await.unwrap().is_some());
    let (problem, hint) = refusal(&path.join("log/plumb.db"), OpenMode::ReadOnly);
    assert!(problem.contains("read-only"), "{problem}");
    assert!(!hint.is_empty());
}

#[test]
fn permissions_are_named() {
    const TEST: &str = "file::disks::permissions_are_named";
    let Some(directory) = role() else {
        let scratch = Scratch::new();
        for (name, file_mode, directory_mode) in
            [("file", 0o400, 0o700), ("directory", 0o600, 0o500), ("secret", 0o000, 0o700)]
        {
            let inside = scratch.path(name);
            drop(open(&inside.join("plumb.db"), OpenMode::CreateIfMissing));
            fs::set_permissions(inside.join("plumb.db"), fs::Permissions::from_mode(file_mode)).unwrap();
            fs::set_permissions(&inside, fs::Permissions::from_mode(directory_mode)).unwrap();
        }
        return without_override(TEST, &scratch.path(""));
    };
    let db = |name: &str| directory.join(name).join("plumb.db");
    for mode in [OpenMode::CreateIfMissing, OpenMode::Existing] {
        let (problem, _) = refusal(&db("file"), mode);
        assert_eq!(problem, "cannot be written: the file or its file system is read-only");
        let (problem, hint) = refusal(&db("directory"), mode);
        assert!(problem.ends_with("/directory is read-only"), "{problem}");
        assert!(!hint.is_empty());
        let (problem, hint) = refusal(&db("secret"), mode);
        assert_eq!(problem, "may not be read");
        assert!(hint.contains("root"), "{hint}");
    }
    let (problem, hint) = refusal(&directory.join("directory/new.db"), OpenMode::CreateIfMissing);
    assert_eq!(problem, "cannot be created", "the system's own words are the source's");
    assert!(hint.contains("root"), "{hint}");
    assert_eq!(refusal(&db("secret"), OpenMode::ReadOnly).0, "may not be read");
    SqliteStore::open(db("file"), OpenMode::ReadOnly).expect("a read-only file can be read");
}
