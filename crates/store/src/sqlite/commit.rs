//! Commits, inside a transaction that the caller has begun: preconditions, writes, and forgetting old history.

use rusqlite::{Connection, params};

use super::History;
use super::read::{Standing, Stored, history_id, revision_of, stored};
use crate::request::check_precondition;
use crate::{Change, Committed, MAX_CHANGES, StoreError, Write};

/// Makes the changes of one commit, all or none. The outer error is the database's: the transaction is lost. The
/// inner one is a refusal: nothing was written.
pub(super) fn apply(
    connection: &Connection,
    standing: &mut Standing,
    changes: &[Change],
) -> rusqlite::Result<Result<Committed, StoreError>> {
    let mut found = Vec::with_capacity(changes.len());
    for change in changes {
        let text = change.key.etcd_text();
        let current = stored(connection, &text)?;
        let record = current.clone().map(|stored| stored.record(change.key.clone()));
        if let Err(refusal) = check_precondition(change, record) {
            return Ok(Err(refusal));
        }
        found.push((text, current));
    }
    if changes.iter().any(|change| change.write != Write::Nothing) {
        standing.revision = standing.revision.saturating_add(1);
    }
    for (position, (change, (text, before))) in changes.iter().zip(found).enumerate() {
        if change.write == Write::Nothing {
            continue;
        }
        let id = history_id(standing.revision, position);
        let size = history_size(&text, before.as_ref());
        standing.history_bytes = standing.history_bytes.saturating_add(size);
        remember(connection, id, &text, before)?;
        write(connection, &text, &change.write, standing.revision)?;
    }
    Ok(Ok(Committed { revisions: vec![standing.revision.into(); changes.len()] }))
}

/// Writes down where the store stands after the commits of this transaction, having forgotten what is too much.
pub(super) fn finish(
    connection: &Connection,
    mut standing: Standing,
    history: &History,
) -> rusqlite::Result<Standing> {
    trim(connection, &mut standing, history)?;
    connection
        .prepare_cached("UPDATE store SET revision = ?1, floor = ?2, history_bytes = ?3")?
        .execute(params![standing.revision, standing.floor, standing.history_bytes])?;
    Ok(standing)
}

fn remember(connection: &Connection, id: i64, key: &str, before: Option<Stored>) -> rusqlite::Result<()> {
    let (revision, value) = match &before {
        Some(stored) => (Some(stored.revision), Some(stored.value.as_ref())),
        None => (None, None),
    };
    connection
        .prepare_cached(
            "INSERT INTO history (id, key, before_revision, before_value) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![id, key, revision, value])?;
    Ok(())
}

fn write(connection: &Connection, key: &str, write: &Write, revision: i64) -> rusqlite::Result<()> {
    match write {
        Write::Put(value) => connection
            .prepare_cached("INSERT OR REPLACE INTO record (key, revision, value) VALUES (?1, ?2, ?3)")?
            .execute(params![key, revision, value.as_ref()])?,
        Write::Delete => connection.prepare_cached("DELETE FROM record WHERE key = ?1")?.execute([key])?,
        Write::Nothing => 0,
    };
    Ok(())
}

fn history_size(key: &str, before: Option<&Stored>) -> i64 {
    let size = key.len() + before.map_or(0, |stored| stored.value.len());
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// What is too much of the history.
struct Excess {
    /// Everything up to this revision.
    upto: i64,
    /// At least so many bytes.
    bytes: i64,
}

impl Excess {
    /// Some at a time: forgetting one commit with each new one would cost every commit.
    fn of(standing: &Standing, history: &History) -> Option<Excess> {
        let commits_max = i64::from(history.commits_max);
        let bytes_max = i64::try_from(history.bytes_max).unwrap_or(i64::MAX);
        let too_many =
            standing.revision.saturating_sub(standing.floor) > commits_max.saturating_add(commits_max / 64);
        let too_much = standing.history_bytes > bytes_max;
        (too_many || too_much).then(|| Excess {
            upto: if too_many { standing.revision - commits_max } else { standing.floor },
            bytes: if too_much { standing.history_bytes - bytes_max + bytes_max / 64 } else { 0 },
        })
    }
}

/// Forgets the oldest commits, each as a whole, if the history is too long or takes too much.
fn trim(connection: &Connection, standing: &mut Standing, history: &History) -> rusqlite::Result<()> {
    let Some(excess) = Excess::of(standing, history) else { return Ok(()) };
    let mut floor = excess.upto;
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(
        "SELECT id, length(CAST(key AS BLOB)) + ifnull(length(before_value), 0) FROM history ORDER BY id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let revision = revision_of(row.get(0)?);
        if revision > floor && bytes >= excess.bytes {
            break;
        }
        floor = floor.max(revision);
        bytes += row.get::<_, i64>(1)?;
    }
    connection
        .prepare_cached("DELETE FROM history WHERE id <= ?1")?
        .execute([history_id(floor, MAX_CHANGES)])?;
    standing.floor = floor;
    standing.history_bytes -= bytes;
    Ok(())
}
