//! Reading: single records, pages of lists at a revision, and the events since one. Each call runs inside one read
//! transaction, so all it sees is one moment.

use bytes::Bytes;
use model::{Key, KeyRange};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::request::interval;
use crate::{Continuation, Event, ListPage, ListRequest, Lookup, MAX_CHANGES, Record};

/// Where the store stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) revision: i64,
    /// What happened after this revision is known; what happened before may not be.
    pub(super) floor: i64,
    /// About how much the history takes.
    pub(super) history_bytes: i64,
}

impl Standing {
    pub(super) fn knows(&self, revision: i64) -> bool {
        (self.floor..=self.revision).contains(&revision)
    }
}

pub(super) fn standing(connection: &Connection) -> rusqlite::Result<Standing> {
    let mut statement = connection.prepare_cached("SELECT revision, floor, history_bytes FROM store")?;
    let standing = statement.query_row([], |row| {
        Ok(Standing { revision: row.get(0)?, floor: row.get(1)?, history_bytes: row.get(2)? })
    })?;
    // Whoever lists and then watches would never come to an end in a damaged file that says otherwise.
    if !(1..=standing.revision).contains(&standing.floor) {
        return Err(rusqlite::Error::IntegralValueOutOfRange(1, standing.floor));
    }
    Ok(standing)
}

/// A record's place in the table, without its key.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) revision: i64,
    pub(super) value: Bytes,
}

impl Stored {
    pub(super) fn record(self, key: Key) -> Record {
        Record { key, value: self.value, revision: self.revision.into() }
    }
}

pub(super) fn stored(connection: &Connection, key: &str) -> rusqlite::Result<Option<Stored>> {
    connection
        .prepare_cached("SELECT revision, value FROM record WHERE key = ?1")?
        .query_row([key], |row| Ok(Stored { revision: row.get(0)?, value: bytes(row, 1)? }))
        .optional()
}

/// The answers to several lookups, in order.
pub(super) fn all(connection: &Connection, lookups: &[Lookup]) -> rusqlite::Result<Vec<Vec<Record>>> {
    lookups.iter().map(|lookup| look_up(connection, lookup)).collect()
}

fn look_up(connection: &Connection, lookup: &Lookup) -> rusqlite::Result<Vec<Record>> {
    match lookup {
        Lookup::Record(key) => {
            let found = stored(connection, &key.etcd_text())?;
            Ok(found.map(|found| found.record(key.clone())).into_iter().collect())
        }
        Lookup::Range(range) => {
            let (first, end) = interval(range);
            let mut statement = connection.prepare_cached(PRESENT)?;
            let mut rows = statement.query(params![first, end])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                if let Some(key) = known_key(row, 0)? {
                    records.push(row_record(row, key)?);
                }
            }
            Ok(records)
        }
    }
}

/// One page, or `None` if the moment it is to show is forgotten.
pub(super) fn page(
    connection: &Connection,
    request: &ListRequest,
    moment: Option<i64>,
) -> rusqlite::Result<Option<ListPage>> {
    let standing = standing(connection)?;
    let moment = moment.unwrap_or(standing.revision);
    if !standing.knows(moment) {
        return Ok(None);
    }
    let (first, end) = interval(&request.range);
    let start = request.next.as_ref().map_or(first, Continuation::start);
    let mut statement;
    let mut rows = if moment == standing.revision {
        statement = connection.prepare_cached(PRESENT)?;
        statement.query(params![start, end])?
    } else {
        statement = connection.prepare_cached(PAST)?;
        statement.query(params![start, end, moment, history_id(moment, MAX_CHANGES)])?
    };
    let limit = request.limit.max(1);
    let mut records: Vec<Record> = Vec::new();
    let mut next = None;
    while let Some(row) = rows.next()? {
        let Some(key) = known_key(row, 0)? else { continue };
        if records.len() == limit {
            let last = records.last().map(|record| record.key.etcd_text()).unwrap_or_default();
            next = Some(Continuation { after: last, revision: moment.into() });
            break;
        }
        records.push(row_record(row, key)?);
    }
    Ok(Some(ListPage { records, revision: moment.into(), next }))
}

const PRESENT: &str = "SELECT key, revision, value FROM record WHERE key >= ?1 AND key < ?2 ORDER BY key";

