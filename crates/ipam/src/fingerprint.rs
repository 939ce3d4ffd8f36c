//! Long texts that begin alike, told apart by a number.

use std::hash::Hasher as _;

/// FNV-1a, 64 bits: for sorting and finding. Equal numbers do not prove equal texts.
pub fn fingerprint(text: &str) -> u64 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}
