//! Private keys in PEM form: as a block of several lines, on one line with escaped line ends, before and after certificates, and
//! bodies whose first line was cut off.

use std::ops::Range;

use super::scan::{Scan, is_base64};

/// A private key has no more lines than this; more are masked of no text that was cut before the end of one.
pub(super) const KEY_LINES_MAX: usize = 200;
/// `ENCRYPTED PRIVATE KEY` and the like.
const LABEL_BYTES_MAX: usize = 64;
/// Lines of a key have 64 or 76 letters, the last one fewer.
const BODY_BYTES_MIN: usize = 60;

/// Finds keys line by line; remembers whether it is inside one.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// How many more lines the key may have.
    pub(super) lines_left: usize,
    /// The line before was one of a key whose beginning is not in the text.
    is_in_body: bool,
}

impl Keys {
    pub(super) fn find(&mut self, scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
        let mut at = 0;
        let was_inside = self.lines_left > 0;
        loop {
            if self.lines_left > 0 {
                let Some(end) = marker(scan, at, b"END ", ends_key) else {
                    masks.push(at..scan.len());
                    // The line that begins a key is not one of its lines.
                    self.lines_left -= usize::from(was_inside && at == 0);
                    break;
                };
                masks.push(at..end.end);
                self.lines_left = 0;
                at = end.end;
            }
            let Some(begin) = marker(scan, at, b"BEGIN ", begins_key) else { break };
            masks.push(begin.clone());
            self.lines_left = KEY_LINES_MAX;
            at = begin.end;
        }
        if !was_inside && at == 0 {
            self.find_body(scan, masks);
        }
    }

    /// A line of nothing but base64, and those that follow it.
    fn find_body(&mut self, scan: &Scan<'_>, masks: &mut Vec<Range<usize>>) {
        let is_around = |byte: u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b',' | b'-');
        let start = scan.find(0, |byte| !is_around(byte));
        let end = scan.find(start, |byte| !is_base64(byte));
        let is_alone = end > start && scan.find(end, |byte| !is_around(byte)) == scan.len();
        self.is_in_body = is_alone && (self.is_in_body || is_body(scan, start, end));
        if self.is_in_body {
            masks.push(start..end);
        }
    }
}

/// Container IDs have no capitals, and paths begin with a slash.
fn is_body(scan: &Scan<'_>, start: usize, end: usize) -> bool {
    let has = |fits: fn(u8) -> bool| scan.find(start, fits) < end;
    end - start >= BODY_BYTES_MIN
        && !scan.begins(start, b"/calico/")
        && has(|byte| byte.is_ascii_uppercase())
        && has(|byte| byte.is_ascii_lowercase())
        && has(|byte| byte.is_ascii_digit())
}

/// The next `-----WORD label-----` whose label fits. A label that the line's end cuts has no end.
fn marker(scan: &Scan<'_>, from: usize, word: &[u8], fits: fn(&[u8], bool) -> bool) -> Option<Range<usize>> {
    let mut at = from;
    while let Some(found) = scan.find_text(at, word) {
        at = found + word.len();
        let dashes = scan.get(found.saturating_sub(5).max(from), found);
        if !(dashes.ends_with(b"----") || dashes.ends_with(b"---- ")) {
            continue;
        }
        let label_end = (0..LABEL_BYTES_MAX).find(|length| scan.begins(at + length, b"----"));
        let is_cut = label_end.is_none() && at + LABEL_BYTES_MAX >= scan.len();
        let end = at + label_end.unwrap_or(LABEL_BYTES_MAX);
        if fits(scan.get(at, end), is_cut) {
            // No more of them than belong to it: another marker may follow at once.
            let after = (0..5).find(|length| scan.at(end + length) != Some(b'-')).unwrap_or(5);
            return Some(found - dashes.len()..(end + after).min(scan.len()));
        }
    }
    None
}

fn has(label: &[u8], word: &[u8]) -> bool {
    label.windows(word.len()).any(|window| window == word)
}

fn begins_key(label: &[u8], is_cut: bool) -> bool {
    let is_like_it = label.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'-'));
    has(label, b"PRIVATE KEY") || (is_cut && is_like_it && !has(label, b"CERT") && !has(label, b"PUBLIC"))
}

fn ends_key(label: &[u8], is_cut: bool) -> bool {
    has(label, b"PRIVATE KEY") || is_cut
}