/// What has not changed since, and what the first later change of a key found.
const PAST: &str = "
    SELECT key, revision, value FROM record WHERE key >= ?1 AND key < ?2 AND revision <= ?3
    UNION ALL
    SELECT key, before_revision, before_value FROM history AS later
    WHERE key >= ?1 AND key < ?2 AND id > ?4 AND before_revision IS NOT NULL
      AND NOT EXISTS (
          SELECT 1 FROM history AS earlier
          WHERE earlier.key = later.key AND earlier.id > ?4 AND earlier.id < later.id)
    ORDER BY 1";

/// What a watch has missed.
#[derive(Debug)]
pub(super) enum Since {
    /// Some of what it missed is forgotten.
    Gone,
    Changes {
        events: Vec<Event>,
        /// The last revision that these events cover: the newest, unless there is too much for one step.
        upto: i64,
        newest: i64,
    },
}

/// By the number alone: the plus signs keep SQLite from the index of keys, which it would go through for the whole range, however
/// little is new.
const AFTER: &str = "SELECT id, key FROM history WHERE id > ?1 AND +key >= ?2 AND +key < ?3 ORDER BY id";

/// The events of `range` after `position`, as whole commits, about as many as fit one step.
pub(super) fn since(connection: &Connection, range: &KeyRange, position: i64) -> rusqlite::Result<Since> {
    const EVENTS: usize = 256;
    const BYTES: usize = 4 * 1024 * 1024;
    let Standing { revision: newest, .. } = match standing(connection)? {
        standing if standing.knows(position) => standing,
        _ => return Ok(Since::Gone),
    };
    let (first, end) = interval(range);
    let mut statement = connection.prepare_cached(AFTER)?;
    let mut rows = statement.query(params![history_id(position, MAX_CHANGES), first, end])?;
    let mut events = Vec::new();
    let mut size = 0;
    let mut last = position;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let revision = revision_of(id);
        if revision != last && (events.len() >= EVENTS || size >= BYTES) {
            return Ok(Since::Changes { events, upto: last, newest });
        }
        last = revision;
        let Some(key) = known_key(row, 1)? else { continue };
        let event = match left_behind(connection, id, &key.etcd_text())? {
            Some(stored) => Event::Put(stored.record(key)),
            None => Event::Deleted { key, revision: revision.into() },
        };
        if let Event::Put(record) = &event {
            size += record.value.len();
        }
        events.push(event);
    }
    Ok(Since::Changes { events, upto: newest, newest })
}

/// What the change `id` wrote: what the next change of that key found, or else what is there now.
fn left_behind(connection: &Connection, id: i64, key: &str) -> rusqlite::Result<Option<Stored>> {
    let found = connection
        .prepare_cached(
            "SELECT before_revision, before_value FROM history WHERE key = ?1 AND id > ?2 ORDER BY id LIMIT 1",
        )?
        .query_row(params![key, id], |row| match row.get(0)? {
            Some(revision) => Ok(Some(Stored { revision, value: bytes(row, 1)? })),
            None => Ok(None),
        })
        .optional()?;
    match found {
        Some(stored) => Ok(stored),
        None => stored(connection, key),
    }
}

/// Changes are numbered so that those of one commit follow one another and a revision's first and last numbers can
/// be told without looking. `position` counts from zero; `MAX_CHANGES` is past the last of a commit.
pub(super) fn history_id(revision: i64, position: usize) -> i64 {
    const { assert!(MAX_CHANGES < 256) };
    // Saturating, because a damaged file may hold any number.
    revision.saturating_mul(256).saturating_add(i64::try_from(position).unwrap_or(255))
}

pub(super) fn revision_of(id: i64) -> i64 {
    id / 256
}

/// The key in a column, if it is one of ours.
fn known_key(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Key>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(text) => {
            std::str::from_utf8(text).ok().and_then(|text| Key::from_etcd_text(text).ok())
        }
        _ => None,
    })
}

/// The record in a row of `PRESENT` or `PAST`.
fn row_record(row: &Row<'_>, key: Key) -> rusqlite::Result<Record> {
    Ok(Stored { revision: row.get(1)?, value: bytes(row, 2)? }.record(key))
}

fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Bytes> {
    Ok(Bytes::copy_from_slice(row.get_ref(column)?.as_blob()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a watch reads costs as much as is new, not as much as there is.
    #[test]
    fn news_are_found_by_their_number() {
        let mut connection = Connection::open_in_memory().unwrap();
        super::super::schema::prepare(&mut connection).unwrap();
        let plan = |query: &str| -> String {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let rows = statement.query_map(params![1, "/a", "/b"], |row| row.get::<_, String>(3)).unwrap();
            rows.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("; ")
        };
        assert_eq!(plan(AFTER), "SEARCH history USING INTEGER PRIMARY KEY (rowid>?)");
    }
}
