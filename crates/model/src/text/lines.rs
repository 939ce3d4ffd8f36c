//! Bytes to lines that are safe to keep and to print: bounded, valid text, no terminal escapes, no secrets.
//!
//! Everything that is read from a text goes through here first, so that nobody further on has to think of it.

use super::harmless::is_deceptive;
use super::mask::Masker;

/// What is longer is cut, and says so. Status lines of a kubelet have some thousand bytes; a JSON document on one line
/// is not a line for this purpose.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How much of a document on a single line is kept.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct LineCutter {
    pending: Vec<u8>,
    /// The first byte of the line that is no blank.
    first: Option<u8>,
    is_overlong: bool,
    number: u32,
    masker: Masker,
}

/// A line as everybody further on sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: u32,
    pub text: String,
    /// The end of it is missing.
    pub is_cut: bool,
}

impl LineCutter {
    /// Takes in some bytes and hands out the lines that are complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some((line, rest)) = split_line(bytes) {
            self.keep(line);
            self.hand_out(&mut each);
            bytes = rest;
        }
        self.keep(bytes);
    }

    /// The last line need not end.
    pub fn finish(&mut self, mut each: impl FnMut(Line)) {
        if !self.pending.is_empty() {
            self.hand_out(&mut each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.first = self.first.or_else(|| bytes.iter().find(|byte| !byte.is_ascii_whitespace()).copied());
        // A line that begins like a document may be one as a whole.
        let most = if matches!(self.first, Some(b'{' | b'[')) { DOCUMENT_BYTES_MAX } else { LINE_BYTES_MAX };
        let room = most.saturating_sub(self.pending.len());
        self.pending.extend(bytes.iter().take(room));
        self.is_overlong |= bytes.len() > room;
    }

    fn hand_out(&mut self, each: &mut impl FnMut(Line)) {
        self.number = self.number.saturating_add(1);
        let text = cleaned(std::mem::take(&mut self.pending));
        let line = Line { number: self.number, text: self.masker.mask(text), is_cut: self.is_overlong };
        self.first = None;
        self.is_overlong = false;
        each(line);
    }
}

/// What stands before the first end of a line, and what behind.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (line, rest) = bytes.split_at_checked(bytes.iter().position(|byte| *byte == b'\n')?)?;
    Some((line, rest.get(1..)?))
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// The same as [`clean`], in the same memory if there is nothing to clean: documents are large.
fn cleaned(mut bytes: Vec<u8>) -> String {
    bytes.truncate(bytes.trim_ascii_end().len());
    if !is_plain(&bytes) {
        return clean(&bytes);
    }
    bytes.shrink_to_fit();
    String::from_utf8(bytes).unwrap_or_else(|error| clean(error.as_bytes()))
}

/// Valid text without anything that moves a cursor, changes colours, hides or reorders text.
pub fn clean(bytes: &[u8]) -> String {
    let trimmed = bytes.trim_ascii_end();
    if is_plain(trimmed) {
        return String::from_utf8_lossy(trimmed).into_owned();
    }
    let text = String::from_utf8_lossy(bytes);
    let mut safe = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_sequence(&mut rest),
            '\t' => safe.push('\t'),
            character if is_unsafe(character) => {}
            character => safe.push(character),
        }
    }
    safe.truncate(safe.trim_end().len());
    safe
}

/// After an escape character: a sequence (`[…m`), a title (`]…` up to a bell or `ESC \`), or a single letter.
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_sequence(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            while let Some(character) = rest.next() {
                if character == '\u{7}' || character == '\u{9c}' {
                    break;
                }
                if character == '\u{1b}' {
                    rest.next_if_eq(&'\\');
                    break;
                }
            }
        }
        Some('(' | ')' | '#' | '%') => {
            rest.next();
            rest.next();
        }
        Some(character) if !is_unsafe(*character) => {
            rest.next();
        }
        _ => {}
    }
}

/// Parameters up to the letter that ends them.
fn skip_sequence(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(character) = rest.next_if(|character| (' '..='?').contains(character)) {
        debug_assert!(character < '@');
    }
    rest.next_if(|character| ('@'..='~').contains(character));
}

/// Also what a decoder could not read.
fn is_unsafe(character: char) -> bool {
    is_deceptive(character) || character == '\u{fffe}'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut cutter = LineCutter::default();
        let mut lines = Vec::new();
        cutter.feed(bytes, |line| lines.push(line));
        cutter.finish(|line| lines.push(line));
        lines
    }

    #[test]
    fn escapes_and_controls_are_gone() {
        for (raw, safe) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("a\rb\u{0}c\u{8}", "abc"),
            ("a\u{202e}b\u{200b}c", "abc"),
            ("\u{1b}(Bplain\u{1b}c", "plain"),
            ("tab\there  ", "tab\there"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{9b}2Jx", "x"),
        ] {
            assert_eq!(clean(raw.as_bytes()), safe, "{raw:?}");
        }
    }

    #[test]
    fn other_encodings_stay_readable() {
        let wide: Vec<u8> = "ip route\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(lines(&wide)[0].text, "ip route");
        assert_eq!(lines(b"caf\xe9 x\r\ny")[0].text, "caf\u{fffd} x");
        assert_eq!(lines(b"\xef\xbb\xbfNAME").len(), 1);
        assert_eq!(lines(b"\xef\xbb\xbfNAME")[0].text, "NAME");
    }

    #[test]
    fn long_lines_are_cut_and_documents_are_not() {
        let long = vec![b'x'; LINE_BYTES_MAX + 10];
        let cut = lines(&long);
        assert_eq!((cut[0].text.len(), cut[0].is_cut), (LINE_BYTES_MAX, true));
        let mut document = vec![b'['];
        document.extend(std::iter::repeat_n(b'1', LINE_BYTES_MAX + 10));
        assert!(!lines(&document)[0].is_cut);
        assert!(!lines(b"short\nx")[0].is_cut);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(bytes: Vec<u8>, cuts in prop::collection::vec(0usize..200, 0..5)) {
            let mut cutter = LineCutter::default();
            let mut found = Vec::new();
            let mut from = 0;
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            for cut in cuts.into_iter().chain([bytes.len()]) {
                cutter.feed(&bytes[from..cut], |line| found.push(line));
                from = cut;
            }
            cutter.finish(|line| found.push(line));
            prop_assert_eq!(found, lines(&bytes));
        }

        #[test]
        fn nothing_unsafe_gets_through(text: String) {
            let safe = clean(text.as_bytes());
            prop_assert!(safe.chars().all(|character| character == '\t' || !is_unsafe(character)), "{:?}", safe);
            prop_assert_eq!(clean(safe.as_bytes()), safe);
        }
    }
}
