//! What every backend refuses before it starts, and how a range is spelled as an interval of key texts.

use std::collections::BTreeSet;

use model::{Key, KeyRange};

use crate::{Change, Lookup, Precondition, Record, Revision, StoreError, Write};

/// The most changes one commit may hold: what etcd accepts in one transaction as it comes out of the box.
pub const MAX_CHANGES: usize = 128;

/// Refuses a commit that makes no sense to a store in which every record is its own, whatever is in it.
pub(crate) fn check_commit(changes: &[Change]) -> Result<(), StoreError> {
    if let Some(change) = changes.iter().find(|change| matches!(change.precondition, Precondition::Uid(_))) {
        return invalid(format!("{} is a record of its own here, not a view of an object", change.key));
    }
    check_commit_with_views(changes)
}

/// Refuses a commit that makes no sense to any store.
pub(crate) fn check_commit_with_views(changes: &[Change]) -> Result<(), StoreError> {
    if changes.len() > MAX_CHANGES {
        return invalid(format!("{} changes in one commit; at most {MAX_CHANGES} fit", changes.len()));
    }
    let mut seen = BTreeSet::new();
    for change in changes {
        let key = &change.key;
        check_key(key)?;
        if change.precondition == Precondition::Absent && change.write == Write::Delete {
            return invalid(format!("{key} is to be absent and to be deleted"));
        }
        if !seen.insert(key) {
            return invalid(format!("{key} occurs twice in one commit"));
        }
    }
    Ok(())
}

/// Refuses a key whose text would be read as another key, or as none: what lies there is not that record.
pub(crate) fn check_key(key: &Key) -> Result<(), StoreError> {
    if Key::from_etcd_text(&key.etcd_text()).as_ref() != Ok(key) {
        return invalid(format!("{key} cannot be spelled as a key"));
    }
    Ok(())
}

pub(crate) fn check_lookups(lookups: &[Lookup]) -> Result<(), StoreError> {
    lookups.iter().try_for_each(|lookup| match lookup {
        Lookup::Record(key) => check_key(key),
        Lookup::Range(_) => Ok(()),
    })
}

/// Holds a change against the record that is there, if there is one.
pub(crate) fn check_precondition(change: &Change, current: Option<Record>) -> Result<(), StoreError> {
    match (&change.precondition, current) {
        (Precondition::Absent, None) => Ok(()),
        (Precondition::Absent, Some(record)) => Err(StoreError::AlreadyExists { existing: Box::new(record) }),
        (Precondition::At(_) | Precondition::Uid(_), None) => {
            Err(StoreError::NotFound { key: change.key.clone() })
        }
        (Precondition::At(revision), Some(record)) if *revision == record.revision => Ok(()),
        (Precondition::At(_) | Precondition::Uid(_), Some(record)) => {
            Err(StoreError::Conflict { current: Box::new(record) })
        }
    }
}

/// The number a backend that counts gave out as this revision.
pub(crate) fn counted(revision: &Revision) -> Result<i64, StoreError> {
    match revision.number() {
        Some(number) => Ok(number),
        None => invalid(format!("{:?} is not a revision of this store", revision.as_str())),
    }
}

/// The key texts of a range: from the first, up to but not including the second.
pub(crate) fn interval(range: &KeyRange) -> (String, String) {
    let first = range.etcd_prefix();
    let end = prefix_end(&first);
    (first, end)
}

/// The first text after all those that start with `prefix`. Texts sort by code point, which for UTF-8 is the
/// same as by byte.
fn prefix_end(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            break;
        }
    }
    end
}

fn invalid<T>(problem: String) -> Result<T, StoreError> {
    Err(StoreError::Invalid { problem })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_prefix_skips_what_is_no_character() {
        assert_eq!(prefix_end("/calico/"), "/calico0");
        assert_eq!(prefix_end("a\u{d7ff}"), "a\u{e000}");
        assert_eq!(prefix_end("a\u{10ffff}\u{10ffff}"), "b");
    }

    proptest! {
        #[test]
        fn the_interval_holds_exactly_what_starts_with_the_prefix(prefix in "/\\PC{0,3}", text in "/\\PC{0,4}") {
            let inside = prefix.as_str() <= text.as_str() && text < prefix_end(&prefix);
            prop_assert_eq!(inside, text.starts_with(&prefix));
            let longer = format!("{prefix}{text}");
            prop_assert!(prefix <= longer && longer < prefix_end(&prefix));
        }
    }
}
