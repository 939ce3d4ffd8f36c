//! The bytes of a line, read by position. Positions beyond the end hold nothing, so no reader can step outside.
//!
//! In tests every byte that is read is counted: masking must take time that grows with the length of a line and not with its
//! square, whatever stands in it.

#[cfg(test)]
use std::cell::Cell;

pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    #[cfg(test)]
    steps: Cell<usize>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(line: &'a str) -> Scan<'a> {
        Scan {
            bytes: line.as_bytes(),
            #[cfg(test)]
            steps: Cell::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn at(&self, position: usize) -> Option<u8> {
        self.count(1);
        self.bytes.get(position).copied()
    }

    /// The bytes of a range, as far as it lies inside.
    pub(super) fn get(&self, from: usize, to: usize) -> &'a [u8] {
        let piece = self.bytes.get(from..to.min(self.len())).unwrap_or_default();
        self.count(piece.len());
        piece
    }

    /// The first position from `from` on whose byte fits, else the end.
    pub(super) fn find(&self, from: usize, fits: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        let length = rest.iter().position(|byte| fits(*byte)).unwrap_or(rest.len());
        self.count(length + 1);
        from.saturating_add(length)
    }

    /// The position behind the last byte in `from..to` that fits, else `from`.
    pub(super) fn find_back(&self, from: usize, to: usize, fits: impl Fn(u8) -> bool) -> usize {
        let piece = self.bytes.get(from..to.min(self.len())).unwrap_or_default();
        let skipped = piece.iter().rev().position(|byte| fits(*byte)).unwrap_or(piece.len());
        self.count(skipped + 1);
        from + piece.len() - skipped
    }

    /// Where this text begins next.
    pub(super) fn find_text(&self, from: usize, text: &[u8]) -> Option<usize> {
        let first = *text.first()?;
        let mut at = from;
        loop {
            at = self.find(at, |byte| byte == first);
            if at >= self.len() {
                return None;
            }
            if self.begins(at, text) {
                return Some(at);
            }
            at += 1;
        }
    }

    pub(super) fn begins(&self, at: usize, text: &[u8]) -> bool {
        self.get(at, at.saturating_add(text.len())) == text
    }

    pub(super) fn begins_in_any_case(&self, at: usize, text: &[u8]) -> bool {
        self.get(at, at.saturating_add(text.len())).eq_ignore_ascii_case(text)
    }

    #[cfg(test)]
    fn count(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    #[cfg(not(test))]
    fn count(&self, _steps: usize) {}

    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.steps.get()
    }
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

pub(super) fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}
