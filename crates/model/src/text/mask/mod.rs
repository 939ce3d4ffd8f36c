//! What looks like a secret is masked before anybody sees it.
//!
//! Goes by names (`password=…`, `"token": "…"`), by shapes (tokens in three parts, keys of clouds) and by blocks
//! (private keys). It rather masks too much: nothing that is diagnosed here is ever spelled like that.
//!
//! Each rule reads the line as it came, once from front to back, and says which parts of it to mask; only then they are put together. So
//! one secret cannot hide another, and the time grows with the length of the line alone.

mod keys;
mod names;
mod scan;
mod shapes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use keys::Keys;
use names::Names;
use scan::Scan;

pub use names::is_secret_name;

/// What stands in the place of a secret.
pub const MASK: &str = "[masked]";

/// What every name of a secret has in it, and schemes of authorization. A line without any of them is not looked at further, which
/// is nearly every line of a log.
const ROOTS: &[&[u8]] = &[
    b"pass", b"token", b"secret", b"key", b"cred", b"auth", b"psk", b"bearer", b"basic", b"cookie", b"docker",
];

/// Masks line by line; remembers whether it is inside a private key, or of what value the next line is a part.
#[derive(Debug, Default)]
pub(super) struct Masker {
    keys: Keys,
    names: Names,
}

impl Masker {
    pub(super) fn mask(&mut self, line: String) -> String {
        let scan = Scan::new(&line);
        match self.find(&scan) {
            masks if masks.is_empty() => line,
            masks => masked(&line, masks),
        }
    }

    fn find(&mut self, scan: &Scan<'_>) -> Vec<Range<usize>> {
        let mut masks = Vec::new();
        self.keys.find(scan, &mut masks);
        self.names.follow(scan, &mut masks);
        if self.names.is_waiting() || has_root(scan) {
            self.names.find(scan, &mut masks);
            names::spoken(scan, &mut masks);
            shapes::schemes(scan, &mut masks);
        }
        self.names.flags(scan, &mut masks);
        shapes::find(scan, &mut masks);
        masks
    }
}

fn has_root(scan: &Scan<'_>) -> bool {
    let mut at = 0;
    loop {
        at = scan
            .find(at, |byte| matches!(byte | 0x20, b'a' | b'b' | b'c' | b'd' | b'k' | b'p' | b's' | b't'));
        if at >= scan.len() {
            return false;
        }
        if ROOTS.iter().any(|root| scan.begins_in_any_case(at, root)) {
            return true;
        }
        at += 1;
    }
}

/// The line with these parts masked, those that touch each other as one.
fn masked(line: &str, mut masks: Vec<Range<usize>>) -> String {
    masks.sort_unstable_by_key(|mask| (mask.start, mask.end));
    let mut shown = String::with_capacity(line.len());
    let mut at = 0;
    let mut open: Option<Range<usize>> = None;
    for mask in masks.into_iter().filter(|mask| mask.start < mask.end) {
        match &mut open {
            Some(last) if mask.start <= last.end => last.end = last.end.max(mask.end),
            _ => {
                if let Some(done) = open.replace(mask) {
                    put(line, &mut shown, &mut at, &done);
                }
            }
        }
    }
    if let Some(done) = open {
        put(line, &mut shown, &mut at, &done);
    }
    shown.push_str(line.get(at..).unwrap_or_default());
    shown
}

fn put(line: &str, shown: &mut String, at: &mut usize, mask: &Range<usize>) {
    shown.push_str(line.get(*at..mask.start).unwrap_or_default());
    shown.push_str(MASK);
    *at = mask.end;
}
