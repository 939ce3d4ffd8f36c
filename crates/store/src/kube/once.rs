//! Warnings that are given once, however often there is a reason: the same objects are listed again and again.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// As many are remembered. Whoever can make endless different ones must not use up our memory.
const REMEMBERED: usize = 1_000;

static GIVEN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Logs a warning that has not been logged before.
pub(super) fn warn(text: String) {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if is_new(&mut given, &text) {
        tracing::warn!("{text}");
    } else {
        tracing::debug!("{text}");
    }
}

fn is_new(given: &mut HashSet<String>, text: &str) -> bool {
    if given.contains(text) {
        return false;
    }
    if given.len() >= REMEMBERED {
        given.clear();
    }
    given.insert(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_given_once_until_there_are_too_many() {
        let mut given = HashSet::new();
        assert!(is_new(&mut given, "a") && !is_new(&mut given, "a") && is_new(&mut given, "b"));
        for number in 0..REMEMBERED {
            is_new(&mut given, &number.to_string());
        }
        assert!(given.len() <= REMEMBERED && is_new(&mut given, "a"));
    }
}
