//! What is in the file: tables, the mark that it is ours, its version, and the way from older versions.

use rusqlite::{Connection, TransactionBehavior};

use super::error::Trouble;

/// "PLMB": tells our files from those of other programs.
const APPLICATION_ID: i32 = 0x504c_4d42;

/// Each step takes a file from the version of its index to the next.
const STEPS: [&str; 1] = [VERSION_1];

/// The version this program reads and writes.
const VERSION: i32 = STEPS.len() as i32;

/// * `record`: what is there now, under the keys of Calico's etcd layout. Lists read it in key order, so the rows lie
///   in the order of the key.
/// * `history`: one row per change, with what was there *before* it (nothing, if the change created the record). So
///   the oldest row of a key after some revision says what the key held at that revision, and what a change wrote
///   stands in the next row of the same key, or in `record`. `id` is [`super::read::history_id`].
/// * `store`: one row. `floor` is the revision after which the history is complete.
const VERSION_1: &str = "
    CREATE TABLE record (
        key TEXT NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE history (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        before_revision INTEGER,
        before_value BLOB
    ) STRICT;
    CREATE INDEX history_of_key ON history (key);
    CREATE TABLE store (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        revision INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        history_bytes INTEGER NOT NULL
    ) STRICT;
    INSERT INTO store VALUES (1, 1, 1, 0);
";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    Current,
    Older(i32),
    Nothing,
}

/// Checks that a database is ours and of a version we read.
pub(super) fn check(connection: &Connection) -> Result<(), Trouble> {
    match examine(connection)? {
        Contents::Current => Ok(()),
        Contents::Older(version) => {
            let hint = "open it once for writing: any command that changes a record brings it up to date";
            Err(Trouble::new(format!("has the older layout {version}")).with_hint(hint))
        }
        Contents::Nothing => Err(Trouble::new("is empty: no store was ever made here")),
    }
}

/// Persistent, and not possible inside a transaction. A copy made with `VACUUM INTO` has lost it.
pub(super) fn use_log(connection: &Connection) -> Result<(), Trouble> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        connection.pragma_update(None, "journal_mode", "wal")?;
    }
    Ok(())
}

/// Makes the tables in an empty database, or brings those of an older version up to date.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), Trouble> {
    let contents = examine(connection)?;
    use_log(connection)?;
    if contents == Contents::Current {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let done = match examine(&transaction)? {
        Contents::Current => return Ok(()),
        Contents::Older(version) => usize::try_from(version).unwrap_or(0),
        Contents::Nothing => 0,
    };
    for step in &STEPS[done..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

fn examine(connection: &Connection) -> Result<Contents, Trouble> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if objects == 0 => Ok(Contents::Nothing),
        (APPLICATION_ID, VERSION) => Ok(Contents::Current),
        (APPLICATION_ID, older) if (1..VERSION).contains(&older) => Ok(Contents::Older(older)),
        (APPLICATION_ID, newer) => Err(Trouble::new(format!(
            "was written by a newer version (layout {newer}; this program knows {VERSION})"
        ))
        .with_hint("use the newer version; the file is left as it is")),
        _ => Err(Trouble::new("is a database of another program").with_hint("is this the right path?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(connection: &mut Connection) -> String {
        prepare(connection).unwrap_err().at(std::path::Path::new("x")).to_string()
    }

    #[test]
    fn an_empty_database_is_made_ready_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection).unwrap();
        check(&connection).unwrap();
        prepare(&mut connection).unwrap();
    }

    #[test]
    fn other_programs_and_newer_versions_are_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert_eq!(problem(&mut connection), "x: is a database of another program");

        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&mut connection).unwrap();
        connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
        assert!(problem(&mut connection).contains("newer version (layout 2; this program knows 1)"));
        connection.pragma_update(None, "user_version", -5).unwrap();
        assert!(problem(&mut connection).contains("newer version"));
    }
}
